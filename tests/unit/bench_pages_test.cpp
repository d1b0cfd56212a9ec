// The benchmarks' pages must detect three faults: a wrong byte, a page in the place of another, and
// a lost write.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/pages.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPages = 1024;

class BenchPages : public testing::Test {
 protected:
  void make(PageTouches touches) {
    touches.pages = kPages;
    touches.touches = 20'000;
    work_ = make_page_workload(touches);
    bytes_.resize(work_->bytes());
    work_->fill(data());
  }
  std::byte* data() { return bytes_.data(); }
  /// Returns the number of pages that differ from `before`.
  std::size_t changed(const std::vector<std::byte>& before) {
    std::size_t count = 0;
    for (std::uint64_t page = 0; page < kPages; ++page) {
      count += std::memcmp(data() + page * kPage, before.data() + page * kPage, kPage) != 0;
    }
    return count;
  }

  std::unique_ptr<Workload> work_;
  std::vector<std::byte> bytes_;
};

TEST_F(BenchPages, untouched_bytes_are_right) {
  make({.threads = 3});
  const std::vector<std::byte> before = bytes_;
  EXPECT_GT(work_->run(data()), 0);
  EXPECT_TRUE(work_->whole(data()));
  EXPECT_EQ(changed(before), 0U);
}

TEST_F(BenchPages, a_wrong_byte_is_found_by_a_run) {
  make({});
  data()[77 * kPage + 3] ^= std::byte{1};
  EXPECT_EQ(work_->run(data()), 0);
  EXPECT_FALSE(work_->whole(data()));
}

TEST_F(BenchPages, a_page_in_the_place_of_another_is_found) {
  make({});
  std::memcpy(data() + 5 * kPage, data() + 6 * kPage, kPage);
  EXPECT_EQ(work_->run(data()), 0);
}

TEST_F(BenchPages, a_lost_write_is_found_at_the_end) {
  make({.writes = true});
  const std::vector<std::byte> before = bytes_;
  EXPECT_GT(work_->run(data()), 0);
  EXPECT_TRUE(work_->whole(data()));
  // This page is among the 1,024 that 10,000 writes reach. Restore its earlier bytes: a lost write.
  ASSERT_NE(std::memcmp(data(), before.data(), kPage), 0);
  std::memcpy(data(), before.data(), kPage);
  EXPECT_GT(work_->run(data()), 0) << "the old page is whole in itself";
  EXPECT_FALSE(work_->whole(data()));
}

TEST_F(BenchPages, zipf_touches_few_pages_often) {
  make({.zipf = 0.99, .writes = true});
  EXPECT_GT(work_->run(data()), 0);
  std::vector<std::uint64_t> writes;
  for (std::uint64_t page = 0; page < kPages; ++page) {
    writes.push_back(reinterpret_cast<const std::uint64_t*>(data() + page * kPage)[1]);
  }
  std::sort(writes.rbegin(), writes.rend());
  // By Zipf's law the first page gets 1 / (sum of 1 / i^0.99) = 0.13 of all writes here, and the
  // second page gets half of that.
  EXPECT_NEAR(static_cast<double>(writes[0]) / 10'000, 0.13, 0.015);
  EXPECT_NEAR(static_cast<double>(writes[1]) / 10'000, 0.065, 0.01);
  EXPECT_GT(std::count_if(writes.begin(), writes.end(), [](auto count) { return count > 0; }),
            static_cast<std::ptrdiff_t>(kPages / 2));
}

TEST_F(BenchPages, steps_come_to_every_page) {
  make({.step = 11});
  for (std::uint64_t page = 0; page < kPages; page += 97) {
    data()[page * kPage] ^= std::byte{1};
    EXPECT_EQ(work_->run(data()), 0) << page;
    data()[page * kPage] ^= std::byte{1};
  }
  EXPECT_GT(work_->run(data()), 0);
}

}  // namespace
}  // namespace tiermem::bench
