// Reading and writing rows of buffers that are larger than memory: real memory, a real directory.
// Each row holds unique words, so a row from another place or an older row is detected.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api/table_on_disk.hpp"
#include "support/damage.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

using Gather = TableOnDisk;

TEST_F(Gather, rows_of_what_is_in_slots_come_and_their_extents_do_not) {
  auto context = make("16M");
  const Buffer table = below(*context, 64 * kMiB, 1);
  const Stats before = context->stats();
  for (const std::uint64_t row_bytes : {64u, 256u, 1000u, 4096u, 65536u}) {
    expect_rows(table, row_bytes / 8 * 8, 3000, 1, row_bytes);
  }
  const Stats after = context->stats();
  EXPECT_EQ(after.promoted, before.promoted);
  EXPECT_GT(after.gather_reads, before.gather_reads);
  EXPECT_EQ(table.info()->resident, 0u);
  EXPECT_LE(after.dram_used, 16 * kMiB);
  EXPECT_EQ(after.dram_pinned, 0u);
}

TEST_F(Gather, rows_of_resident_extents_are_copied_from_memory_the_newest_bytes) {
  auto context = make("32M");
  Buffer table = below(*context, 16 * kMiB, 1);
  ASSERT_TRUE(write_pattern(table, 2).ok());  // Dirty: the slots have the older bytes.
  expect_rows(table, kRow, 5000, 2);
  EXPECT_EQ(context->stats().gather_reads, 0u);
  ASSERT_TRUE(table.evict(0, 8 * kMiB).ok());
  expect_rows(table, kRow, 5000, 2);
  EXPECT_GT(context->stats().gather_reads, 0u);
}

TEST_F(Gather, rows_may_be_in_two_extents_or_in_seventeen) {
  auto context = make("16M");
  for (const std::uint64_t extent : {std::uint64_t{4096}, 2 * kMiB}) {
    const Buffer table = below(*context, 8 * kMiB, 3, {.extent_bytes = extent});
    expect_rows(table, 3000, 2000, 3);
    expect_rows(table, 61000, 200, 3);
    Rows rows = table.rows(65536, {});
    const std::vector<std::uint64_t> offsets = {8, 2 * kMiB - 65528, 4 * kMiB - 8,
                                                8 * kMiB - 65544};
    rows = {table.handle(), 8, 65536, 1, offsets.data(), offsets.size()};
    std::vector<std::byte> bytes(4 * 65536);
    ASSERT_TRUE(context->gather(rows, bytes.data()).ok());
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const auto* words = reinterpret_cast<const std::uint64_t*>(bytes.data() + i * 65536);
      EXPECT_EQ(wrong({words, 8192}, 3, (8 + offsets[i]) / 8), 0u) << i;
    }
  }
}

TEST_F(Gather, rows_never_written_or_given_up_are_zeros_and_nothing_is_read) {
  auto context = make("16M");
  auto table = context->alloc(64 * kMiB);
  ASSERT_TRUE(table.ok());
  const auto rows = some_rows(1000, 64 * kMiB / kRow, 1);
  std::vector<std::byte> bytes(1000 * kRow, std::byte{7});
  ASSERT_TRUE(table->gather(kRow, rows, bytes.data()).ok());
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0}),
            static_cast<std::ptrdiff_t>(bytes.size()));
  ASSERT_TRUE(write_pattern(*table, 1).ok());
  ASSERT_TRUE(table->evict().ok());
  ASSERT_TRUE(table->advise(Advice::dont_need).ok());
  std::fill(bytes.begin(), bytes.end(), std::byte{7});
  ASSERT_TRUE(table->gather(kRow, rows, bytes.data()).ok());
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0}),
            static_cast<std::ptrdiff_t>(bytes.size()));
  EXPECT_EQ(context->stats().gather_reads, 0u);
}

TEST_F(Gather, a_row_asked_for_many_times_is_read_once) {
  auto context = make("16M");
  const Buffer table = below(*context, 16 * kMiB, 1, {.advice = Advice::random});
  const std::vector<std::uint64_t> rows(2000, 777);
  std::vector<std::byte> bytes(rows.size() * kRow);
  ASSERT_TRUE(table.gather(kRow, rows, bytes.data()).ok());
  EXPECT_EQ(wrong_rows(bytes, rows, kRow, 1), 0u);
  EXPECT_EQ(context->stats().gather_reads, 1u);
}

