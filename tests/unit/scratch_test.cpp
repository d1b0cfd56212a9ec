// The stack of plain memory for system calls. Goal: calls in progress never share bytes, whether
// they end, are interrupted, or are left by a jump. A large call costs no memory after it ends.
#include "preload/scratch.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

extern "C" {
// Replaces the preload library's function of this name, which is not hidden.
void* tiermem_plain_mmap(void* address, std::size_t bytes, int protection, int flags, int fd,
                         off_t offset) noexcept {
  return ::mmap(address, bytes, protection, flags, fd, offset);
}
int tiermem_plain_munmap(void* address, std::size_t bytes) noexcept {
  return ::munmap(address, bytes);
}
int tiermem_plain_madvise(void* address, std::size_t bytes, int advice) noexcept {
  return ::madvise(address, bytes, advice);
}
}

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;

/// Runs `body` on a new thread, which has an empty scratch.
template <typename Body>
void on_a_thread(Body body) {
  std::thread(body).join();
}

std::size_t resident(const std::byte* begin, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / kPage);
  EXPECT_EQ(::mincore(const_cast<std::byte*>(begin), bytes, pages.data()), 0);
  std::size_t count = 0;
  for (const unsigned char page : pages) {
    count += page & 1;
  }
  return count * kPage;
}

TEST(Scratch, gives_each_wish_bytes_of_its_own) {
  on_a_thread([] {
    Scratch scratch;
    std::byte* const first = scratch.take(100);
    std::byte* const second = scratch.take(1);
    std::byte* const third = scratch.take(1);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 16, 0u);
    EXPECT_EQ(second - first, 112);
    EXPECT_EQ(third - second, 16);
  });
}

TEST(Scratch, lies_within_its_page_as_what_it_stands_for) {
  on_a_thread([] {
    Scratch scratch;
    alignas(kPage) static std::array<std::byte, 2 * kPage> original;
    std::byte* before = scratch.take(1);
    for (const std::size_t at : {std::size_t{0}, std::size_t{1}, std::size_t{16}, kPage - 1}) {
      std::byte* const got = scratch.take(10, original.data() + at);
      ASSERT_NE(got, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got) % kPage, at);
      EXPECT_GT(got, before);
      EXPECT_LE(got - before, static_cast<std::ptrdiff_t>(2 * kPage));
      before = got + 9;
    }
  });
}

TEST(Scratch, has_room_for_so_much_and_no_more) {
  on_a_thread([] {
    Scratch scratch;
    EXPECT_EQ(scratch.take(Scratch::kMost + 1), nullptr);
    const std::size_t empty = scratch.mark();
    EXPECT_NE(scratch.take(Scratch::kMost), nullptr);
    EXPECT_EQ(scratch.take(Scratch::kMost), nullptr);
    EXPECT_NE(scratch.take(64 * kPage), nullptr) << "the rest";
    EXPECT_EQ(scratch.take(1), nullptr);
    scratch.back_to(empty);
    EXPECT_NE(scratch.take(Scratch::kMost), nullptr);
  });
}

TEST(Scratch, call_ends_then_its_bytes_are_the_next_ones) {
  on_a_thread([] {
    std::byte* first = nullptr;
    {
      Scratch scratch;
      first = scratch.take(1000);
    }
    Scratch scratch;
    EXPECT_EQ(scratch.take(1000), first);
  });
}

TEST(Scratch, call_is_interrupted_then_the_inner_one_is_on_top) {
  on_a_thread([] {
    // The inner call is lower on the stack, like its frame.
    alignas(Scratch) std::array<std::byte, 2 * sizeof(Scratch)> room;
    auto* const outer = new (room.data() + sizeof(Scratch)) Scratch;
    std::byte* const its = outer->take(1000);
    auto* const inner = new (room.data()) Scratch;
    std::byte* const inner_bytes = inner->take(1000);
    EXPECT_GE(inner_bytes, its + 1000);
    EXPECT_EQ(outer->take(1), nullptr) << "only the innermost has bytes";
    inner->~Scratch();
    EXPECT_EQ(outer->take(1000), inner_bytes);
    outer->~Scratch();
  });
}

TEST(Scratch, sixteen_calls_are_nested_then_a_further_one_has_no_bytes) {
  on_a_thread([] {
    // Each call is lower on the stack than the one before, like its frame.
    alignas(Scratch) std::array<std::byte, 32 * sizeof(Scratch)> room;
    std::vector<Scratch*> calls;
    for (std::size_t i = 0; i < 17; ++i) {
      calls.push_back(new (room.data() + (31 - i) * sizeof(Scratch)) Scratch);
      EXPECT_EQ(calls.back()->take(10) != nullptr, i < 16) << i;
    }
    for (; !calls.empty(); calls.pop_back()) {
      calls.back()->~Scratch();
    }
    Scratch again;
    EXPECT_NE(again.take(10), nullptr);
  });
}

// A handler has left a call by a jump. The frame of that call is above the next call's frame, or at
// the same place.
TEST(Scratch, calls_are_left_by_a_jump_then_the_next_has_their_bytes_and_no_others) {
  on_a_thread([] {
    alignas(Scratch) std::array<std::byte, 8 * sizeof(Scratch)> room;
    const auto at = [&](std::size_t i) { return room.data() + (7 - i) * sizeof(Scratch); };
    auto* const outer = new (at(0)) Scratch;
    std::byte* const its = outer->take(1000);
    auto* const second = new (at(3)) Scratch;
    std::byte* const left = second->take(1000);
    auto* const third = new (at(4)) Scratch;
    EXPECT_NE(third->take(1000), nullptr);
    // Both calls have been left. The next is created above them, and below the outer one.
    auto* const next = new (at(2)) Scratch;
    EXPECT_EQ(next->take(1000), left);
    EXPECT_EQ(left, its + 1008);
    next->~Scratch();
    EXPECT_EQ(outer->take(1000), left);
    outer->~Scratch();
  });
}

TEST(Scratch, large_call_ends_then_its_pages_are_given_back) {
  on_a_thread([] {
    std::byte* begin = nullptr;
    for (int round = 0; round < 2; ++round) {
      Scratch scratch;
      begin = scratch.take(Scratch::kMost);
      ASSERT_NE(begin, nullptr);
      std::memset(begin, 1, Scratch::kMost);
    }
    EXPECT_LE(resident(begin, Scratch::kMost), std::size_t{1} << 20);
    {
      Scratch scratch;
      std::memset(scratch.take(std::size_t{1} << 20), 1, std::size_t{1} << 20);
    }
    EXPECT_EQ(resident(begin, std::size_t{1} << 20), std::size_t{1} << 20) << "these are kept";
  });
}

TEST(Scratch, thread_ends_then_its_mapping_is_given_back) {
  prepare_scratch();
  std::byte* begin = nullptr;
  on_a_thread([&] {
    Scratch scratch;
    begin = scratch.take(kPage);
  });
  unsigned char page = 0;
  EXPECT_EQ(::mincore(begin, kPage, &page), -1);
  EXPECT_EQ(errno, ENOMEM);
}

}  // namespace
}  // namespace tiermem::preload
