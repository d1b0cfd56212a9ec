// Copies of lists, out of buffers and into them: real memory, a real directory. Each range holds
// unique words, so bytes from another place or older bytes are detected.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api/table_on_disk.hpp"
#include "support/damage.hpp"
#include "support/page_bytes.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

/// Number of words that differ from the pattern, from byte `at` of the buffer on.
std::uint64_t wrong_in(const PageBytes& memory, std::uint64_t offset, std::uint64_t bytes,
                       std::uint64_t seed, std::uint64_t at) {
  std::vector<std::uint64_t> words(bytes / 8);
  std::memcpy(words.data(), memory.part(offset, bytes), bytes);
  return wrong(words, seed, at / 8);
}

class CopyTest : public TableOnDisk {
 protected:
  static CopyItem out(const Buffer& buffer, std::uint64_t offset, std::byte* to,
                      std::uint64_t bytes) {
    return {buffer.handle(), offset, to, bytes, kRead, Code::internal};
  }
};

TEST_F(CopyTest, without_promoting_memory_keeps_what_it_has) {
  auto context = make("16M");
  const Buffer one = below(*context, 32 * kMiB, 1), two = below(*context, 8 * kMiB, 2);
  PageBytes memory(40 * kMiB);
  const Stats before = context->stats();
  std::vector<CopyItem> list = {out(one, 0, memory.data(), 32 * kMiB),
                                out(two, 0, memory.data() + 32 * kMiB, 8 * kMiB)};
  const Status copied = context->copy(list, kNoPromote);
  ASSERT_TRUE(copied.ok()) << copied.message();
  EXPECT_EQ(wrong_in(memory, 0, 32 * kMiB, 1, 0), 0u);
  EXPECT_EQ(wrong_in(memory, 32 * kMiB, 8 * kMiB, 2, 0), 0u);
  EXPECT_EQ(list[0].code, Code::ok);
  const Stats after = context->stats();
  EXPECT_EQ(after.promoted, before.promoted);
  EXPECT_EQ(after.gather_bytes - before.gather_bytes, 40 * kMiB);
  EXPECT_EQ(one.info()->resident + two.info()->resident, 0u);
  EXPECT_LE(after.dram_used, before.dram_used);  // Not even staging.
  EXPECT_EQ(after.dram_pinned, 0u);
}

TEST_F(CopyTest, promoting_copies_leave_what_fits_in_memory) {
  auto context = make("16M");
  const Buffer one = below(*context, 4 * kMiB, 1);
  PageBytes memory(4 * kMiB);
  CopyItem item = out(one, 0, memory.data(), 4 * kMiB);
  ASSERT_TRUE(context->copy({&item, 1}).ok());
  EXPECT_EQ(wrong_in(memory, 0, 4 * kMiB, 1, 0), 0u);
  EXPECT_EQ(one.info()->resident, 4 * kMiB);
}

