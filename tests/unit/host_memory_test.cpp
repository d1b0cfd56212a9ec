// Address ranges and pages.
#include "os/host_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "in_child.hpp"
#include "support/answered_calls.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::host {
namespace {

TEST(HostMemory, a_range_is_aligned_and_given_back) {
  std::byte* data = nullptr;
  {
    auto range = reserve({.bytes = 64 * kPage, .alignment = std::uint64_t{64} << 20});
    ASSERT_TRUE(range.ok()) << range.message();
    data = range->data();
    EXPECT_EQ(reinterpret_cast<std::uint64_t>(data) % (std::uint64_t{64} << 20), 0U);
    EXPECT_EQ(populate(data, 64 * kPage), 0);
    EXPECT_EQ(data[63 * kPage], std::byte{0});
  }
  EXPECT_NE(msync(data, kPage, MS_ASYNC), 0);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(HostMemory, neighbours_are_one_mapping) {
  auto first = reserve({.bytes = std::uint64_t{32} << 20});
  ASSERT_TRUE(first.ok());
  const std::uint64_t before = map_count();
  auto second = reserve({.bytes = std::uint64_t{32} << 20, .near = first->data() + first->bytes()});
  ASSERT_TRUE(second.ok());
  if (second->data() == first->data() + first->bytes()) {
    EXPECT_EQ(map_count(), before);
  }
}

TEST(HostMemory, near_place_is_free_then_the_range_is_there) {
  std::byte* place = nullptr;
  {
    auto first = reserve({.bytes = 2 * kHugePage});
    ASSERT_TRUE(first.ok());
    place = first->data();
  }
  auto second = reserve({.bytes = kHugePage, .near = place});
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->data(), place);
}

TEST(HostMemory, a_near_place_that_is_taken_is_not_overwritten) {
  auto first = reserve({.bytes = kHugePage});
  ASSERT_TRUE(first.ok());
  first->data()[5] = std::byte{7};
  auto second = reserve({.bytes = kHugePage, .near = first->data()});
  ASSERT_TRUE(second.ok());
  EXPECT_NE(second->data(), first->data());
  EXPECT_EQ(first->data()[5], std::byte{7});
}

TEST(HostMemory, more_than_the_address_space_is_refused) {
  auto range = reserve({.bytes = std::uint64_t{1} << 52});
  ASSERT_FALSE(range.ok());
  EXPECT_EQ(range.code(), Code::no_capacity);
  EXPECT_EQ(range.status().info()->native, ENOMEM);
}

TEST(HostMemory, dropped_pages_read_as_zeros) {
  auto range = reserve({.bytes = kHugePage});
  ASSERT_TRUE(range.ok());
  write_pattern(range->data(), kHugePage);
  ASSERT_EQ(drop(range->data(), kHugePage), 0);
  EXPECT_EQ(range->data()[8], std::byte{0});
  EXPECT_FALSE(check_pattern(range->data(), kHugePage));
}

TEST(HostMemory, clear_makes_zeros_and_nothing_beside) {
  auto range = reserve({.bytes = kHugePage});
  ASSERT_TRUE(range.ok());
  for (const std::uint64_t bytes : {kPage, 16 * kPage, 64 * kPage}) {
    write_pattern(range->data(), kHugePage);
    const std::byte before = range->data()[kPage - 1];
    const std::byte after = range->data()[kPage + bytes];
    clear(range->data() + kPage, bytes);
    EXPECT_EQ(std::count(range->data() + kPage, range->data() + kPage + bytes, std::byte{0}),
              static_cast<std::ptrdiff_t>(bytes));
    EXPECT_EQ(range->data()[kPage - 1], before);
    EXPECT_EQ(range->data()[kPage + bytes], after);
  }
}

TEST(HostMemory, locked_pages_are_dropped_too) {
  auto range = reserve({.bytes = 4 * kPage});
  ASSERT_TRUE(range.ok());
  write_pattern(range->data(), 4 * kPage);
  if (mlock(range->data(), 4 * kPage) != 0) {
    GTEST_SKIP() << "mlock refused";
  }
  if (drop(range->data(), 4 * kPage) != 0) {
    GTEST_SKIP() << "MADV_DONTNEED_LOCKED is missing";
  }
  EXPECT_EQ(range->data()[8], std::byte{0});
}

TEST(HostMemory, remap_leaves_the_source_reserved) {
  auto from = reserve({.bytes = kHugePage});
  auto to = reserve({.bytes = kHugePage, .accessible = false});
  ASSERT_TRUE(from.ok() && to.ok());
  write_pattern(from->data(), kHugePage);
  ASSERT_EQ(remap(to->data(), from->data(), kHugePage), 0);
  EXPECT_TRUE(check_pattern(to->data(), kHugePage));
  EXPECT_EQ(from->data()[8], std::byte{0});
}

TEST(HostMemory, huge_pages_are_counted) {
  char reason[128] = {};
  if (!huge_pages_available(reason, sizeof(reason))) {
    GTEST_SKIP() << reason;
  }
  auto range = reserve({.bytes = 2 * kHugePage});
  ASSERT_TRUE(range.ok());
  const auto none = huge_bytes(range->data(), range->bytes());
  if (!none.has_value()) {
    GTEST_SKIP() << "PAGEMAP_SCAN is missing";
  }
  EXPECT_EQ(*none, 0U);
  (void)advise(range->data(), kHugePage, Advise::no_huge);
  (void)advise(range->data() + kHugePage, kHugePage, Advise::huge);
  ASSERT_EQ(populate(range->data(), range->bytes()), 0);
  EXPECT_LE(*huge_bytes(range->data(), range->bytes()), kHugePage);
  EXPECT_EQ(*huge_bytes(range->data(), kHugePage), 0U);
}

// The first 130 of 200 pages are present, except number 70. The first round reads /proc; in the
// second no descriptor is left for it.
TEST(HostMemory, what_is_there_is_known_without_a_touch) {
  auto range = reserve({.bytes = 200 * kPage});
  ASSERT_TRUE(range.ok());
  std::byte* const data = range->data();
  (void)advise(data, range->bytes(), Advise::no_huge);
  EXPECT_TRUE(in_child([&] {
    rlimit limit{};
    bool right = populate(data, 130 * kPage) == 0 && drop(data + 70 * kPage, kPage) == 0;
    for (int i = 0; i < 2; ++i) {
      right = right && leading_bytes(data, range->bytes(), true) == 70 * kPage &&
              leading_bytes(data, 69 * kPage, true) == 69 * kPage &&
              leading_bytes(data, range->bytes(), false) == 0 &&
              leading_bytes(data + 70 * kPage, kPage, false) == kPage &&
              leading_bytes(data + 70 * kPage, 60 * kPage, false) == kPage &&
              leading_bytes(data + 71 * kPage, 129 * kPage, true) == 59 * kPage &&
              leading_bytes(data + 130 * kPage, 70 * kPage, false) == 70 * kPage;
      right = right && setrlimit(RLIMIT_NOFILE, &limit) == 0;
    }
    return right;
  }));
}

/// Returns whether `body(range)` holds for four pages in a child in which madvise returns `error`.
template <typename Body>
bool holds_without_madvise(int error, Body&& body) {
  return in_child([&] {
    auto range = reserve({.bytes = 4 * kPage, .alignment = kPage});
    return range.ok() && test::answer_calls(SYS_madvise, error) && body(*range);
  });
}

TEST(HostMemory, populating_is_interrupted_without_end_then_it_ends_with_the_error) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer makes such calls, too";
  }
  EXPECT_TRUE(holds_without_madvise(EINTR, [](AddressRange& range) {
    return populate(range.data(), 4 * kPage) == EINTR && unshare(range.data(), kPage) == EINTR &&
           drop(range.data(), kPage) == EINTR;
  }));
}

// MADV_POPULATE_WRITE came with Linux 5.14.
TEST(HostMemory, kernel_cannot_populate_then_the_pages_are_touched) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer makes such calls, too";
  }
  EXPECT_TRUE(holds_without_madvise(EINVAL, [](AddressRange& range) {
    range.data()[kPage] = std::byte{7};
    return populate(range.data(), 4 * kPage) == 0 && range.data()[kPage] == std::byte{7} &&
           leading_bytes(range.data(), 4 * kPage, true) == 4 * kPage &&
           drop(range.data(), kPage) == EINVAL;
  }));
}

TEST(HostMemory, a_child_does_not_unmap_what_is_its_parents) {
  auto range = reserve({.bytes = kHugePage});
  ASSERT_TRUE(range.ok());
  range->data()[0] = std::byte{42};
  std::byte* const data = range->data();
  const pid_t child = fork();
  if (child == 0) {
    { const AddressRange gone = std::move(*range); }
    _exit(data[0] == std::byte{42} ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tiermem::host