TEST_F(Gather, buffers_allocated_as_random_are_read_by_the_page) {
  for (const auto& [advice, checksum, block] :
       {std::tuple{Advice::random, "on", 4096u}, std::tuple{Advice::normal, "on", 65536u},
        std::tuple{Advice::normal, "off", 4096u}}) {
    auto context = make("16M", std::string("; gather_gap=0; checksum=") + checksum);
    const Buffer table = below(*context, 16 * kMiB, 1, {.advice = advice});
    const std::vector<std::uint64_t> rows = {5000};
    std::vector<std::byte> bytes(kRow);
    ASSERT_TRUE(table.gather(kRow, rows, bytes.data()).ok());
    EXPECT_EQ(wrong_rows(bytes, rows, kRow, 1), 0u);
    EXPECT_EQ(context->stats().gather_bytes, block);
  }
}

TEST_F(Gather, neighbours_are_read_together_up_to_the_gap) {
  for (const auto& [gap, reads] : {std::pair{"0", 3u}, std::pair{"8K", 2u}, std::pair{"32K", 1u}}) {
    auto context = make("16M", std::string("; gather_gap=") + gap);
    const Buffer table = below(*context, 16 * kMiB, 1, {.advice = Advice::random});
    // Pages 10, 11, 13 and 22: no page lies between the first two, then one page, then eight.
    const std::vector<std::uint64_t> rows = {352, 160, 176, 208};
    std::vector<std::byte> bytes(rows.size() * kRow);
    ASSERT_TRUE(table.gather(kRow, rows, bytes.data()).ok());
    EXPECT_EQ(wrong_rows(bytes, rows, kRow, 1), 0u);
    EXPECT_EQ(context->stats().gather_reads, reads) << gap;
  }
}

TEST_F(Gather, rows_of_an_adopted_file_come_from_the_file) {
  const std::string path = directory_.path() + "/table";
  std::vector<std::uint64_t> words((3 * kMiB + 600) / 8);
  fill(words, 5);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(words.data()), 3 * kMiB + 600);
  auto context = make("16M");
  auto file = context->adopt_file(path.c_str(), 8);
  ASSERT_TRUE(file.ok()) << file.message();
  for (const bool seen : {false, true}) {
    const std::uint64_t of = file->size() / 64;
    std::vector<std::uint64_t> rows = some_rows(2000, of, 1);
    rows.push_back(of - 1);
    std::vector<std::uint64_t> got(rows.size() * 8);
    const Status status = file->gather(64, rows, got.data());
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(wrong({&got[i * 8], 8}, 5, 1 + rows[i] * 8), 0u);
    }
    EXPECT_EQ(file->info()->resident, 0u);
    if (!seen) {  // The file now has checksums.
      ASSERT_TRUE(file->acquire(kRead).ok());
      ASSERT_TRUE(file->evict().ok());
    }
  }
  std::ofstream(path, std::ios::binary | std::ios::app).write("more", 4);
  std::vector<std::byte> row(64);
  const std::vector<std::uint64_t> rows = {7};
  const Status changed = file->gather(64, rows, row.data());
  EXPECT_EQ(changed.code(), Code::io_error);
  EXPECT_SAYS(changed, "changed");
  EXPECT_SAYS(changed, "row 0");
  const Status scattered = file->scatter(64, rows, row.data());
  EXPECT_EQ(scattered.code(), Code::invalid_argument);
}

TEST_F(Gather, rows_of_mapped_buffers_are_those_the_program_wrote) {
  auto context = make("16M");
  for (const std::uint64_t extent : {std::uint64_t{64} << 10, 2 * kMiB}) {
    auto made =
        context->alloc(48 * kMiB, {.extent_bytes = extent, .flags = kMapped, .label = "mapped"});
    if (made.code() == Code::unsupported) {
      GTEST_SKIP() << made.message();
    }
    auto* words = reinterpret_cast<std::uint64_t*>(*made->address());
    fill({words, 48 * kMiB / 8}, 1);
    expect_rows(*made, kRow, 3000, 1);
    ASSERT_TRUE(made->evict().ok());
    for (std::uint64_t at = 0; at < 48 * kMiB / 8; at += 40000) {
      words[at] = word_at(1, at);  // Some pages are resident and dirty.
    }
    expect_rows(*made, kRow, 3000, 1, 2);
    words[123456] = 1;
    std::uint64_t word = 0;
    const std::vector<std::uint64_t> rows = {123456};
    ASSERT_TRUE(made->gather(8, rows, &word).ok());
    EXPECT_EQ(word, 1u);
  }
}

