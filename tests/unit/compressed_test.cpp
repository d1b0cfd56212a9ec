// Compressed memory: charges, rewrites, the reserve. tests/contract has what holds for every slot
// tier.
#include "tier/compressed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "tests/support/page_bytes.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kPage = kSmallestExtent;
using test::PageBytes;

/// A page that shrinks to about `random_bytes`.
void fill_page(std::byte* page, unsigned random_bytes, std::mt19937_64& random) {
  std::fill_n(page, kPage, std::byte{0x20});
  for (unsigned i = 0; i < random_bytes; ++i) {
    page[i] = static_cast<std::byte>(random());
  }
}

class Compressed : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PageCodec::available()) {
      GTEST_SKIP() << "this build has no LZ4";
    }
  }
  void TearDown() override {
    const Status status = tier_.check_invariants();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  SlotId allocate(std::uint64_t bytes) {
    Result<SlotId> slot = tier_.allocate(bytes, 0);
    if (slot.code() == Code::busy && tier_.grow(bytes).ok()) {
      slot = tier_.allocate(bytes, 0);
    }
    return slot.ok() ? *slot : SlotId{};
  }
  SlotCompletion run(const SlotTransfer& transfer) {
    tier_.submit(transfer);
    SlotCompletion done;
    while (tier_.reap({&done, 1}) == 0) {
    }
    EXPECT_FALSE(tier_.pending());
    return done;
  }
  SlotCompletion write(SlotId slot, PageBytes& bytes, std::uint64_t offset = 0) {
    return run({.slot = slot,
                .write = true,
                .data = bytes.data(),
                .length = bytes.size(),
                .offset = offset});
  }
  PageBytes read(SlotId slot, std::uint64_t bytes, std::uint64_t offset = 0) {
    PageBytes read(bytes, std::byte{0xEE});
    const SlotCompletion done =
        run({.slot = slot, .data = read.data(), .length = bytes, .offset = offset});
    EXPECT_EQ(done.code, Code::ok);
    return read;
  }
  std::uint64_t in_use() const { return tier_.usage().in_use; }

  std::mt19937_64 random_{1};
  CompressedTier tier_{64 * kPage};
};

TEST_F(Compressed, pages_are_charged_for_what_they_need) {
  const SlotId slot = allocate(4 * kPage);
  EXPECT_EQ(tier_.bytes_of(slot), 4 * kPage) << "a write has room";
  PageBytes bytes(4 * kPage);
  fill_page(bytes.data(), 500, random_);
  fill_page(bytes.data() + kPage, 4096, random_);              // Does not shrink.
  std::fill_n(bytes.data() + 2 * kPage, kPage, std::byte{7});  // One word, again and again.
  ASSERT_EQ(write(slot, bytes).code, Code::ok);
  EXPECT_GE(tier_.bytes_of(slot), 2 * 256u + kPage);
  EXPECT_LE(tier_.bytes_of(slot), 3 * 256u + kPage);
  EXPECT_EQ(in_use(), tier_.bytes_of(slot));
  EXPECT_EQ(read(slot, 4 * kPage), bytes);
  tier_.free(slot);
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(Compressed, more_extents_fit_than_their_size) {
  std::vector<SlotId> slots;
  std::vector<PageBytes> all;
  for (;;) {
    const SlotId slot = allocate(8 * kPage);
    if (!slot.valid()) {
      break;
    }
    PageBytes& bytes = all.emplace_back(8 * kPage);
    for (std::uint64_t at = 0; at < bytes.size(); at += kPage) {
      fill_page(bytes.data() + at, 900, random_);
    }
    ASSERT_EQ(write(slot, bytes).code, Code::ok);
    slots.push_back(slot);
  }
  EXPECT_GE(slots.size() * 8, 2 * 64u);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(read(slots[i], 8 * kPage), all[i]);
  }
}

TEST_F(Compressed, pages_that_shrink_less_when_written_again_use_the_reserve_and_then_fail) {
  std::vector<SlotId> slots;
  PageBytes small(kPage), large(kPage);
  fill_page(small.data(), 100, random_);
  fill_page(large.data(), 4096, random_);
  for (SlotId slot = allocate(kPage); slot.valid(); slot = allocate(kPage)) {
    ASSERT_EQ(write(slot, small).code, Code::ok);
    slots.push_back(slot);
  }
  ASSERT_GT(slots.size(), 64u);
  unsigned grown = 0;
  for (const SlotId slot : slots) {
    const SlotCompletion done = write(slot, large);
    if (done.code != Code::ok) {
      EXPECT_EQ(done.code, Code::io_error);
      EXPECT_EQ(done.native, ENOSPC);
      EXPECT_EQ(read(slot, kPage), small) << "a refused write changes nothing";
    } else {
      ++grown;
      EXPECT_EQ(read(slot, kPage), large);
    }
  }
  EXPECT_GE(grown, 4u) << "a sixteenth of the budget";
  EXPECT_LE(in_use(), 68 * kPage);
  EXPECT_EQ(tier_.allocate(kPage, 0).code(), Code::no_capacity);
  EXPECT_EQ(tier_.memory_bytes(), 68 * kPage);
}

