// Arguments that overlap, and lists that change. Goal: a call with overlapping source and target in
// one buffer copies nothing and returns an error. A call with separate ranges gives the bytes of a
// plain model, wherever the bytes are. If another thread changes a list during a call, the call
// never leaves its buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api/table_on_disk.hpp"
#include "support/found.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

class Aliases : public TableOnDisk {
 protected:
  static std::vector<std::byte> bytes_of(const Buffer& buffer) {
    std::vector<std::byte> bytes(buffer.size());
    EXPECT_TRUE(buffer.read(0, bytes.data(), bytes.size()).ok());
    return bytes;
  }
};

// The original fault: the target was discarded before its rows were read.
FOUND_TEST(Aliases, L11_gather_into_the_same_buffer_gives_the_rows_that_were_there) {
  auto context = make("16M");
  for (const bool evicted : {false, true}) {
    Buffer table = below(*context, 4 * kMiB, 1);
    ASSERT_TRUE(evicted || table.prefetch().ok());
    // Copies rows of the second half of each extent to the first half.
    std::vector<std::uint64_t> index;
    for (std::uint64_t row = 0; row < kMiB / kRow; ++row) {
      index.push_back(kMiB / kRow + row);
    }
    const Status status = context->gather_into(table.rows(kRow, index), table.handle(), 0);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto bytes = bytes_of(table);
    EXPECT_EQ(wrong_rows(bytes, index, kRow, 1), 0u) << evicted;
    // One more row, which overlaps the range.
    index.back() = 0;
    const Status refused = context->gather_into(table.rows(kRow, index), table.handle(), 0);
    EXPECT_EQ(refused.code(), Code::invalid_argument) << refused.message();
    EXPECT_SAYS(refused, "overlap");
    EXPECT_SAYS(refused, "row ");
    EXPECT_EQ(bytes_of(table), bytes) << "a call that was refused copied something";
  }
}

// Property: gather_into within a buffer is refused if a row overlaps the range. Otherwise it has
// the same effect as on a plain copy of the bytes.
FOUND_TEST(Aliases, L11_rows_within_one_buffer_are_copied_as_in_plain_memory_or_refused) {
  auto context = make("16M");
  std::mt19937_64 random(11);
  int done = 0, refused = 0;
  for (const std::uint64_t extent : {std::uint64_t{4096}, std::uint64_t{64} << 10, 2 * kMiB}) {
    for (const std::uint32_t flags : {0u, kMapped + 0u}) {
      auto made = context->alloc(kMiB + 40, {.extent_bytes = extent, .flags = flags});
      if (made.code() == Code::unsupported) {
        continue;
      }
      ASSERT_TRUE(made.ok()) << made.message();
      ASSERT_TRUE(write_pattern(*made, 5).ok());
      auto model = bytes_of(*made);
      for (int round = 0; round < 40; ++round) {
        const std::uint64_t row_bytes = 1 + random() % 9000;
        const std::uint64_t count = 1 + random() % 12;
        const std::uint64_t to = random() % (model.size() - count * row_bytes);
        std::vector<std::uint64_t> offsets(count);
        for (std::uint64_t& offset : offsets) {
          offset = random() % (model.size() - row_bytes);
        }
        const bool overlap = std::any_of(offsets.begin(), offsets.end(), [&](std::uint64_t at) {
          return at < to + count * row_bytes && to < at + row_bytes;
        });
        if (random() % 2 == 0) {
          const std::uint64_t part = random() % model.size();
          ASSERT_TRUE(made->evict(part, model.size() - part).ok());
        }
        const Status status = context->gather_into(
            {made->handle(), 0, row_bytes, 1, offsets.data(), count}, made->handle(), to);
        ASSERT_EQ(status.code(), overlap ? Code::invalid_argument : Code::ok) << status.message();
        (overlap ? refused : done) += 1;
        for (std::uint64_t i = 0; !overlap && i < count; ++i) {
          std::memcpy(model.data() + to + i * row_bytes, model.data() + offsets[i], row_bytes);
        }
        ASSERT_EQ(bytes_of(*made), model) << "round " << round << " extents " << extent;
      }
    }
  }
  EXPECT_GT(done, 20);
  EXPECT_GT(refused, 20);
}

