// Mapped buffers: plain memory that is larger than DRAM. The tests check every byte through the
// pointer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/locked_pages.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "support/threads.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

struct MappedBuffers : ::testing::Test {
  void SetUp() override { open("dram=16M; nvme=" + directory.path() + ":512M"); }
  void open(const std::string& tiers) {
    auto made = Context::create(tiers);
    ASSERT_TRUE(made.ok()) << made.message();
    context = std::move(made).value();
    auto probe = context->alloc(4096, {.flags = kMapped});
    if (probe.code() == Code::unsupported) {
      GTEST_SKIP() << probe.message();
    }
  }
  Buffer mapped(std::uint64_t bytes, std::uint64_t extent = 0, std::uint32_t flags = 0) {
    auto made = context->alloc(
        bytes, {.extent_bytes = extent, .flags = kMapped | flags, .label = "mapped"});
    EXPECT_TRUE(made.ok()) << made.message();
    return made.ok() ? std::move(made).value() : Buffer();
  }
  static std::span<std::uint64_t> words(Buffer& buffer) {
    auto address = buffer.address();
    EXPECT_TRUE(address.ok()) << address.message();
    return {reinterpret_cast<std::uint64_t*>(address.ok() ? *address : nullptr),
            address.ok() ? buffer.size() / 8 : 0};
  }
  Directory directory;
  std::unique_ptr<Context> context;
};

TEST_F(MappedBuffers, four_times_the_memory_is_read_and_written_through_the_pointer) {
  Buffer buffer = mapped(64 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 1);
  EXPECT_EQ(wrong(all, 1), 0u);
  EXPECT_EQ(wrong(all, 1), 0u);
  const Stats stats = context->stats();
  EXPECT_LE(stats.dram_used, 16 * kMiB);
  EXPECT_GE(stats.demoted, 48 * kMiB);
  EXPECT_GT(stats.faults, 0u);
  EXPECT_EQ(stats.poisoned_touches, 0u);
  auto info = buffer.info();
  ASSERT_TRUE(info.ok());
  EXPECT_LE(info->resident, 16 * kMiB);
}

bool machine_is_crowded() {
  std::ifstream file("/proc/loadavg");
  std::string word;
  unsigned threads = 0;
  file >> word >> word >> word >> threads;
  return threads > std::thread::hardware_concurrency();
}

TEST_F(MappedBuffers, a_touch_that_waits_keeps_its_processor_awake_unless_told_not_to) {
  context.reset();
  open("dram=16M; busy_poll=0; nvme=" + directory.path() + ":512M");
  EXPECT_TRUE(comes_true([] { return thread_named("tiermem-mover") != 0; }));
  EXPECT_EQ(thread_named("tiermem-poll"), 0u);
  context.reset();
  open("dram=16M; busy_poll=1000000; nvme=" + directory.path() + ":512M");
  Buffer buffer = mapped(kMiB);
  words(buffer)[0] = 1;
  if (thread_named("tiermem-fault") != 0) {
    GTEST_SKIP() << "no io_uring: faults have a thread of their own";
  }
  ASSERT_TRUE(comes_true([] { return thread_named("tiermem-poll") != 0; }));
  const std::uint32_t spinner = thread_named("tiermem-poll");
  const std::int64_t before = processor_time(spinner);
  int quiet = 0;  // Consecutive rounds in which no thread of the machine waited for a processor.
  const bool spun = comes_true([&] {
    EXPECT_TRUE(buffer.evict().ok());
    quiet = machine_is_crowded() ? 0 : quiet + 1;
    return words(buffer)[0] == 1 && processor_time(spinner) > before + 2'000'000;
  });
  if (!spun && quiet < 1000) {
    GTEST_SKIP() << "the machine had no processor to spare";
  }
  EXPECT_TRUE(spun);
}

TEST_F(MappedBuffers, the_address_stays_and_is_aligned) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{4097}, 3 * kMiB, 64 * kMiB}) {
    Buffer buffer = mapped(bytes);
    auto address = buffer.address();
    ASSERT_TRUE(address.ok());
    EXPECT_EQ(reinterpret_cast<std::uint64_t>(*address) % 4096, 0u);
    (*address)[bytes - 1] = std::byte{7};
    const Status evicted = buffer.evict();
    ASSERT_TRUE(evicted.ok()) << evicted.message();
    EXPECT_EQ(*buffer.address(), *address);
    EXPECT_EQ((*address)[bytes - 1], std::byte{7});
    EXPECT_EQ(bytes > 1 ? (*address)[0] : std::byte{0}, std::byte{0});
  }
}