TEST_F(Gather, rows_go_to_another_buffer_that_is_larger_than_memory_too) {
  auto context = make("16M");
  const Buffer table = below(*context, 32 * kMiB, 1);
  auto out = context->alloc(40 * kMiB);
  ASSERT_TRUE(out.ok());
  const auto rows = some_rows(32 * kMiB / kRow, table.size() / kRow, 1);
  const Status status = context->gather_into(table.rows(kRow, rows), out->handle(), 4 * kMiB);
  ASSERT_TRUE(status.ok()) << status.message();
  for (std::size_t i = 0; i < rows.size(); i += 4096) {
    auto view = out->acquire(kRead, 4 * kMiB + i * kRow, 4096 * kRow);
    ASSERT_TRUE(view.ok()) << view.message();
    for (std::size_t n = 0; n < 4096; ++n) {
      ASSERT_EQ(wrong(view->as<std::uint64_t>().subspan(n * kRow / 8, kRow / 8), 1,
                      rows[i + n] * kRow / 8),
                0u);
    }
  }
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  const Status beyond = context->gather_into(table.rows(kRow, rows), out->handle(), 9 * kMiB);
  EXPECT_EQ(beyond.code(), Code::invalid_argument);
}

TEST_F(Gather, scattered_rows_are_written_back_and_of_equal_ones_the_last_stays) {
  auto context = make("16M");
  Buffer table = below(*context, 64 * kMiB, 1);
  auto rows = some_rows(20000, table.size() / kRow, 1);
  std::vector<std::uint64_t> words(rows.size() * kRow / 8);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    fill({&words[i * kRow / 8], kRow / 8}, 100 + i);
  }
  const Status status = table.scatter(kRow, rows, words.data());
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(table.evict().ok());
  std::vector<std::size_t> last(table.size() / kRow, ~std::size_t{0});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    last[rows[i]] = i;
  }
  for (std::uint64_t at = 0; at < table.size(); at += 2 * kMiB) {
    auto view = table.acquire(kRead, at, 2 * kMiB);
    ASSERT_TRUE(view.ok()) << view.message();
    for (std::uint64_t row = at / kRow; row < (at + 2 * kMiB) / kRow; ++row) {
      const auto there = view->as<std::uint64_t>().subspan((row * kRow - at) / 8, kRow / 8);
      ASSERT_EQ(last[row] == ~std::size_t{0} ? wrong(there, 1, row * kRow / 8)
                                             : wrong(there, 100 + last[row]),
                0u)
          << row;
    }
  }
}

TEST_F(Gather, rows_scattered_in_order_fill_extents_that_need_not_be_read) {
  auto context = make("16M");
  Buffer table = below(*context, 8 * kMiB, 1);
  std::vector<std::uint64_t> rows(8 * kMiB / 4096);
  std::vector<std::uint64_t> words(8 * kMiB / 8);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = i;
  }
  fill(words, 2);
  const std::uint64_t promoted = context->stats().promoted;
  ASSERT_TRUE(table.scatter(4096, rows, words.data()).ok());
  EXPECT_EQ(context->stats().promoted, promoted);
  EXPECT_EQ(wrong_words(table, 2), 0u);
}