FOUND_TEST(Aliases, L11_memory_of_the_same_buffer_that_overlaps_is_refused_and_nothing_is_copied) {
  auto context = make("16M");
  for (const std::uint64_t extent : {std::uint64_t{64} << 10, 4 * kMiB}) {
    const Buffer table = below(*context, 4 * kMiB, 1, {.extent_bytes = extent});
    const auto before = bytes_of(table);
    auto view = table.acquire(kWrite, kMiB, kMiB);
    ASSERT_TRUE(view.ok()) << view.message();
    std::byte* const inside = view->data();  // Row kMiB / kRow of the table.
    const std::vector<std::uint64_t> apart = {1, 2, 3}, meets = {1, kMiB / kRow + 2, 3};
    EXPECT_EQ(table.gather(kRow, meets, inside).code(), Code::invalid_argument);
    EXPECT_EQ(table.scatter(kRow, meets, inside).code(), Code::invalid_argument);
    EXPECT_EQ(table.read(kMiB - 100, inside, 200).code(), Code::invalid_argument);
    EXPECT_EQ(table.write(kMiB + 100, inside, 200).code(), Code::invalid_argument);
    const Status said = table.read(kMiB, inside, 1);
    EXPECT_EQ(said.code(), Code::invalid_argument);
    EXPECT_SAYS(said, "overlap");
    EXPECT_EQ(bytes_of(table), before);
    // The list of rows is in the target, or in the range that is written.
    auto* const list = reinterpret_cast<std::uint64_t*>(inside);
    std::copy(apart.begin(), apart.end(), list);
    EXPECT_EQ(context->gather({table.handle(), 0, kRow, 0, list, 3}, inside).code(),
              Code::invalid_argument);
    EXPECT_EQ(
        context->gather_into({table.handle(), 0, kRow, 0, list, 3}, table.handle(), kMiB).code(),
        Code::invalid_argument);
    list[1] = kMiB / kRow;
    std::vector<std::byte> rows(3 * kRow);
    EXPECT_EQ(context->scatter({table.handle(), 0, kRow, 0, list, 3}, rows.data()).code(),
              Code::invalid_argument);
    // Ranges that do not overlap are copied.
    ASSERT_TRUE(table.gather(kRow, apart, inside).ok());
    EXPECT_EQ(std::memcmp(inside, before.data() + kRow, 3 * kRow), 0);
    ASSERT_TRUE(table.scatter(kRow, std::vector<std::uint64_t>{9, 8, 7}, inside).ok());
    ASSERT_TRUE(table.read(0, inside, kRow).ok());
    ASSERT_TRUE(table.write(2 * kRow, inside, kRow).ok());
    view->release();
    auto after = before;
    std::memcpy(after.data() + 9 * kRow, before.data() + kRow, kRow);
    std::memcpy(after.data() + 8 * kRow, before.data() + 2 * kRow, kRow);
    std::memcpy(after.data() + 7 * kRow, before.data() + 3 * kRow, kRow);
    std::memcpy(after.data() + kMiB, before.data(), kRow);
    std::memcpy(after.data() + kMiB + kRow, before.data() + 2 * kRow, 2 * kRow);
    std::memcpy(after.data() + 2 * kRow, before.data(), kRow);
    EXPECT_EQ(bytes_of(table), after);
  }
}

FOUND_TEST(Aliases, L11_memory_of_a_mapped_buffer_that_overlaps_is_refused) {
  auto context = make("16M");
  auto made = context->alloc(kMiB, {.flags = kMapped});
  if (made.code() == Code::unsupported) {
    GTEST_SKIP() << made.message();
  }
  ASSERT_TRUE(made.ok()) << made.message();
  ASSERT_TRUE(write_pattern(*made, 1).ok());
  std::byte* const at = *made->address();
  const std::vector<std::uint64_t> rows = {0, 1};
  EXPECT_EQ(made->gather(kRow, rows, at + kRow).code(), Code::invalid_argument);
  EXPECT_EQ(made->scatter(kRow, rows, at + kRow).code(), Code::invalid_argument);
  EXPECT_EQ(made->read(0, at + 100, 200).code(), Code::invalid_argument);
  EXPECT_EQ(made->write(0, at + 100, 200).code(), Code::invalid_argument);
  EXPECT_EQ(context->move_bytes(made->handle(), 0, made->handle(), kMiB / 2, 4096).code(),
            Code::invalid_argument);
  ASSERT_TRUE(made->evict().ok());
  EXPECT_TRUE(made->gather(kRow, rows, at + 2 * kRow).ok());
  EXPECT_TRUE(made->read(0, at + 1000, 1000).ok());
}

FOUND_TEST(Aliases, L11_lists_that_name_bytes_several_times_keep_what_one_range_reads) {
  auto context = make("16M");
  for (const bool evicted : {true, false}) {
    for (const std::uint64_t extent : {std::uint64_t{64} << 10, 2 * kMiB}) {
      const Buffer table = below(*context, 2 * kMiB, 1, {.extent_bytes = extent});
      const auto before = bytes_of(table);
      if (evicted) {
        ASSERT_TRUE(table.evict().ok());
      }
      const std::vector<Access> list = {table.range(0, 0, kDiscard), table.range(64, 4096, kRead),
                                        table.range(0, 2 * kMiB, kWrite),
                                        table.range(0, 2 * kMiB, kWrite)};
      std::vector<ViewRecord> views(list.size());
      ASSERT_TRUE(context->acquire(list, Timeout::seconds(20), views).ok());
      EXPECT_EQ(std::memcmp(views[1].data, before.data() + 64, 4096), 0);
      EXPECT_EQ(std::memcmp(views[3].data, before.data(), before.size()), 0);
      EXPECT_EQ(views[2].data, views[3].data);
      // The same view is in the list twice, and is released once.
      const std::vector<ViewRecord> twice = {views[0], views[1], views[1], views[2], views[3]};
      EXPECT_EQ(context->release(twice).code(), Code::invalid_argument);
      EXPECT_EQ(context->stats().dram_pinned, 0u);
      EXPECT_EQ(bytes_of(table), before);
      const std::vector<Access> reads = {table.range(), table.range(), table.range(100, 5000)};
      EXPECT_TRUE(context->evict(reads).ok());
      EXPECT_TRUE(context->prefetch(reads).ok());
      EXPECT_TRUE(context->migrate(reads, {Kind::dram, 0}).ok());
      EXPECT_TRUE(context->advise(reads, Advice::cold).ok());
      EXPECT_EQ(bytes_of(table), before);
      const std::vector<Access> gone = {table.range(100, 200), table.range(150, 100),
                                        table.range(100, 200)};
      EXPECT_TRUE(context->advise(gone, Advice::dont_need).ok());
      auto after = before;
      std::fill_n(after.begin() + 100, 200, std::byte{0});
      EXPECT_EQ(bytes_of(table), after);
    }
  }
}