TEST_F(MappedBuffers, what_was_never_written_is_zero) {
  Buffer dirty = mapped(32 * kMiB);
  fill(words(dirty), 2);
  dirty.reset();
  Buffer buffer = mapped(48 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](std::uint64_t w) { return w == 0; }));
}

// Touches of resident extents are not seen, so misses must tell which extents are hot. Without
// that, 20 % of the touches miss here, and otherwise 10 to 12 %.
TEST_F(MappedBuffers, hot_extents_stay_while_three_times_as_many_cold_ones_are_touched) {
  constexpr std::uint32_t kHot = 24, kAll = 96, kTouches = 6000;
  constexpr std::uint64_t kExtent = 512 << 10;  // Too large to be in parts.
  context.reset();
  open("dram=24M; nvme=" + directory.path() + ":96M");
  Buffer buffer = mapped(kAll * kExtent, kExtent);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 1);
  std::mt19937 random(5);
  std::uint64_t before = 0, sum = 0;
  for (std::uint32_t i = 0; i < kTouches; ++i) {
    if (i == kTouches / 2) {
      before = context->stats().promoted;
    }
    const std::uint32_t extent =
        random() % 10 != 0 ? random() % kHot : kHot + random() % (kAll - kHot);
    sum += all[extent * (kExtent / sizeof(all[0]))];
  }
  EXPECT_NE(sum, 0u);
  const std::uint64_t misses = (context->stats().promoted - before) / kExtent;
  EXPECT_LE(misses, kTouches / 2 * 16 / 100);
}

// One page in four is hot. Extents give up their cold pages and keep the hot ones, written or not,
// and every page has what was written last.
TEST_F(MappedBuffers, hot_pages_stay_and_cold_pages_beside_them_leave) {
  constexpr std::uint32_t kPages = 8192, kWords = 512, kTouches = 120'000;
  context.reset();
  open("dram=16M; nvme=" + directory.path() + ":96M");
  Buffer buffer = mapped(kPages * kWords * sizeof(std::uint64_t), 64 << 10);
  const std::span<std::uint64_t> all = words(buffer);
  std::vector<std::uint64_t> expected(kPages, 0);
  std::mt19937 random(5);
  for (std::uint32_t page = 0; page < kPages; ++page) {
    all[page * kWords + page % kWords] = expected[page] = random();
  }
  for (std::uint32_t i = 0; i < kTouches; ++i) {
    const std::uint32_t page = random() % 10 != 0 ? random() % (kPages / 4) * 4 : random() % kPages;
    std::uint64_t& word = all[page * kWords + page % kWords];
    ASSERT_EQ(word, expected[page]) << "page " << page << ", touch " << i;
    if (random() % 4 == 0) {
      word = expected[page] = random();
    }
  }
  for (std::uint32_t page = 0; page < kPages; ++page) {
    ASSERT_EQ(all[page * kWords + page % kWords], expected[page]) << page;
  }
  const Stats stats = context->stats();
  EXPECT_LE(stats.dram_used, 16 * kMiB);
  EXPECT_EQ(stats.checksum_errors, 0u);
}

struct MappedSizes : MappedBuffers, ::testing::WithParamInterface<std::uint64_t> {};

// Each thread writes and checks pages of its own that are scattered over all extents.
TEST_P(MappedSizes, random_touches_of_many_threads_lose_nothing) {
  Buffer buffer = mapped(48 * kMiB, GetParam());
  const std::span<std::uint64_t> all = words(buffer);
  constexpr unsigned kThreads = 4;
  constexpr std::size_t kPage = 512;  // Words.
  std::atomic<std::uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 dice(t);
      std::vector<std::uint64_t> expected(all.size() / kPage / kThreads);
      // Each iteration reads from the disk.
      for (int i = 0; i < (GetParam() < 2 * kMiB ? 3000 : 500); ++i) {
        const std::size_t mine = dice() % expected.size();
        std::uint64_t& word = all[(mine * kThreads + t) * kPage + mine % kPage];
        bad += word != expected[mine] ? 1 : 0;
        word = expected[mine] = dice();
      }
      for (std::size_t mine = 0; mine < expected.size(); ++mine) {
        bad += all[(mine * kThreads + t) * kPage + mine % kPage] != expected[mine] ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad, 0u);
  EXPECT_LE(context->stats().dram_used, 16 * kMiB);
}

