// Relocation: the bytes of a frame go to a frame of another memory of the same space. Spaces with
// one memory skip these checks.
#include <atomic>
#include <thread>

#include "contract/memory_contract.hpp"

namespace tiermem::contract {
namespace {

// The thread sanitizer counts a call that replaces the pages of a window as a write to its bytes.
[[gnu::noinline, gnu::no_sanitize("thread")]] std::byte touch(const std::byte* at) {
  return *static_cast<const volatile std::byte*>(at);
}

TEST_P(RelocateContract, frame_at_home_then_its_bytes_are_at_home_in_the_other_memory) {
  for (const Class of : classes()) {
    const FrameId from = filled(of, 3);
    const FrameId to = acquire_there(of);
    bool home = false;
    const Status status = relocate(from, to, nullptr, home);
    if (space().bytes_at(to, nullptr) == nullptr) {  // It has memory in a window only.
      EXPECT_EQ(status.code(), Code::busy) << status.message();
      EXPECT_TRUE(holds(from, of.bytes, 3)) << of.bytes;
      continue;
    }
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(home);
    EXPECT_TRUE(holds(to, of.bytes, 3)) << of.bytes;
    EXPECT_FALSE(sibling().needs_populate(to));
    give_back(from);
  }
}

TEST_P(RelocateContract, frame_in_a_window_then_the_address_has_the_same_bytes) {
  for (const std::uint64_t bytes : facts().window_extents) {
    if (window_class(bytes).pool == Pool::locked) {
      continue;
    }
    std::byte* const at = window(bytes, bytes, false);
    const FrameId from = window_frame(bytes);
    std::byte* const data = space().bytes_at(from, at);
    if (memory().needs_populate(from)) {
      ASSERT_TRUE(memory().populate(from, false, at).ok());
    }
    const Block block = pattern(bytes, 5);
    subject().write(data, block.data(), bytes);
    Mechanism used{};
    ASSERT_TRUE(space().map(from, at, used).ok());
    is_at(from, at);
    const FrameId to = acquire_there(window_class(bytes));
    bool home = false;
    const Status status = relocate(from, to, at, home);
    ASSERT_TRUE(status.ok()) << status.message();
    is_at(from, nullptr);
    ASSERT_FALSE(home);
    EXPECT_TRUE(sees(at, bytes, 5)) << bytes;
    store(at, bytes, 6);
    give_back(from);
    // And back again.
    const FrameId again = window_frame(bytes);
    ASSERT_TRUE(relocate(to, again, at, home).ok());
    is_at(again, at);
    EXPECT_TRUE(sees(at, bytes, 6)) << bytes;
  }
}

TEST_P(RelocateContract, frame_in_a_mapped_window_then_touches_find_its_bytes) {
  for (const std::uint64_t bytes : mapped_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    FrameId here = filled(window_class(bytes), 7);
    ASSERT_TRUE(space().restore(here, at).ok());
    is_at(here, at);
    std::atomic<bool> ends{false};
    std::atomic<unsigned> wrong{0}, reads{0};
    std::thread waker, reader;
    if (facts().touches_wait) {
      waker = std::thread([&] {
        while (subject().wait_for_touch()) {
          std::this_thread::yield();
          subject().wake();
        }
      });
      reader = std::thread([&] {
        const Block expected = pattern(bytes, 7);
        for (std::uint64_t offset = 0; !ends; offset = (offset + kSmallestExtent) % bytes) {
          wrong += touch(at + offset) != expected[offset] ? 1 : 0;
          ++reads;
        }
      });
    }
    for (int round = 0; round < 10; ++round) {
      const FrameId to = acquire_there(window_class(bytes));
      bool home = false;
      const Status there = relocate(here, to, at, home);
      EXPECT_TRUE(there.ok()) << there.message();
      is_at(here, nullptr);
      EXPECT_FALSE(home);
      give_back(here);
      here = window_frame(bytes);
      const Status back = relocate(to, here, at, home);
      EXPECT_TRUE(back.ok()) << back.message();
      is_at(here, at);
      EXPECT_FALSE(home);
      give_back_there(to);
    }
    ends = true;
    if (reader.joinable()) {
      reader.join();
      subject().stop_touches();
      waker.join();
    }
    EXPECT_EQ(wrong, 0U) << bytes;
    EXPECT_TRUE(sees(at, bytes, 7)) << bytes;
    if (facts().touches_wait) {
      break;  // No touch is reported after stop_touches().
    }
  }
}

TEST_P(RelocateContract, page_cannot_leave_then_everything_is_as_before) {
  for (const std::uint64_t bytes : mapped_extents()) {
    std::byte* const at = window(bytes, bytes, true);
    const FrameId from = filled(window_class(bytes), 9);
    ASSERT_TRUE(space().restore(from, at).ok());
    is_at(from, at);
    const char* const call = space().withdraws_slowly(from) ? "" : subject().relocate_call();
    if (!subject().refuse(call, at)) {
      continue;
    }
    const FrameId to = acquire_there(window_class(bytes));
    bool home = false;
    EXPECT_EQ(relocate(from, to, at, home).code(), Code::busy);
    subject().forgive();
    EXPECT_TRUE(sees(at, bytes, 9)) << bytes;
    store(at, bytes, 10);
    EXPECT_TRUE(sees(at, bytes, 10)) << bytes;
    EXPECT_TRUE(relocate(from, to, at, home).ok());
    EXPECT_TRUE(sees(at, bytes, 10)) << bytes;
    is_at(from, nullptr);
    unmap(to, at);
  }
}

}  // namespace
}  // namespace tiermem::contract
