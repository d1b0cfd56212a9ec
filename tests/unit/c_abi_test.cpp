// Tests of the C interface that need C++: structs of future versions, exceptions at the boundary,
// scratch memory of many threads.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "last_error.hpp"
#include "records.hpp"
#include "view_scratch.hpp"

namespace tiermem::c_abi {
namespace {

// Three versions of one struct, as three releases would define it.
struct First {
  std::size_t size = sizeof(First);
  std::uint64_t a = 1;
};
struct Second {
  std::size_t size = sizeof(Second);
  std::uint64_t a = 1;
  std::uint64_t b = 2;
};
struct Third {
  std::size_t size = sizeof(Third);
  std::uint64_t a = 1;
  std::uint64_t b = 2;
  std::uint64_t c = 3;
};

TEST(CAbiRecords, an_older_options_struct_leaves_defaults) {
  const First theirs{sizeof(First), 10};
  Second ours;
  EXPECT_EQ(read_options(&theirs, sizeof(First), ours), RecordFault::none);
  EXPECT_EQ(ours.a, 10u);
  EXPECT_EQ(ours.b, 2u);
}

TEST(CAbiRecords, a_newer_options_struct_is_taken_while_what_is_unknown_is_zero) {
  Third theirs{sizeof(Third), 10, 20, 0};
  Second ours;
  EXPECT_EQ(read_options(&theirs, sizeof(First), ours), RecordFault::none);
  EXPECT_EQ(ours.b, 20u);
  for (std::size_t bit = 0; bit < 64; ++bit) {
    theirs.c = std::uint64_t{1} << bit;
    EXPECT_EQ(read_options(&theirs, sizeof(First), ours), RecordFault::unknown_field);
  }
}

TEST(CAbiRecords, sizes_below_the_first_version_and_wild_ones_are_refused) {
  Second ours;
  for (std::size_t size :
       {std::size_t{0}, std::size_t{8}, sizeof(First) - 1, kLargestRecord + 1, ~std::size_t{0}}) {
    const First theirs{size, 10};
    EXPECT_EQ(read_options(&theirs, sizeof(First), ours), RecordFault::bad_size) << size;
    EXPECT_FALSE(size_fits(&theirs, sizeof(First))) << size;
  }
  EXPECT_EQ(ours.a, 1u);
}

TEST(CAbiRecords, information_is_filled_as_far_as_both_sides_know_it) {
  const Second ours{sizeof(Second), 10, 20};
  std::array<std::uint64_t, 8> memory{};
  for (std::size_t words = 2; words < memory.size(); ++words) {
    memory.fill(55);
    memory[0] = words * 8;
    ASSERT_TRUE(size_fits(memory.data(), sizeof(First)));
    fill_info(memory.data(), ours);
    EXPECT_EQ(memory[0], words * 8);
    EXPECT_EQ(memory[1], 10u);
    EXPECT_EQ(memory[2], words > 2 ? 20u : 55u);
    for (std::size_t i = 3; i < memory.size(); ++i) {
      EXPECT_EQ(memory[i], i < words ? 0u : 55u) << words << " words, the one at " << i;
    }
  }
}

TEST(CAbiBoundary, what_is_thrown_becomes_a_status_with_a_sentence) {
  EXPECT_EQ(guarded([]() -> Status { throw std::bad_alloc(); }), TM_NO_CAPACITY);
  EXPECT_NE(std::strstr(last_error().text, "memory"), nullptr);
  EXPECT_EQ(guarded([]() -> Status { throw std::runtime_error("broken"); }), TM_INTERNAL);
  EXPECT_STREQ(last_error().text, "exception: broken; report it");
  EXPECT_EQ(guarded([]() -> Status { throw 5; }), TM_INTERNAL);
  EXPECT_EQ(last_error().code, Code::internal);
  EXPECT_NE(last_error().text[0], '\0');
}

TEST(CAbiBoundary, success_leaves_the_last_error_and_a_bare_code_gets_its_name) {
  EXPECT_EQ(guarded([] { return Status(Code::timed_out); }), TM_TIMED_OUT);
  EXPECT_STREQ(last_error().text, "timed_out");
  EXPECT_EQ(guarded([] { return Status(); }), TM_OK);
  EXPECT_EQ(last_error().code, Code::timed_out);
}

TEST(CAbiBoundary, each_thread_has_an_error_of_its_own) {
  EXPECT_EQ(refuse(Code::busy, "here"), TM_BUSY);
  std::thread([] {
    EXPECT_EQ(last_error().code, Code::ok);
    EXPECT_EQ(refuse(Code::lost, "there"), TM_LOST);
  }).join();
  EXPECT_STREQ(last_error().text, "here");
}

TEST(CAbiViewScratch, lists_of_every_length_get_room_and_one_block_serves_all) {
  ScratchBlock blocks;
  const std::byte* block = nullptr;
  for (std::size_t n : {std::size_t{5000}, std::size_t{1}, ViewScratch::kOnStack,
                        ViewScratch::kOnStack + 1, std::size_t{5000}}) {
    ViewScratch scratch(blocks, n);
    const auto views = scratch.views();
    ASSERT_EQ(views.size(), n);
    std::memset(static_cast<void*>(views.data()), 0x55, views.size_bytes());
    const auto* at = reinterpret_cast<const std::byte*>(views.data());
    if (n > ViewScratch::kOnStack) {
      EXPECT_TRUE(block == nullptr || block == at) << n;
      block = at;
    }
  }
  EXPECT_THROW(ViewScratch(blocks, ~std::size_t{0} / 2), std::bad_alloc);
}

TEST(CAbiViewScratch, two_lists_at_once_never_share) {
  ScratchBlock blocks;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t round = 0; round < 500; ++round) {
        ViewScratch scratch(blocks, 33 + (round * t) % 200);
        for (ViewRecord& view : scratch.views()) {
          view.length = t;
        }
        for (const ViewRecord& view : scratch.views()) {
          wrong += view.length != t;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tiermem::c_abi