// Random touches read single pages. All of the memory is used for them, whatever is about to leave.
TEST_F(MappedBuffers, random_touches_fill_the_memory) {
  open("dram=256M; nvme=" + directory.path() + ":1G");
  Buffer buffer = mapped(512 * kMiB, 65536);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 6);
  std::atomic<std::uint64_t> bad{0};
  // At first whole extents leave for them.
  for (unsigned round = 0; round < 4; ++round) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 dice(2 * round + t);
        for (int i = 0; i < 2500; ++i) {
          const std::size_t at = dice() % all.size();
          bad += wrong(all.subspan(at, 1), 6, at);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    std::vector<unsigned char> pages(buffer.size() / 4096);
    ASSERT_EQ(::mincore(all.data(), buffer.size(), pages.data()), 0);
    const auto there = static_cast<std::uint64_t>(std::count_if(
        pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }));
    EXPECT_GE(there * 4096, 160 * kMiB) << round;
    EXPECT_LE(there * 4096, 256 * kMiB) << round;
  }
  EXPECT_EQ(bad, 0u);
}

// The touching thread continues as soon as its page is present, before the mover has ended the
// transfer.
TEST_P(MappedSizes, evicting_right_after_a_touch_is_never_busy) {
  Buffer buffer = mapped(4 * kMiB, GetParam());
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 8);
  std::uint64_t bad = 0, refused = 0;
  for (std::size_t i = 0; i < 400; ++i) {
    const Status evicted = buffer.evict();
    refused += evicted.ok() ? 0 : 1;
    const std::size_t at = i * 7919 * 512 % all.size();
    bad += wrong(all.subspan(at, 1), 8, at);
  }
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(refused, 0u);
}

// A column of a matrix, backwards: most touched pages were requested before.
TEST_F(MappedBuffers, steps_are_read_ahead) {
  for (const std::uint64_t extent : {std::uint64_t{65536}, 2 * kMiB}) {
    Buffer buffer = mapped(64 * kMiB, extent);
    const std::span<std::uint64_t> all = words(buffer);
    fill(all, 7);
    ASSERT_TRUE(buffer.evict().ok());
    const Stats before = context->stats();
    const std::size_t step =
        extent * 3 / 2 / 8 + 1;  // In words: another page of its extent each time.
    std::uint64_t touches = 0, bad = 0;
    for (std::size_t at = all.size() - 1; at > step; at -= step) {
      bad += wrong(all.subspan(at, 1), 7, at);
      ++touches;
    }
    EXPECT_EQ(bad, 0u);
    const Stats after = context->stats();
    EXPECT_GE(after.prefetched - before.prefetched, touches / 2 * 4096) << extent;
  }
}

// Like threads that take pieces of a loop in turns: extents in order, each entered anywhere.
TEST_F(MappedBuffers, a_scan_that_comes_into_extents_anywhere_is_read_ahead) {
  context = nullptr;
  open("dram=16M; extent=64K; nvme=" + directory.path() + ":512M");
  Buffer buffer = mapped(64 * kMiB, 65536);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 9);
  ASSERT_TRUE(buffer.evict().ok());
  const Stats before = context->stats();
  constexpr std::size_t kPageWords = 512, kPages = 16;
  std::minstd_rand random(1);
  std::uint64_t bad = 0;
  for (std::size_t extent = 0; extent < all.size(); extent += kPages * kPageWords) {
    const std::size_t first = 2 + random() % 14;
    for (std::size_t i = 0; i < kPages; ++i) {
      const std::size_t at = extent + (first + i) % kPages * kPageWords;
      bad += wrong(all.subspan(at, 1), 9, at);
    }
  }
  EXPECT_EQ(bad, 0u);
  // The touches themselves request this much. In some extents steps are detected; otherwise it
  // would be 25 MiB.
  EXPECT_LE(context->stats().promoted - before.promoted, 16 * kMiB);
}

// With four workers, the workers move the pages and not the mover.
TEST_F(MappedBuffers, several_workers_bring_what_several_threads_touch) {
  context.reset();
  open("dram=16M; workers=4; nvme=" + directory.path() + ":512M");
  constexpr std::size_t kPageWords = 512;
  Buffer buffer = mapped(64 * kMiB, 65536);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 6);
  std::atomic<std::uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      std::mt19937_64 random(number);
      for (int i = 0; i < 4000; ++i) {
        const std::size_t at = random() % (all.size() / kPageWords) * kPageWords;
        bad += wrong(all.subspan(at, kPageWords), 6, at);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad.load(), 0u);
  EXPECT_EQ(wrong(all, 6), 0u);
  EXPECT_LE(context->stats().dram_used, 16 * kMiB);
}

