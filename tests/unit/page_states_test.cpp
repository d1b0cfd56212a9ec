// The table of page states, compared with a plain array at random, by seed.
#include "preload/page_states.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tier/lent_pages.hpp"

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 64;

std::byte* page(std::size_t number) {
  return reinterpret_cast<std::byte*>((number + 1000) * kPage);
}

PageState drawn(std::mt19937& draw) {
  PageState state;
  state.kind = static_cast<PageState::Kind>(draw() % 3);
  state.protection = static_cast<std::uint8_t>(draw() % 4);
  state.locked = draw() % 4 == 0;
  state.kept = static_cast<std::uint16_t>(draw() % 2);
  return draw() % 3 == 0 ? PageState{} : state;
}

TEST(PageStates, random_changes_then_every_page_is_as_in_a_plain_array) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 draw(seed);
    PageStates states;
    std::array<PageState, kPages> model{};
    for (int step = 0; step < 60; ++step) {
      const std::size_t begin = draw() % kPages;
      const std::size_t count = draw() % (kPages - begin + 1);
      const Part part{page(begin), count * kPage};
      const PageState to = drawn(draw);
      const bool one_bit = draw() % 2 == 0;
      const auto alter = [&](PageState& state) {
        if (one_bit) {
          state.locked = to.locked;
        } else {
          state = to;
        }
      };
      PageStates::Change change = states.prepare(part, alter);
      states.apply(change);
      if (draw() % 3 == 0) {
        states.apply(change);  // Undone.
        if (draw() % 2 == 0) {
          continue;
        }
        states.apply(change);  // Redone.
      }
      for (std::size_t i = begin; i < begin + count; ++i) {
        alter(model[i]);
      }
      bool plain = true;
      for (std::size_t i = 0; i < kPages; ++i) {
        ASSERT_EQ(states.at(page(i)), model[i]) << "seed " << seed << " page " << i;
        plain = plain && model[i] == PageState{};
      }
      EXPECT_EQ(states.plain(), plain);
      // Each run is as long as possible, and the runs cover the range.
      std::size_t reached = 0;
      PageState before;
      states.for_runs({page(0), kPages * kPage}, [&](Part run, const PageState& state) {
        EXPECT_EQ(run.begin, page(reached));
        EXPECT_TRUE(reached == 0 || !(state == before)) << "two runs alike, seed " << seed;
        before = state;
        reached += run.length / kPage;
        return true;
      });
      EXPECT_EQ(reached, kPages);
    }
  }
}

TEST(LentPages, random_ranges_then_every_page_is_as_in_a_plain_array) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 draw(seed);
    LentPages lent;
    std::array<bool, kPages> model{};
    for (int step = 0; step < 40; ++step) {
      const std::size_t begin = draw() % kPages;
      const std::size_t count = 1 + draw() % (kPages - begin);
      const bool add = draw() % 2 == 0;
      if (add) {
        lent.add(page(begin), count * kPage);
      } else {
        lent.remove(page(begin), count * kPage);
      }
      std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(begin), count, add);
      std::array<bool, kPages> own{};
      EXPECT_EQ(lent.for_own(page(0), kPages * kPage,
                             [&](std::byte* at, std::uint64_t bytes) {
                               const auto first = static_cast<std::size_t>(at - page(0)) / kPage;
                               std::fill_n(own.begin() + static_cast<std::ptrdiff_t>(first),
                                           bytes / kPage, true);
                               return 0;
                             }),
                0);
      for (std::size_t i = 0; i < kPages; ++i) {
        ASSERT_EQ(lent.contains(page(i)), model[i]) << "seed " << seed << " page " << i;
        ASSERT_EQ(own[i], !model[i]);
      }
    }
  }
}

}  // namespace
}  // namespace tiermem::preload