// ---- Lists that change during the call ---------------------------------------------------------

/// Switches a word between two values until it is destroyed.
class Flipper {
 public:
  Flipper(std::uint64_t& word, std::uint64_t good, std::uint64_t bad)
      : thread_([this, &word, good, bad] {
          while (!stop_.load(std::memory_order_relaxed)) {
            __atomic_store_n(&word, bad, __ATOMIC_RELAXED);
            __atomic_store_n(&word, good, __ATOMIC_RELAXED);
          }
        }) {}
  ~Flipper() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

FOUND_TEST(Aliases, L11_a_list_of_rows_changes_during_the_call_then_rows_are_right_or_refused) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the test is a race: a thread changes what the call reads";
  }
  auto context = make("32M");
  const Buffer table = below(*context, 4 * kMiB, 1);
  auto out = context->alloc(4 * kMiB);
  ASSERT_TRUE(out.ok());
  std::vector<std::uint64_t> index(2000);
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    index[i] = i;
  }
  std::vector<std::byte> bytes(index.size() * kRow);
  // Far beyond the buffer, where nothing is mapped, and just beyond it.
  for (const std::uint64_t bad : {std::uint64_t{1} << 52, 4 * kMiB / kRow}) {
    const Flipper flipper(index[1999], 1999, bad);
    for (int round = 0; round < 60; ++round) {
      if (round % 4 == 0) {
        ASSERT_TRUE(table.evict().ok());
      }
      Status status;
      switch (round % 3) {
        case 0:
          status = table.gather(kRow, index, bytes.data());
          break;
        case 1:
          status = context->gather_into(table.rows(kRow, index), out->handle());
          break;
        default:
          status = table.scatter(kRow, index, bytes.data());
      }
      ASSERT_TRUE(status.ok() || status.code() == Code::invalid_argument) << status.message();
      if (status.ok() && round % 3 == 0) {
        auto last =
            std::span(reinterpret_cast<const std::uint64_t*>(bytes.data()), bytes.size() / 8);
        ASSERT_EQ(wrong(last, 1), 0u);
      } else if (!status.ok()) {
        ASSERT_TRUE(table.gather(kRow, std::vector<std::uint64_t>(1, 0), bytes.data()).ok());
        auto all = table.acquire(kRead);
        std::memcpy(bytes.data(), all->data(), bytes.size());
      }
    }
  }
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  auto all = table.acquire(kRead);
  EXPECT_EQ(wrong(all->as<std::uint64_t>(), 1), 0u);
}

FOUND_TEST(Aliases, L11_a_range_changes_during_the_call_then_the_view_is_inside_its_buffer) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the test is a race: a thread changes what the call reads";
  }
  auto context = make("32M");
  Buffer table = below(*context, 4 * kMiB, 1, {.extent_bytes = 64 << 10});
  std::byte* first = nullptr;
  {
    auto all = table.acquire(kRead);
    ASSERT_TRUE(all.ok());
    first = all->data();
  }
  for (const std::uint64_t bad : {std::uint64_t{1} << 50, 4 * kMiB - 8}) {
    Access access = table.range(0, 4096);
    const Flipper flipper(access.offset, 0, bad);
    for (int round = 0; round < 20'000; ++round) {
      ViewRecord view;
      const Status status = context->acquire({&access, 1}, Timeout::seconds(20), {&view, 1});
      ASSERT_TRUE(status.ok() || status.code() == Code::invalid_argument) << status.message();
      if (!status.ok()) {
        continue;
      }
      const auto at = static_cast<std::uint64_t>(static_cast<std::byte*>(view.data) - first);
      const bool inside = at <= 4 * kMiB && view.length <= 4 * kMiB - at;
      EXPECT_TRUE(context->release({&view, 1}).ok());
      ASSERT_TRUE(inside) << "offset " << at;
    }
  }
  EXPECT_EQ(context->stats().dram_pinned, 0u);
}

}  // namespace
}  // namespace tiermem::test