// The bytes leave while the program never stops writing them.
TEST_P(MappedSizes, a_running_writer_loses_no_write) {
  Buffer buffer = mapped(GetParam() * 2, GetParam());
  const std::span<std::uint64_t> all = words(buffer);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> rounds{0};
  std::thread writer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (std::size_t i = 0; i < all.size(); i += 256) {
        all[i] += 1;
      }
      ++rounds;
    }
  });
  int left = 0;
  const auto moved = [&] { return context->stats().recalled + context->stats().demoted; };
  for (int i = 0; i < 150 || (i < 10'000 && (rounds.load() < 3 || moved() == 0)); ++i) {
    if (i >= 150) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // The writer started late.
    }
    const Status status = i % 3 == 2 ? buffer.advise(Advice::cold) : buffer.evict();
    // Busy: a touch arrived at the same moment.
    EXPECT_TRUE(status.ok() || status.code() == Code::busy) << status.message();
    left += status.ok() ? 1 : 0;
  }
  stop = true;
  writer.join();
  EXPECT_GT(left, 0);
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < all.size(); i += 256) {
    bad += all[i] != rounds ? 1 : 0;
  }
  EXPECT_EQ(bad, 0u);
  EXPECT_GT(moved(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, MappedSizes, ::testing::Values(4096, 65536, 2 * kMiB, 4 * kMiB),
                         [](const auto& size) { return std::to_string(size.param / 1024) + "K"; });

TEST_F(MappedBuffers, only_what_has_changed_is_written_again) {
  Buffer buffer = mapped(8 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 3);
  ASSERT_TRUE(buffer.evict().ok());
  // A late touch may have recalled an extent during the first call.
  ASSERT_TRUE(buffer.evict().ok());
  const std::uint64_t before = context->stats().demoted;
  EXPECT_EQ(wrong(all, 3), 0u);
  all[1000] = word_at(3, 1000);
  ASSERT_TRUE(buffer.evict().ok());
  EXPECT_EQ(context->stats().demoted, before) << "nothing had changed";
  all[0] ^= 1;
  ASSERT_TRUE(buffer.evict().ok());
  EXPECT_LE(context->stats().demoted, before + 65536);
  EXPECT_EQ(all[0], word_at(3, 0) ^ 1);
}

TEST_F(MappedBuffers, a_view_holds_its_extents_where_they_are) {
  Buffer buffer = mapped(8 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 4);
  auto view = buffer.acquire(kRead, 2 * kMiB, 4096);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(static_cast<void*>(view->data()), static_cast<void*>(&all[2 * kMiB / 8]));
  EXPECT_EQ(buffer.evict().code(), Code::busy);
  EXPECT_EQ(wrong(view->as<std::uint64_t>(), 4, 2 * kMiB / 8), 0u);
  view->release();
  EXPECT_TRUE(buffer.evict().ok());
  EXPECT_EQ(wrong(all, 4), 0u);
}

TEST_F(MappedBuffers, discarded_views_and_plain_stores_meet) {
  Buffer buffer = mapped(32 * kMiB);
  ASSERT_TRUE(write_pattern(buffer, 5).ok());
  EXPECT_EQ(wrong(words(buffer), 5), 0u);
  fill(words(buffer), 6);
  EXPECT_EQ(wrong_words(buffer, 6), 0u);
}

TEST_F(MappedBuffers, what_is_given_up_reads_as_zeros) {
  Buffer buffer = mapped(8 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 7);
  ASSERT_TRUE(buffer.advise(Advice::dont_need).ok());
  EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](std::uint64_t w) { return w == 0; }));
}