TEST_F(Gather, mistakes_are_named) {
  auto context = make("16M");
  Buffer table = below(*context, 4 * kMiB, 1);
  std::vector<std::byte> bytes(4 * kRow);
  std::vector<std::uint64_t> rows = {1, 2, 4 * kMiB / kRow, 3};
  Status status = table.gather(kRow, rows, bytes.data());
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_SAYS(status, "row 2");
  EXPECT_SAYS(status, "16384");
  rows[2] = ~std::uint64_t{0};
  EXPECT_EQ(table.scatter(kRow, rows, bytes.data()).code(), Code::invalid_argument);
  rows[2] = 0;
  EXPECT_EQ(table.gather(0, rows, bytes.data()).code(), Code::invalid_argument);
  EXPECT_EQ(table.gather(65537, rows, bytes.data()).code(), Code::invalid_argument);
  EXPECT_EQ(table.gather(kRow, rows, nullptr).code(), Code::invalid_argument);
  EXPECT_EQ(table.scatter(kRow, rows, nullptr).code(), Code::invalid_argument);
  EXPECT_EQ(
      context->gather({table.handle(), 4 * kMiB, kRow, 0, rows.data(), 1}, bytes.data()).code(),
      Code::invalid_argument);
  EXPECT_EQ(context->gather({table.handle(), 0, kRow, 0, nullptr, 1}, bytes.data()).code(),
            Code::invalid_argument);
  EXPECT_TRUE(context->gather({table.handle(), 0, kRow, 0, nullptr, 0}, nullptr).ok());
  EXPECT_EQ(context->gather(table.rows(kRow, rows), bytes.data(), Timeout::none()).code(),
            Code::busy);
  ASSERT_TRUE(table.acquire(kRead).ok());
  EXPECT_TRUE(context->gather(table.rows(kRow, rows), bytes.data(), Timeout::none()).ok());
  const Rows stale = table.rows(kRow, rows);
  table.reset();
  EXPECT_EQ(context->gather(stale, bytes.data()).code(), Code::stale_handle);
  EXPECT_EQ(context->scatter(stale, bytes.data()).code(), Code::stale_handle);
}

TEST_F(Gather, a_row_that_does_not_match_its_checksum_is_lost_and_named) {
  auto context = make("16M");
  const Buffer table = below(*context, 2 * kMiB, 1, {.label = "victim"});
  flip_bits_on_disk(directory_.path());
  std::vector<std::byte> bytes(2 * kRow);
  const std::vector<std::uint64_t> rows = {700, 3};
  const Status status = table.gather(kRow, rows, bytes.data());
  EXPECT_EQ(status.code(), Code::lost) << status.message();
  EXPECT_SAYS(status, "victim");
  EXPECT_SAYS(status, "number 3");
  EXPECT_EQ(status.info()->buffer, table.handle());
}

TEST_F(Gather, operations_complete_and_end_with_the_context) {
  auto context = make("16M");
  const Buffer table = below(*context, 64 * kMiB, 1);
  auto rows = some_rows(20000, table.size() / kRow, 1);
  std::vector<std::byte> bytes(rows.size() * kRow), more(rows.size() * kRow);
  Op one, two, three;
  ASSERT_TRUE(context->gather(table.rows(kRow, rows), bytes.data(), Timeout::forever(), &one).ok());
  ASSERT_TRUE(context->gather(table.rows(kRow, rows), more.data(), Timeout::forever(), &two).ok());
  Status waited = one.wait();
  EXPECT_TRUE(waited.ok()) << waited.message();
  EXPECT_EQ(wrong_rows(bytes, rows, kRow, 1), 0u);
  (void)two.cancel();
  waited = two.wait();
  EXPECT_TRUE(waited.ok() || waited.code() == Code::cancelled) << waited.message();
  ASSERT_TRUE(
      context->scatter(table.rows(kRow, rows), bytes.data(), Timeout::forever(), &three).ok());
  EXPECT_TRUE(three.wait().ok());
  rows[17] = ~std::uint64_t{0};
  EXPECT_EQ(context->gather(table.rows(kRow, rows), more.data(), Timeout::forever(), &three).code(),
            Code::invalid_argument);
  rows[17] = 0;
  for (int i = 0; i < 20; ++i) {
    Op op;
    ASSERT_TRUE(context->gather(table.rows(kRow, rows), more.data(), Timeout::forever(), &op).ok());
    (void)op.detach();
  }
  EXPECT_TRUE(context->close(true).ok());
}