TEST_F(Compressed, pages_that_were_not_written_are_zeros) {
  const SlotId before = allocate(2 * kPage);
  PageBytes bytes(2 * kPage);
  fill_page(bytes.data(), 4096, random_);
  fill_page(bytes.data() + kPage, 4096, random_);
  ASSERT_EQ(write(before, bytes).code, Code::ok);
  tier_.free(before);
  const SlotId slot = allocate(2 * kPage);
  EXPECT_EQ(read(slot, 2 * kPage), PageBytes(2 * kPage)) << "and not the bytes of another slot";
}

TEST_F(Compressed, reads_go_before_writes_and_a_step_is_short) {
  const SlotId slot = allocate(32 * kPage), other = allocate(kPage);
  PageBytes large(32 * kPage), small(kPage);
  for (std::uint64_t at = 0; at < large.size(); at += kPage) {
    fill_page(large.data() + at, 900, random_);
  }
  tier_.submit(
      {.cookie = 1, .slot = slot, .write = true, .data = large.data(), .length = large.size()});
  tier_.submit({.cookie = 2, .slot = other, .data = small.data(), .length = kPage});
  SlotCompletion done[2];
  ASSERT_EQ(tier_.reap(done), 1u);
  EXPECT_EQ(done[0].cookie, 2u);
  EXPECT_TRUE(tier_.pending());
  unsigned steps = 0;
  for (; tier_.reap(done) == 0; ++steps) {
    ASSERT_LT(steps, 32u);
  }
  EXPECT_GE(steps, 2u);
  EXPECT_EQ(done[0].cookie, 1u);
}

// Random writes and reads of pages of all kinds beside a map of their bytes.
TEST_F(Compressed, random_calls_beside_a_model) {
  std::map<std::uint64_t, PageBytes> model;
  for (int turn = 0; turn < 20'000; ++turn) {
    const auto pick = [&] {
      auto at = model.begin();
      std::advance(at, random_() % model.size());
      return at;
    };
    switch (random_() % 8) {
      case 0:
        if (const SlotId slot = allocate(kPage << random_() % 4); slot.valid()) {
          ASSERT_TRUE(model.emplace(slot.value, PageBytes(tier_.bytes_of(slot))).second);
        }
        break;
      case 1:
        if (!model.empty() && random_() % 2 == 0) {
          const auto at = pick();
          tier_.free({at->first});
          model.erase(at);
        }
        break;
      default: {
        if (model.empty()) {
          break;
        }
        auto& [number, bytes] = *pick();
        const std::uint64_t pages = bytes.size() / kPage;
        const std::uint64_t first = random_() % pages;
        const std::uint64_t count = 1 + random_() % (pages - first);
        if (random_() % 2 == 0) {
          ASSERT_EQ(read({number}, count * kPage, first * kPage),
                    PageBytes(bytes.part(first * kPage, count * kPage),
                              bytes.part(first * kPage, count * kPage) + count * kPage));
          break;
        }
        PageBytes written(kPage);
        fill_page(written.data(), random_() % 3 == 0 ? 0 : random_() % 4096, random_);
        if (write({number}, written, first * kPage).code == Code::ok) {
          std::copy(written.begin(), written.end(), bytes.part(first * kPage, kPage));
        }
      }
    }
    if (turn % 500 == 0) {
      ASSERT_TRUE(tier_.check_invariants().ok());
    }
    ASSERT_LE(in_use(), tier_.memory_bytes());
  }
}

TEST_F(Compressed, lowered_budget_refuses_slots_and_takes_none_away) {
  const SlotId slot = allocate(32 * kPage);
  tier_.set_budget(16 * kPage);
  EXPECT_EQ(tier_.allocate(kPage, 0).code(), Code::no_capacity);
  EXPECT_EQ(in_use(), 32 * kPage);
  tier_.free(slot);
  EXPECT_TRUE(tier_.allocate(16 * kPage, 0).ok());
  tier_.set_budget(~std::uint64_t{0});
  EXPECT_EQ(tier_.budget(), 64 * kPage) << "there are no more cells";
}

}  // namespace
}  // namespace tiermem
