// Rows that are kept in memory because gathers ask for them again. They are served without a read,
// and are never old.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/table_on_disk.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kRows = 2000;

class RowCaching : public TableOnDisk {
 protected:
  static std::vector<std::uint64_t> first_rows(std::uint64_t n, std::uint64_t step = 16) {
    std::vector<std::uint64_t> rows(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      rows[i] = i * step;
    }
    return rows;
  }
  /// Gathers these rows. Returns the number of wrong words.
  static std::uint64_t gather(const Buffer& table, const std::vector<std::uint64_t>& rows,
                              std::uint64_t seed) {
    std::vector<std::byte> bytes(rows.size() * kRow, std::byte{0x55});
    const Status status = table.gather(kRow, rows, bytes.data());
    EXPECT_TRUE(status.ok()) << status.message();
    return wrong_rows(bytes, rows, kRow, seed);
  }
  std::uint64_t reads(Context& context) { return context.stats().gather_reads; }
  static constexpr BufferOptions kTable{.advice = Advice::random};
};

TEST_F(RowCaching, rows_that_come_again_are_not_read_again) {
  auto context = make("16M", "; row_cache=4M");
  const Buffer table = below(*context, 32 * kMiB, 1, kTable);
  EXPECT_EQ(gather(table, first_rows(kRows), 1), 0u);
  const std::uint64_t once = reads(*context);
  EXPECT_GT(once, 0u);
  EXPECT_EQ(gather(table, first_rows(kRows), 1), 0u);
  EXPECT_EQ(reads(*context), once);
  EXPECT_EQ(table.info()->resident, 0u);
  // The same when gathering into a buffer.
  auto into = context->alloc(kRows * kRow);
  ASSERT_TRUE(into.ok());
  const auto rows = first_rows(kRows);
  ASSERT_TRUE(context->gather_into(table.rows(kRow, rows), into->handle()).ok());
  std::vector<std::byte> bytes(kRows * kRow);
  ASSERT_TRUE(into->read(0, bytes.data(), bytes.size()).ok());
  EXPECT_EQ(wrong_rows(bytes, rows, kRow, 1), 0u);
  EXPECT_EQ(reads(*context), once);
}

TEST_F(RowCaching, without_the_option_they_are) {
  auto context = make("16M");
  const Buffer table = below(*context, 32 * kMiB, 1, kTable);
  EXPECT_EQ(gather(table, first_rows(kRows), 1), 0u);
  const std::uint64_t once = reads(*context);
  EXPECT_EQ(gather(table, first_rows(kRows), 1), 0u);
  EXPECT_EQ(reads(*context), 2 * once);
}

TEST_F(RowCaching, what_was_written_since_is_seen_wherever_it_is) {
  auto context = make("16M", "; row_cache=4M");
  Buffer table = below(*context, 32 * kMiB, 1, kTable);
  const auto rows = first_rows(kRows);
  EXPECT_EQ(gather(table, rows, 1), 0u);
  EXPECT_EQ(gather(table, rows, 1), 0u);
  // Half of the table is now in memory and half in slots.
  ASSERT_TRUE(write_pattern(table, 2).ok());
  EXPECT_EQ(gather(table, rows, 2), 0u);
  ASSERT_TRUE(table.evict().ok());
  EXPECT_EQ(gather(table, rows, 2), 0u);
  const std::uint64_t before = reads(*context);
  EXPECT_EQ(gather(table, rows, 2), 0u);
  EXPECT_EQ(reads(*context), before) << "the new rows are kept in the place of the old ones";
  ASSERT_TRUE(table.advise(Advice::dont_need).ok());
  std::vector<std::byte> bytes(kRows * kRow, std::byte{7});
  ASSERT_TRUE(table.gather(kRow, rows, bytes.data()).ok());
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0}),
            static_cast<std::ptrdiff_t>(bytes.size()));
}

TEST_F(RowCaching, a_buffer_in_the_place_of_a_freed_one_has_its_own_rows) {
  auto context = make("16M", "; row_cache=4M");
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    const Buffer table = below(*context, 16 * kMiB, seed, kTable);
    EXPECT_EQ(gather(table, first_rows(kRows), seed), 0u);
    EXPECT_EQ(gather(table, first_rows(kRows), seed), 0u);
  }
}