// An extent of small pages: some are in memory and some in the slot.
TEST_F(MappedBuffers, pages_that_are_given_up_read_as_zeros_and_their_neighbours_stay) {
  context.reset();
  open("dram=64M; nvme=" + directory.path() + ":512M");
  constexpr std::uint64_t kPage = 4096, kWords = kPage / 8, kSize = 64 << 10;
  Buffer buffer = mapped(16 * kSize, kSize);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 7);
  ASSERT_TRUE(buffer.evict().ok());
  const auto touch = [&](std::uint64_t page) {
    EXPECT_EQ(all[page * kWords], word_at(7, page * kWords));
  };
  for (const std::uint64_t page : {1, 2, 6, 17, 18, 22}) {
    touch(page);
  }
  all[6 * kWords] = 70;
  // Gives up pages 2 to 4 of the first extent, and 2 to 15 of the second.
  ASSERT_TRUE(buffer.advise(Advice::dont_need, 0, 2 * kPage, 3 * kPage).ok());
  ASSERT_TRUE(buffer.advise(Advice::dont_need, 0, 18 * kPage, 14 * kPage).ok());
  const auto check = [&] {
    for (std::uint64_t page = 0; page < 64; ++page) {
      const bool zero = (page >= 2 && page < 5) || (page >= 18 && page < 32);
      for (std::uint64_t word = page * kWords; word < (page + 1) * kWords; ++word) {
        const std::uint64_t expected = zero ? 0 : word == 6 * kWords ? 70 : word_at(7, word);
        ASSERT_EQ(all[word], expected) << "page " << page;
      }
    }
  };
  check();
  ASSERT_TRUE(buffer.evict().ok());
  check();
  const Stats stats = context->stats();
  EXPECT_EQ(stats.poisoned_touches, 0u);
}

// The program empties pages without telling tiermem. They read as zeros, as in any anonymous
// mapping, and the extent can still leave and return.
TEST_F(MappedBuffers, pages_the_program_emptied_are_zero) {
  Buffer buffer = mapped(8 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 8);
  ASSERT_EQ(madvise(&all[512], 4096, MADV_DONTNEED), 0);
  EXPECT_EQ(all[512], 0u);
  EXPECT_EQ(all[1023], 0u);
  EXPECT_EQ(all[511], word_at(8, 511));
  EXPECT_EQ(all[1024], word_at(8, 1024));
  all[513] = 9;
  ASSERT_EQ(madvise(&all[2 * kMiB / 8], 2 * kMiB, MADV_DONTNEED), 0);  // A whole extent.
  ASSERT_EQ(madvise(&all[2048], 8192, MADV_DONTNEED), 0);
  const Status evicted = buffer.evict();  // Including the holes.
  EXPECT_TRUE(evicted.ok()) << evicted.message();
  EXPECT_EQ(context->stats().withdrawals_refused, 0u);
  EXPECT_EQ(all[2048] + all[2048 + 1023] + all[2 * kMiB / 8] + all[4 * kMiB / 8 - 1], 0u);
  EXPECT_EQ(all[2048 + 1024], word_at(8, 2048 + 1024));
  EXPECT_EQ(all[2047], word_at(8, 2047));
  EXPECT_EQ(all[4 * kMiB / 8], word_at(8, 4 * kMiB / 8));
  EXPECT_EQ(all[513], 9u);
  EXPECT_EQ(all[512], 0u);
  EXPECT_EQ(all[1024], word_at(8, 1024));
}

TEST_F(MappedBuffers, system_calls_reach_what_is_not_there) {
  Buffer buffer = mapped(32 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 10);
  ASSERT_TRUE(buffer.evict().ok());
  const int pipe_size = 65536;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const ssize_t wrote = write(ends[1], &all[0], pipe_size);
  if (wrote < 0 && errno == EFAULT) {
    close(ends[0]);
    close(ends[1]);
    GTEST_SKIP() << "userfaultfd serves user mode only";
  }
  ASSERT_EQ(wrote, pipe_size);
  ASSERT_TRUE(buffer.evict(16 * kMiB, 2 * kMiB).ok());
  ASSERT_EQ(read(ends[0], &all[16 * kMiB / 8], pipe_size), pipe_size);
  EXPECT_EQ(wrong(all.subspan(16 * kMiB / 8, pipe_size / 8), 10), 0u);
  close(ends[0]);
  close(ends[1]);
}

// Pages registered with a ring stay locked for long. They stay in memory, and evict() returns an
// error.
TEST_F(MappedBuffers, pages_locked_for_io_stay_until_they_are_let_go) {
  if (const char* how = getenv("TIERMEM_MECHANISM"); how != nullptr && std::string(how) == "copy") {
    GTEST_SKIP() << "mremap takes pages that are locked, too";
  }
  Buffer buffer = mapped(4 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 11);
  LockedPages locked(&all[0], 4096);
  if (!locked.why_not().empty()) {
    GTEST_SKIP() << locked.why_not();
  }
  const Status busy = buffer.evict(0, 2 * kMiB);
  EXPECT_EQ(busy.code(), Code::busy) << busy.message();
  EXPECT_EQ(wrong(all, 11), 0u);
  EXPECT_GE(context->stats().withdrawals_refused, 1u);
  // Other extents can still leave.
  Buffer other = mapped(32 * kMiB);
  fill(words(other), 12);
  EXPECT_EQ(wrong(words(other), 12), 0u);
  EXPECT_EQ(wrong(all, 11), 0u);
  locked.release();
  EXPECT_TRUE(eventually([&] { return buffer.evict(0, 2 * kMiB).ok(); }));
  EXPECT_EQ(wrong(all, 11), 0u);
}