// Any offset, length and alignment, in buffers of each shape, partly in memory, partly dirty there.
TEST_F(CopyTest, random_ranges_beside_a_model) {
  auto context = make("16M");
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<Buffer> buffers;
  buffers.push_back(below(*context, 24 * kMiB, 1));
  buffers.push_back(below(*context, 3 * kMiB, 2, {.extent_bytes = 4096}));
  buffers.push_back(below(*context, 5 * kMiB, 3, {.advice = Advice::random}));
  buffers.push_back(below(*context, 5 * kMiB, 4, {.flags = kNoChecksum}));
  buffers.push_back(below(*context, 6 * kMiB, 5, {.flags = kMapped}));
  buffers.push_back(below(*context, 6 * kMiB, 6, {.flags = kIsolated}));
  std::vector<std::vector<std::byte>> model;
  for (const Buffer& buffer : buffers) {
    model.emplace_back(buffer.size());
    ASSERT_TRUE(buffer.read(0, model.back().data(), buffer.size()).ok());
    ASSERT_TRUE(buffer.evict().ok());
  }
  PageBytes memory(16 * kMiB);
  for (int turn = 0; turn < 300; ++turn) {
    std::vector<CopyItem> list;
    std::vector<std::size_t> of;
    const bool writes = turn % 4 == 3;
    for (std::uint64_t i = 0; i < 1 + random() % 6; ++i) {
      // Items that write name one buffer each, so that their order does not matter.
      const std::size_t which = writes ? (turn + i) % buffers.size() : random() % buffers.size();
      const std::uint64_t bytes = buffers[which].size();
      const std::uint64_t unit = random() % 3 == 0 ? 1 : random() % 2 == 0 ? 4096 : 65536;
      const std::uint64_t offset = random() % bytes / unit * unit;
      const std::uint64_t length =
          std::min(bytes - offset, 1 + random() % (random() % 2 == 0 ? 70'000 : 2'600'000));
      std::byte* const at = memory.data() + i * 2'654'208 + (random() % 3 == 0 ? random() % 64 : 0);
      list.push_back(
          {buffers[which].handle(), offset, at, length, writes ? kWrite : kRead, Code::internal});
      of.push_back(which);
      for (std::uint64_t b = 0; writes && b < length; b += 8) {
        const std::uint64_t word = random();
        std::memcpy(at + b, &word, std::min<std::uint64_t>(8, length - b));
      }
    }
    Op op;
    const bool later = random() % 2 == 0;
    Status status = context->copy(list, random() % 4 == 0 ? 0u : std::uint32_t{kNoPromote},
                                  Timeout::seconds(60), later ? &op : nullptr);
    if (later && status.ok()) {
      status = op.wait();
    }
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const CopyItem& item = list[i];
      ASSERT_EQ(item.code, Code::ok);
      std::byte* const bytes = model[of[i]].data() + item.offset;
      if (writes) {
        std::memcpy(bytes, item.memory, item.bytes);
      } else {
        ASSERT_EQ(std::memcmp(item.memory, bytes, item.bytes), 0)
            << "turn " << turn << " item " << i << " buffer " << of[i] << " offset " << item.offset
            << " bytes " << item.bytes;
      }
    }
    if (turn % 8 == 0) {
      ASSERT_TRUE(buffers[random() % buffers.size()].evict().ok());
    }
  }
  EXPECT_EQ(context->stats().dram_pinned, 0u);
}

TEST_F(CopyTest, files_are_read_into_the_programs_memory) {
  auto context = make("16M");
  const std::string path = directory_.path() + "/file";
  const std::uint64_t bytes = 24 * kMiB + 5000;
  std::vector<std::uint64_t> words(bytes / 8);
  fill(words, 7);
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_EQ(::write(fd, words.data(), bytes), static_cast<ssize_t>(bytes));
  ASSERT_EQ(::fsync(fd), 0);
  ::close(fd);
  auto file = context->adopt_file(path.c_str(), 1000);
  ASSERT_TRUE(file.ok()) << file.message();
  PageBytes memory(32 * kMiB);
  for (const std::uint64_t target : {std::uint64_t{1000}, std::uint64_t{0}}) {
    // With 1000 the blocks of the file are at pages of the memory.
    std::memset(memory.data(), 0, 32 * kMiB);
    CopyItem item = out(*file, 0, memory.data() + target, bytes - 1000);
    const Status copied = context->copy({&item, 1}, kNoPromote);
    ASSERT_TRUE(copied.ok()) << copied.message();
    EXPECT_EQ(wrong_in(memory, target, bytes - 1000, 7, 1000), 0u);
    EXPECT_EQ(memory.data()[target + bytes - 1000], std::byte{0});
  }
  EXPECT_EQ(context->stats().promoted, 0u);
}

TEST_F(CopyTest, damaged_blocks_are_lost_by_item) {
  auto context = make("16M");
  Buffer good = below(*context, 2 * kMiB, 1), bad = below(*context, 4 * kMiB, 2);
  flip_word_on_disk(directory_.path(), word_at(2, 100'000));
  PageBytes memory(8 * kMiB);
  std::vector<CopyItem> list = {out(good, 0, memory.data(), 2 * kMiB),
                                out(bad, 0, memory.data() + 2 * kMiB, 4 * kMiB),
                                out(bad, 2 * kMiB, memory.data() + 6 * kMiB, 2 * kMiB)};
  const Status copied = context->copy(list, kNoPromote);
  EXPECT_EQ(copied.code(), Code::lost) << copied.message();
  EXPECT_NE(std::string(copied.message()).find("item 1"), std::string::npos) << copied.message();
  EXPECT_EQ(list[0].code, Code::ok);
  EXPECT_EQ(list[1].code, Code::lost);
  EXPECT_EQ(list[2].code, Code::ok);
  EXPECT_EQ(wrong_in(memory, 0, 2 * kMiB, 1, 0), 0u);
  EXPECT_EQ(wrong_in(memory, 6 * kMiB, 2 * kMiB, 2, 2 * kMiB), 0u);
}

TEST_F(CopyTest, wrong_items_are_refused_and_the_others_copied) {
  auto context = make("16M");
  Buffer one = below(*context, kMiB, 1), freed = below(*context, kMiB, 2);
  const Handle stale = freed.handle();
  ASSERT_TRUE(context->free(freed.detach()).ok());
  PageBytes memory(8 * kMiB);
  std::vector<CopyItem> list = {
      out(one, 0, memory.data(), kMiB),
      {stale, 0, memory.data() + kMiB, kMiB, kRead, Code::ok},
      out(one, kMiB - 10, memory.data() + kMiB, 11),
      out(one, 0, nullptr, 5),
      {one.handle(), 0, memory.data() + kMiB, 5, kDiscard, Code::ok},
      out(one, 0, nullptr, 0),
      out(one, ~std::uint64_t{0}, memory.data() + kMiB, ~std::uint64_t{0}),
  };
  for (const std::uint32_t flags : {0u, std::uint32_t{kNoPromote}}) {
    EXPECT_EQ(context->copy(list, flags).code(), Code::stale_handle);
    const Code codes[] = {Code::ok,
                          Code::stale_handle,
                          Code::invalid_argument,
                          Code::invalid_argument,
                          Code::invalid_argument,
                          Code::ok,
                          Code::invalid_argument};
    for (std::size_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(list[i].code, codes[i]) << i;
    }
    EXPECT_EQ(wrong_in(memory, 0, kMiB, 1, 0), 0u);
    ASSERT_TRUE(one.evict().ok());
  }
  EXPECT_EQ(context->copy(list, 2).code(), Code::invalid_argument);
  EXPECT_EQ(context->copy({}, kNoPromote).code(), Code::ok);
}

TEST_F(CopyTest, timeout_of_zero_never_waits) {
  auto context = make("16M");
  const Buffer there = below(*context, kMiB, 1), away = below(*context, kMiB, 2);
  ASSERT_TRUE(there.acquire(kRead).ok());
  PageBytes memory(2 * kMiB);
  std::vector<CopyItem> list = {out(there, 0, memory.data(), kMiB),
                                out(away, 0, memory.data() + kMiB, kMiB)};
  for (const std::uint32_t flags : {0u, std::uint32_t{kNoPromote}}) {
    EXPECT_EQ(context->copy(list, flags, Timeout::none()).code(), Code::busy);
    EXPECT_EQ(list[0].code, Code::ok);
    EXPECT_EQ(list[1].code, Code::busy);
    // As an operation it ends at once, and `busy` would say that it goes on.
    Op op;
    ASSERT_TRUE(context->copy(list, flags, Timeout::none(), &op).ok());
    Status ended = op.poll();
    while (ended.code() == Code::busy) {
      ended = op.poll();
    }
    EXPECT_EQ(ended.code(), Code::timed_out);
    EXPECT_EQ(op.handle(), 0u);  // Consumed: it would be under way otherwise.
    EXPECT_EQ(list[1].code, Code::busy);
  }
}

TEST_F(CopyTest, target_in_the_range_itself_is_refused_and_in_a_mapped_buffer_filled) {
  auto context = make("32M");
  Buffer mapped = below(*context, 4 * kMiB, 1, {.flags = kMapped});
  const Buffer plain = below(*context, 4 * kMiB, 2);
  auto* const address = *mapped.address();
  CopyItem item = out(mapped, 0, address + 4096, kMiB);
  EXPECT_EQ(context->copy({&item, 1}, kNoPromote).code(), Code::invalid_argument);
  // The target is absent: it comes by touches of the calling thread.
  item = out(plain, 0, address, 4 * kMiB);
  const Status copied = context->copy({&item, 1}, kNoPromote);
  ASSERT_TRUE(copied.ok()) << copied.message();
  EXPECT_EQ(wrong_words(mapped, 2), 0u);
}

TEST_F(CopyTest, target_may_have_no_pages_yet) {
  auto context = make("16M");
  const Buffer one = below(*context, 8 * kMiB, 1);
  PageBytes memory(8 * kMiB);
  ASSERT_EQ(madvise(memory.data(), 8 * kMiB, MADV_DONTNEED), 0);
  CopyItem item = out(one, 0, memory.data(), 8 * kMiB);
  ASSERT_TRUE(context->copy({&item, 1}, kNoPromote).ok());
  EXPECT_EQ(wrong_in(memory, 0, 8 * kMiB, 1, 0), 0u);
}

TEST_F(CopyTest, threads_copy_beside_writers_of_other_bytes) {
  auto context = make("16M");
  Buffer table = below(*context, 48 * kMiB, 1);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> bad{0};
  // The second half of each extent is written, and the first half read.
  std::thread writer([&] {
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> words(kMiB / 8);
    while (!stop) {
      const std::uint64_t at = random() % 24 * 2 * kMiB + kMiB;
      fill(words, 2, at / 8);
      bad += table.write(at, words.data(), kMiB).ok() ? 0 : 1;
    }
  });
  std::vector<std::thread> readers;
  for (unsigned r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      std::mt19937_64 random(10 + r);
      PageBytes memory(4 * kMiB);
      for (int turn = 0; turn < 40; ++turn) {
        std::vector<CopyItem> list;
        for (std::uint64_t i = 0; i < 4; ++i) {
          list.push_back(out(table, random() % 24 * 2 * kMiB + random() % 2 * 4096,
                             memory.data() + i * kMiB, kMiB - 8192 + random() % 2 * 64));
        }
        bad += context->copy(list, turn % 4 == 0 ? 0u : std::uint32_t{kNoPromote}).ok() ? 0 : 1;
        for (std::uint64_t i = 0; i < 4; ++i) {
          bad += wrong_in(memory, i * kMiB, list[i].bytes, 1, list[i].offset);
        }
      }
    });
  }
  for (std::thread& reader : readers) {
    reader.join();
  }
  stop = true;
  writer.join();
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(context->stats().dram_pinned, 0u);
}

TEST_F(CopyTest, operations_run_side_by_side_and_may_be_cancelled) {
  auto context = make("16M");
  const Buffer table = below(*context, 64 * kMiB, 1);
  PageBytes memory(128 * kMiB);
  std::vector<CopyItem> list;
  std::vector<Op> ops(8);
  for (std::uint64_t i = 0; i < 8; ++i) {
    list.push_back(out(table, i * 8 * kMiB, memory.data() + i * 8 * kMiB, 8 * kMiB));
  }
  for (std::size_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(context->copy({&list[i], 1}, kNoPromote, Timeout::forever(), &ops[i]).ok());
  }
  ASSERT_TRUE(ops[3].cancel().ok());
  for (std::size_t i = 0; i < 8; ++i) {
    const Status ended = ops[i].wait();
    EXPECT_TRUE(ended.ok() || (i == 3 && ended.code() == Code::cancelled)) << ended.message();
    EXPECT_EQ(list[i].code, ended.code());
    if (ended.ok()) {
      EXPECT_EQ(wrong_in(memory, i * 8 * kMiB, 8 * kMiB, 1, i * 8 * kMiB), 0u);
    }
  }
}

// Most of them end before a thread begins with them.
TEST_F(CopyTest, items_of_a_cancelled_operation_say_so) {
  auto context = make("16M");
  const Buffer table = below(*context, 64 * kMiB, 1);
  PageBytes memory(64 * kMiB);
  std::vector<CopyItem> list;
  std::vector<Op> ops(32);
  for (std::uint64_t i = 0; i < ops.size(); ++i) {
    list.push_back(out(table, i * 2 * kMiB, memory.data() + i * 2 * kMiB, 2 * kMiB));
    list.back().code = Code::ok;
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ASSERT_TRUE(context->copy({&list[i], 1}, 0, Timeout::forever(), &ops[i]).ok());
  }
  for (Op& op : ops) {
    ASSERT_TRUE(op.cancel().ok());
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {
    EXPECT_EQ(list[i].code, ops[i].wait().code());
  }
}

// After the call, no device may write to the memory.
void expect_untouched(PageBytes& memory) {
  std::memset(memory.data(), 0xEE, memory.size());
  // If a device still had a read, it would end within this time.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // Each byte is equal to the next: one call, which is quick in any build.
  EXPECT_TRUE(memory.data()[0] == std::byte{0xEE} &&
              std::memcmp(memory.data(), memory.data() + 1, memory.size() - 1) == 0);
}

TEST_F(CopyTest, late_call_leaves_the_memory_to_its_owner) {
  auto context = make("16M");
  const Buffer table = below(*context, 64 * kMiB, 1);
  PageBytes memory(64 * kMiB);
  bool late = false;
  for (std::int64_t ns = 20'000; ns < 40'000'000; ns *= 2) {
    CopyItem item = out(table, 0, memory.data(), 64 * kMiB);
    const Status copied = context->copy({&item, 1}, kNoPromote, Timeout{ns});
    EXPECT_TRUE(copied.ok() || copied.code() == Code::timed_out) << copied.message();
    late = late || copied.code() == Code::timed_out;
    expect_untouched(memory);
  }
  EXPECT_TRUE(late);
}

TEST_F(CopyTest, context_closed_under_a_copy_leaves_the_memory_to_its_owner) {
  auto context = make("16M");
  Buffer table = below(*context, 64 * kMiB, 1);
  std::atomic<int> copying{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      PageBytes memory(16 * kMiB);
      Status copied;
      while (copied.ok()) {
        CopyItem item = out(table, 8 * kMiB, memory.data(), 16 * kMiB);
        ++copying;
        copied = context->copy({&item, 1}, kNoPromote);
      }
      EXPECT_EQ(copied.code(), Code::shut_down) << copied.message();
      expect_untouched(memory);
    });
  }
  while (copying < 6) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(context->close(true).ok());
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace tiermem::test