TEST_F(RowCaching, of_more_rows_than_it_holds_the_frequent_ones_stay) {
  auto context = make("16M", "; row_cache=256K");
  const Buffer table = below(*context, 32 * kMiB, 1, kTable);
  const auto hot = first_rows(300);
  std::uint64_t again = 0;
  for (std::uint64_t round = 0; round < 40; ++round) {
    const std::uint64_t before = reads(*context);
    EXPECT_EQ(gather(table, hot, 1), 0u);
    again += round >= 20 ? reads(*context) - before : 0;
    // Each of these rows is read once.
    std::vector<std::uint64_t> cold(400);
    std::iota(cold.begin(), cold.end(), 300 + round * cold.size());
    std::transform(cold.begin(), cold.end(), cold.begin(), [](auto row) { return row * 7 + 1; });
    EXPECT_EQ(gather(table, cold, 1), 0u);
  }
  EXPECT_LT(again, 20u * hot.size() / 10) << "nine of ten are there";
}

TEST_F(RowCaching, rows_across_blocks_and_long_ones_are_read_each_time_and_right) {
  auto context = make("16M", "; row_cache=4M");
  const Buffer table = below(*context, 32 * kMiB, 1, kTable);
  for (const std::uint64_t row_bytes : {std::uint64_t{1000}, std::uint64_t{8192}}) {
    for (int i = 0; i < 3; ++i) {
      expect_rows(table, row_bytes, 500, 1);
    }
  }
}

TEST_F(RowCaching, beside_evictions_and_other_gathers_each_row_is_as_last_written) {
  auto context = make("16M", "; row_cache=1M");
  Buffer table = below(*context, 8 * kMiB, 0, kTable);
  constexpr std::uint64_t kWritten = 64;
  const auto rows = first_rows(kWritten, 2 * kMiB / kRow / 16);
  std::shared_mutex mutex;  // The program orders its writes and reads itself.
  std::uint64_t written = 0;
  const auto write = [&](std::uint64_t value) {
    const std::lock_guard lock(mutex);
    for (const std::uint64_t row : rows) {
      auto view = table.acquire(kWrite, row * kRow, kRow);
      ASSERT_TRUE(view.ok()) << view.message();
      std::ranges::fill(view->as<std::uint64_t>(), value);
    }
    written = value;
  };
  const auto read = [&] {
    std::vector<std::uint64_t> words(kWritten * kRow / 8);
    const std::shared_lock lock(mutex);
    ASSERT_TRUE(table.gather(kRow, rows, reinterpret_cast<std::byte*>(words.data())).ok());
    ASSERT_EQ(std::ranges::count(words, written), static_cast<std::ptrdiff_t>(words.size()));
  };
  write(0);
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (int n = 0; n < 2; ++n) {
    readers.emplace_back([&] {
      while (!over) {
        read();
        std::this_thread::sleep_for(
            std::chrono::microseconds(200));  // Lets other threads get the lock.
      }
    });
  }
  for (std::uint64_t value = 1; value < 60; ++value) {
    write(value);
    (void)table.evict();  // Leaves what a thread is reading.
    for (int i = 0; i < 3; ++i) {
      read();
    }
  }
  over = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
}

TEST_F(RowCaching, is_refused_where_it_cannot_be) {
  const auto refusal = [&](const std::string& more) {
    auto context = Context::create("dram=16M; nvme=off" + more);
    return context.ok() ? Status() : std::move(context).status();
  };
  EXPECT_SAYS(refusal("; row_cache=1M; checksum=off"), "checksum is off");
  EXPECT_SAYS(refusal("; row_cache=9M"), "half of dram");
  EXPECT_SAYS(refusal("; row_cache=1K"), "64.0 KiB");
  EXPECT_SAYS(refusal("; row_cache=1M; fork=follow"), "fork=follow");
}

TEST_F(RowCaching, its_memory_is_of_the_budget_and_ends_with_the_context) {
  auto context = make("16M", "; row_cache=4M");
  const Buffer table = below(*context, 32 * kMiB, 1, kTable);
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  EXPECT_EQ(gather(table, first_rows(10), 1), 0u);
  EXPECT_EQ(context->stats().dram_pinned, 4 * kMiB);
  Buffer large = make_buffer(*context, 16 * kMiB, "large");
  auto view = large.acquire(kDiscard, 0, 16 * kMiB, Timeout::seconds(1));
  EXPECT_FALSE(view.ok());
  EXPECT_SAYS(view, "row cache");
  large.reset();
  EXPECT_TRUE(context->close().ok()) << "the cache is not a view of the program";
}

}  // namespace
}  // namespace tiermem::test
