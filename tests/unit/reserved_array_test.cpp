// Reserving and committing arrays: which elements may be written, what memory is charged, and what
// a core dump contains.
#include "base/reserved_array.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdint>

#include "support/mappings.hpp"
#include "support/sanitizers.hpp"
#include "unit/in_child.hpp"

namespace tiermem {
namespace {

constexpr std::size_t kMany = std::size_t{1} << 24;

TEST(ReservedArray, elements_are_zero_before_they_are_committed) {
  const ReservedArray<std::uint64_t> array(kMany);
  EXPECT_EQ(array[0], 0u);
  EXPECT_EQ(array[kMany - 1], 0u);
}

TEST(ReservedArray, committed_elements_keep_what_is_written_while_it_grows) {
  ReservedArray<std::uint64_t> array(kMany);
  std::size_t done = 0;
  for (std::size_t n = 1; n <= kMany; n *= 4) {
    ASSERT_TRUE(array.commit(n));
    for (; done < n; done += 1 + done / 3) {
      array[done] = done + 1;
    }
    array[n - 1] = n;
  }
  EXPECT_EQ(array[0], 1u);
  EXPECT_EQ(array[kMany / 4 - 1], kMany / 4);
}

TEST(ReservedArray, more_than_was_reserved_cannot_be_committed) {
  ReservedArray<std::uint64_t> array(1000);
  EXPECT_FALSE(array.commit(kMany));
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_TRUE(array.commit(1000));
}

TEST(ReservedArray, little_is_charged_before_it_is_committed) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer makes mappings of its own";
  }
  const test::Mappings before = test::mappings();
  ReservedArray<std::uint64_t> array(kMany);
  ASSERT_TRUE(array.commit(10));
  array[3] = 1;
  const test::Mappings after = test::mappings();
  EXPECT_LE(after.writable - before.writable, 2 * ReservedBytes::kLeastStep);
  EXPECT_LE(after.dumped - before.dumped, ReservedBytes::kLeastStep) << "none of it is dumped";
  EXPECT_LE(after.count, before.count + 2);
}

// The next step of growth is refused, but the requested elements alone fit.
TEST(ReservedArray, a_step_that_is_refused_is_replaced_by_what_is_needed) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer needs more memory than the limit";
  }
  EXPECT_TRUE(in_child([] {
    ReservedArray<std::uint64_t> array(kMany);
    const std::size_t half = (std::size_t{16} << 20) / 8;
    if (!array.commit(half)) {
      return false;
    }
    const std::uint64_t limit = test::status_bytes("VmData:") + (std::uint64_t{4} << 20);
    const rlimit all{limit, limit};
    if (::setrlimit(RLIMIT_DATA, &all) != 0 || !array.commit(half + 1000)) {
      return false;
    }
    array[half + 999] = 1;
    return !array.commit(2 * half) && array[half + 999] == 1;
  }));
}

TEST(ReservedArray, dropped_elements_are_zero_again) {
  ReservedArray<std::uint64_t> array(kMany);
  ASSERT_TRUE(array.commit(10'000));
  for (std::size_t i = 0; i < 10'000; ++i) {
    array[i] = i + 1;
  }
  array.drop(1000, 9000);
  EXPECT_EQ(array[999], 1000u);
  EXPECT_EQ(array[9000], 9001u);
  EXPECT_EQ(array[5000], 0u);
}

}  // namespace
}  // namespace tiermem