TEST_F(MappedBuffers, a_child_has_none_and_the_parent_goes_on) {
  Buffer buffer = mapped(32 * kMiB);
  const std::span<std::uint64_t> all = words(buffer);
  fill(all, 13);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    const volatile std::uint64_t word = all[0];
    _exit(word == word_at(13, 0) ? 1 : 2);
  }
  EXPECT_EQ(wrong(all, 13), 0u);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  fill(all, 14);
  EXPECT_EQ(wrong(all, 14), 0u);
}

// The log is off: without the sentence the user would see the signal alone.
TEST_F(MappedBuffers, a_touch_beyond_all_room_is_a_bus_error_with_a_sentence) {
  const char* const mode = getenv("TIERMEM_USERFAULT");
  const bool by_signals = mode != nullptr && std::string(mode) == "signal";
  if (by_signals && kSanitized) {
    GTEST_SKIP()
        << "the sanitizer's handler of SIGBUS comes behind tiermem's, and ends the process";
  }
  open("dram=8M; nvme=off");
  const int said = memfd_create("said", MFD_CLOEXEC);
  ASSERT_GE(said, 0);
  const pid_t child = fork();
  if (child == 0) {
    if (!by_signals) {
      signal(SIGBUS, SIG_DFL);
    }
    dup2(said, STDERR_FILENO);
    auto own = Context::create("dram=8M; nvme=off");
    auto buffer = own.ok() ? (*own)->alloc(32 * kMiB, {.flags = kMapped}) : own.status().clone();
    if (!buffer.ok()) {
      _exit(1);
    }
    auto* const bytes = *buffer->address();
    for (std::uint64_t at = 0; at < 32 * kMiB; at += 4096) {
      bytes[at] = std::byte{1};
    }
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) << status;
  std::string text(4096, '\0');
  text.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, pread(said, text.data(), text.size(), 0))));
  EXPECT_NE(text.find("tiermem: a touch of a mapped buffer at "), std::string::npos) << text;
  EXPECT_NE(text.find("no room for "), std::string::npos) << text;
  close(said);
}

TEST_F(MappedBuffers, droppable_ones_give_way_and_are_written_again) {
  open("dram=8M; nvme=off");
  Buffer cache = mapped(4 * kMiB, 0, kDroppable);
  fill(words(cache), 15);
  auto other = context->alloc(8 * kMiB);
  ASSERT_TRUE(write_pattern(*other, 16).ok());
  EXPECT_EQ(wrong_words(*other, 16), 0u);
  EXPECT_GT(context->stats().dropped, 0u);
  other->reset();
  EXPECT_EQ(cache.acquire(kRead, 0, 8).code(), Code::discarded);
  ASSERT_TRUE(write_pattern(cache, 17).ok());
  EXPECT_EQ(wrong(words(cache), 17), 0u);
}

TEST_F(MappedBuffers, what_is_not_mapped_has_no_address) {
  auto plain = context->alloc(kMiB, {.label = "plain"});
  ASSERT_TRUE(plain.ok());
  auto address = plain->address();
  EXPECT_EQ(address.code(), Code::unsupported);
  EXPECT_SAYS(address, "plain");
  Buffer buffer = mapped(kMiB);
  const Handle handle = buffer.handle();
  buffer.reset();
  EXPECT_EQ(context->address(handle).code(), Code::stale_handle);
}

TEST_F(MappedBuffers, many_come_and_go_beside_each_other) {
  std::atomic<std::uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 25; ++i) {
        Buffer buffer = mapped((1 + i % 5) * 2 * kMiB, i % 2 == 0 ? 0 : 65536);
        fill(words(buffer), t * 100 + i);
        bad += wrong(words(buffer), t * 100 + i);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad, 0u);
  EXPECT_TRUE(eventually([&] { return context->stats().buffers == 0; }));
}

}  // namespace
}  // namespace tiermem::test