// Views are pins and not locks, so a gather may copy a row while another thread writes it, word by
// word. The caller allows this, so the thread sanitizer must not report it.
__attribute__((no_sanitize("thread"))) void write_row(std::span<std::uint64_t> words,
                                                      std::uint64_t value) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    __atomic_store_n(words.data() + i, value, __ATOMIC_RELAXED);
  }
}

TEST_F(Gather, beside_writers_evictions_and_frees_no_row_is_torn_or_old) {
  auto context = make("16M");
  constexpr std::uint64_t kRows = 32 * kMiB / kRow;
  // All words of a row hold one number that only grows. `least` holds the number that the row has
  // reached.
  Buffer table = below(*context, kRows * kRow, 0, {.advice = Advice::random});
  ASSERT_TRUE(table.advise(Advice::dont_need).ok());
  std::vector<std::atomic<std::uint64_t>> least(kRows);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> bad{0}, refused{0};
  std::vector<std::thread> threads;
  // The writers have alternate rows, so only one thread at a time writes a row.
  for (std::uint64_t w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      std::mt19937_64 random(w);
      for (std::uint64_t value = 1; !stop; ++value) {
        const std::uint64_t row = random() % (kRows / 2) * 2 + w;
        auto view = table.acquire(kWrite, row * kRow, kRow);
        if (!view.ok()) {
          ++refused;
          continue;
        }
        write_row(view->as<std::uint64_t>(), value);
        view->release();
        least[row].store(value, std::memory_order_release);
      }
    });
  }
  threads.emplace_back([&] {
    std::mt19937_64 random(7);
    while (!stop) {
      (void)table.evict(random() % 16 * 2 * kMiB, 2 * kMiB);
      auto other = context->alloc(kMiB);
      if (other.ok()) {
        (void)other->acquire(kWrite).ok();
      }
    }
  });
  for (std::uint64_t g = 0; g < 2; ++g) {
    threads.emplace_back([&, g] {
      std::vector<std::uint64_t> before(400), words(400 * kRow / 8);
      for (std::uint64_t draw = g; !stop; draw += 2) {
        const auto rows = some_rows(400, kRows, draw);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          before[i] = least[rows[i]].load(std::memory_order_acquire);
        }
        if (!table.gather(kRow, rows, words.data()).ok()) {
          ++refused;
          continue;
        }
        for (std::size_t i = 0; i < rows.size(); ++i) {
          // If the row was written during the copy its words may differ, but none may be older than
          // `before`.
          bad += *std::min_element(&words[i * kRow / 8], &words[(i + 1) * kRow / 8]) < before[i];
        }
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(2));
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad.load(), 0u);
  EXPECT_EQ(refused.load(), 0u);
  EXPECT_EQ(context->stats().dram_pinned, 0u);
}

TEST_F(Gather, a_budget_of_a_few_extents_is_enough) {
  auto context = make("256K");
  auto made = context->alloc(4 * kMiB, {.extent_bytes = 16 << 10, .advice = Advice::random});
  ASSERT_TRUE(made.ok());
  std::vector<std::uint64_t> words(4 * kMiB / 8);
  fill(words, 1);
  ASSERT_TRUE(made->write(0, words.data(), 4 * kMiB).ok());
  expect_rows(*made, kRow, 2000, 1);
  expect_rows(*made, 40000, 50, 1);
  EXPECT_LE(context->stats().dram_used, 256u << 10);
}

TEST_F(Gather, contexts_that_follow_forks_gather_too) {
  auto context = make("32M", "; fork=follow");
  auto made = context->alloc(64 * kMiB, {.flags = kMapped});
  if (made.code() == Code::unsupported) {
    GTEST_SKIP() << made.message();
  }
  ASSERT_TRUE(made.ok()) << made.message();
  fill({reinterpret_cast<std::uint64_t*>(*made->address()), 64 * kMiB / 8}, 1);
  ASSERT_TRUE(made->evict().ok());
  expect_rows(*made, kRow, 2000, 1);
  Op op;
  const std::vector<std::uint64_t> rows = {1};
  std::vector<std::byte> row(kRow);
  EXPECT_TRUE(context->gather(made->rows(kRow, rows), row.data(), Timeout::forever(), &op).ok());
  EXPECT_TRUE(op.wait().ok());
}

}  // namespace
}  // namespace tiermem::test
