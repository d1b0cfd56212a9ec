// Adopted files with the flag mapped: the program touches the bytes of a file at an address,
// without views. Goal: every byte is the file's, in any order and under a budget smaller than the
// file; a store is refused, or with the flag private kept; the file is never written.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/directory.hpp"
#include "support/forked_child.hpp"
#include "support/made.hpp"
#include "support/pattern.hpp"
#include "support/threads.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kLead = 4096 + 32;  // As tensors begin in GGUF files.

// Set by the handler, in a child of fork with one thread.
volatile sig_atomic_t g_signal = 0;
void* volatile g_address = nullptr;
sigjmp_buf g_after;

void note_signal(int signal, siginfo_t* info, void*) {
  g_signal = signal;
  g_address = info->si_addr;
  siglongjmp(g_after, 1);
}

/// Returns the signal that `touch` raises at `at`; 0: none.
template <typename Touch>
int signal_of(const char* at, const Touch& touch) {
  struct sigaction action {};
  action.sa_sigaction = note_signal;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
  g_signal = 0;
  if (sigsetjmp(g_after, 1) == 0) {
    touch();
    return 0;
  }
  const auto page = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) / 4096;
  };
  return page(g_address) == page(at) ? static_cast<int>(g_signal) : -1;
}

/// The content of a file that should have `size` bytes: at most one more. In one read, which is
/// quick in any build.
std::vector<char> bytes_of(const std::string& path, std::size_t size) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes(size + 1);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  return bytes;
}

struct MappedFile : ::testing::Test, ChildWords {
  void write_file(std::size_t size) {
    file.resize(size);
    char* const bytes = file.data();  // Fast without optimisation as well.
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<char>(i * 31 + i / 4096 + 1);
    }
    std::ofstream(path, std::ios::binary).write(file.data(), static_cast<std::streamsize>(size));
    expected.assign(file.begin() + kLead, file.end());
  }
  std::string spec(const std::string& dram, const std::string& more = "") const {
    return "dram=" + dram + "; nvme=" + directory.path() + ":256M" + more;
  }
  /// Returns false if this machine cannot map files.
  bool adopt(std::uint32_t flags, std::uint64_t extent = 0) {
    auto adopted = context->adopt_file(
        path.c_str(), kLead, 0,
        {.extent_bytes = extent, .flags = kMapped | flags, .label = "the weights"});
    if (!adopted.ok()) {
      EXPECT_EQ(adopted.code(), Code::unsupported) << adopted.message();
      return false;
    }
    buffer = std::move(adopted).value();
    data = reinterpret_cast<char*>(*buffer.address());
    return true;
  }
  void open(std::size_t size, const std::string& dram, std::uint32_t flags = 0,
            std::uint64_t extent = 0) {
    write_file(size);
    context = make_context(spec(dram));
    ASSERT_NE(context, nullptr);
    if (!adopt(flags, extent)) {
      GTEST_SKIP() << "no mapped files here";
    }
  }
  void store(std::size_t at, std::size_t n, char what) {
    std::memset(data + at, what, n);
    std::memset(expected.data() + at, what, n);
  }
  std::size_t first_wrong() const {
    constexpr std::size_t kPart = 4096;  // Compared in one call, which is quick in any build.
    for (std::size_t at = 0; at < expected.size(); at += kPart) {
      const std::size_t n = std::min(kPart, expected.size() - at);
      if (std::memcmp(&data[at], &expected[at], n) != 0) {
        return std::mismatch(&data[at], &data[at] + n, &expected[at]).first - data;
      }
    }
    return expected.size();
  }
  void expect_file_untouched() const { EXPECT_EQ(bytes_of(path, file.size()), file); }
  bool maps_files() {
    write_file(3 * 4096);
    context = make_context(spec("16M"));
    const bool maps = context != nullptr && adopt(0);
    buffer = Buffer();
    context.reset();
    return maps;
  }
  Directory directory;
  const std::string path = directory.path() + "/model";
  std::vector<char> file, expected;
  std::unique_ptr<Context> context;
  Buffer buffer;
  char* data = nullptr;
};

TEST_F(MappedFile, of_four_times_the_memory_is_read_through_the_pointer_and_nothing_is_written) {
  for (const std::uint64_t extent :
       {std::uint64_t{0}, std::uint64_t{64} << 10, std::uint64_t{4096}}) {
    open(32 * kMiB + 777, "8M", 0, extent);
    if (IsSkipped()) {
      return;
    }
    EXPECT_EQ(first_wrong(), expected.size()) << "extents of " << extent;
    EXPECT_EQ(first_wrong(), expected.size()) << "the second time";
    const Stats stats = context->stats();
    EXPECT_EQ(stats.demoted, 0u);
    EXPECT_LE(stats.dram_used, 8 * kMiB);
    EXPECT_GT(stats.faults, 0u);
    buffer = Buffer();
  }
  expect_file_untouched();
}

TEST_F(MappedFile, address_has_the_alignment_of_the_files_offset) {
  open(5 * kMiB, "16M");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 4096, kLead % 4096);
  auto view = buffer.acquire(kRead, 100, 50);
  ASSERT_TRUE(view.ok()) << view.message();
  EXPECT_EQ(reinterpret_cast<char*>(view->data()), data + 100) << "views are at the same address";
  EXPECT_EQ(std::memcmp(data + 100, expected.data() + 100, 50), 0);
  EXPECT_EQ(buffer.acquire(kWrite, 0, 1).code(), Code::invalid_argument);
}

// The first extent has bytes before the buffer, so the last one may have fewer than these.
TEST_F(MappedFile, last_extent_has_less_than_the_bytes_before_the_first_byte) {
  write_file(kLead - 32 + 4096 + 20);
  context = make_context(spec("16M"));
  if (!adopt(0, 4096)) {
    GTEST_SKIP() << "no mapped files here";
  }
  EXPECT_EQ(data[expected.size() - 1], expected.back());
  EXPECT_EQ(first_wrong(), expected.size());
}

TEST_F(MappedFile, threads_read_anywhere_under_evictions_and_see_the_files_bytes) {
  open(16 * kMiB + 99, "4M", 0, 64 << 10);
  std::atomic<unsigned> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(i);
      for (int n = 0; n < 3000; ++n) {
        const std::size_t at = random() % expected.size();
        wrong += data[at] != expected[at] ? 1 : 0;
        if (n % 200 == 0) {
          (void)buffer.evict();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0u);
}

TEST_F(MappedFile, system_call_reads_absent_pages_then_it_gets_the_files_bytes) {
  open(6 * kMiB, "16M");
  const std::string copy = directory.path() + "/copy";
  const int to = ::open(copy.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const ssize_t wrote = ::write(to, data, expected.size());
  if (wrote < 0 && errno == EFAULT) {
    ::close(to);
    GTEST_SKIP() << "system calls on absent pages fail here, as for mapped buffers";
  }
  ASSERT_EQ(wrote, static_cast<ssize_t>(expected.size())) << std::strerror(errno);
  EXPECT_EQ(bytes_of(copy, expected.size()), expected);
  ::close(to);
}

TEST_F(MappedFile, store_is_segv_with_a_sentence_and_the_bytes_stay_the_files) {
  if (!maps_files()) {
    GTEST_SKIP() << "no mapped files here";
  }
  for (const char* options : {"", "; mechanism=copy", "; userfault=user_mode"}) {
    for (const std::uint64_t extent :
         {std::uint64_t{4096}, std::uint64_t{64} << 10, std::uint64_t{2} << 20}) {
      write_file(5 * kMiB + 77);
      said.clear();
      EXPECT_TRUE(in_child([&] {
        context = make_context(spec("16M", options));
        if (!adopt(0, extent)) {
          return false;
        }
        bool good = true;
        for (int round = 0; round < 3; ++round) {
          for (const std::size_t at : {std::size_t{3}, std::size_t{kMiB + 5}, 3 * kMiB}) {
            // The page is absent, and then present.
            good = good && signal_of(data + at, [&] { data[at] = 1; }) == SIGSEGV &&
                   data[at] == expected[at] &&
                   signal_of(data + at, [&] { data[at] = 1; }) == SIGSEGV &&
                   data[at] == expected[at];
          }
          good = good && first_wrong() == expected.size() && buffer.evict().ok();
        }
        return good;
      })) << options
          << ", extents of " << extent << ": " << said;
      EXPECT_NE(said.find("store: buffer 'the weights' at offset 3 "), std::string::npos) << said;
      EXPECT_NE(said.find("the adopted file '" + path + "'"), std::string::npos) << said;
      EXPECT_NE(said.find("flag private"), std::string::npos) << "the remedy: " << said;
    }
  }
  expect_file_untouched();
}

TEST_F(MappedFile, store_without_a_handler_ends_the_process_with_a_sentence) {
  if (!maps_files()) {
    GTEST_SKIP() << "no mapped files here";
  }
  EXPECT_FALSE(in_child([&] {
    ::signal(SIGSEGV, SIG_DFL);
    context = make_context(spec("16M"));
    if (adopt(0)) {
      *static_cast<volatile char*>(data + 5000) = '!';
    }
    return true;
  }));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  EXPECT_NE(said.find("store: buffer 'the weights' at offset 5000"), std::string::npos) << said;
}

// As for any mapping of a file with MAP_PRIVATE and PROT_READ.
TEST_F(MappedFile, program_empties_pages_then_they_are_read_from_the_file_again) {
  for (const std::uint64_t extent : {std::uint64_t{0}, std::uint64_t{64} << 10}) {
    open(5 * kMiB, "16M", 0, extent);
    if (IsSkipped()) {
      return;
    }
    EXPECT_EQ(first_wrong(), expected.size());
    char* const page = data - kLead % 4096 + 4 * 4096;
    ASSERT_EQ(::madvise(page, 64 * 4096, MADV_DONTNEED), 0);
    EXPECT_EQ(first_wrong(), expected.size());
    ASSERT_TRUE(buffer.evict().ok());
    EXPECT_EQ(page[5 * 4096], expected[page + 5 * 4096 - data]) << "a page of its extent";
    ASSERT_EQ(::madvise(page, 64 * 4096, MADV_DONTNEED), 0);
    EXPECT_EQ(first_wrong(), expected.size());
    buffer = Buffer();
  }
}

// An extent in parts has the touched pages in memory, and the file has the others.
TEST_F(MappedFile, random_touches_read_pages_and_not_extents) {
  for (const std::uint32_t flags : {0u, kPrivate | 0u}) {
    open(64 * kMiB, "8M", flags, 64 << 10);
    if (IsSkipped()) {
      return;
    }
    std::mt19937 random(5);
    constexpr int kTouches = 4000;
    int wrong = 0;
    for (int i = 0; i < kTouches; ++i) {
      const std::size_t at = random() % expected.size();
      wrong += data[at] != expected[at] ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0);
    const Stats stats = context->stats();
    EXPECT_GE(stats.promoted, kTouches / 2 * 4096u);
    EXPECT_LE(stats.promoted + stats.prefetched, kTouches * std::uint64_t{16 << 10})
        << "extents would be four times as much";
    EXPECT_EQ(stats.demoted, 0u);
    EXPECT_EQ(first_wrong(), expected.size());
    buffer = Buffer();
  }
}

// The pages between the stores were never read: they come from the file when the extent leaves.
TEST_F(MappedFile, private_stores_to_single_pages_are_kept_with_the_files_other_pages) {
  open(48 * kMiB + 999, "8M", kPrivate, 64 << 10);
  std::mt19937 random(6);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 400; ++i) {
      store(random() % (expected.size() - 50), 1 + random() % 50, static_cast<char>(i));
    }
    ASSERT_TRUE(buffer.evict().ok());
    EXPECT_EQ(first_wrong(), expected.size()) << "round " << round;
  }
  EXPECT_GT(context->stats().demoted, 0u);
  expect_file_untouched();
}

// The block tier is full: slots of extents in memory go to others. The extents came back watched,
// and unchanged pages leave without being written, but only the slot had the stores.
TEST_F(MappedFile, private_extents_in_memory_lose_their_slots_then_their_stores_are_kept) {
  if (!maps_files()) {
    GTEST_SKIP() << "no mapped files here";
  }
  write_file(3 * kMiB);
  context = make_context("dram=16M; nvme=" + directory.path() + ":4M");
  ASSERT_TRUE(adopt(kPrivate, 64 << 10)) << said;
  for (std::size_t at = 0; at < expected.size(); at += 4096) {
    store(at, 8, static_cast<char>(at / 4096 + 1));
  }
  // They leave unchanged twice, so that they arrive watched.
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(buffer.evict().ok());
    ASSERT_TRUE(buffer.prefetch(0, expected.size()).ok());
    EXPECT_EQ(first_wrong(), expected.size()) << "round " << round;
  }
  auto other = context->alloc(4 * kMiB, {.extent_bytes = 64 << 10});
  ASSERT_TRUE(other.ok()) << other.message();
  ASSERT_TRUE(write_pattern(*other, 3).ok());
  (void)other->evict();  // Takes the slots. Some bytes may have none, and stay.
  EXPECT_GT(context->stats().demoted, expected.size() + kMiB);
  (void)buffer.evict();
  EXPECT_EQ(first_wrong(), expected.size());
  EXPECT_EQ(wrong_words(*other, 3), 0u);
}

// A page must have the bytes of its first read. This is checked page by page.
TEST_F(MappedFile, page_that_changes_in_place_is_refused_and_others_are_read) {
  if (!maps_files()) {
    GTEST_SKIP() << "no mapped files here";
  }
  write_file(6 * kMiB);
  EXPECT_TRUE(in_child([&] {
    context = make_context(spec("16M", "; log=error"));
    constexpr std::size_t kSeen = kMiB + 5 * 4096;
    if (!adopt(0, 64 << 10) || data[kSeen] != expected[kSeen] || !buffer.evict().ok()) {
      return false;
    }
    struct stat before {};
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    const off_t there = (kLead + kSeen) / 4096 * 4096;
    const std::vector<char> other(4096, '?');
    if (fd < 0 || ::fstat(fd, &before) != 0 || ::pwrite(fd, other.data(), 4096, there) != 4096) {
      return false;
    }
    const timespec times[] = {before.st_atim, before.st_mtim};  // The change does not show.
    if (::futimens(fd, times) != 0 || ::close(fd) != 0) {
      return false;
    }
    volatile char seen = 0;
    const auto touch = [&](std::size_t at) {
      return signal_of(data + at, [&] { seen = data[at]; });
    };
    const std::size_t neighbour = kSeen + 3 * 4096;
    return touch(kSeen) == SIGBUS && touch(neighbour) == 0 &&
           data[neighbour] == expected[neighbour];
  })) << said;
  EXPECT_NE(said.find("the file has changed"), std::string::npos) << said;
}

TEST_F(MappedFile, file_is_truncated_then_a_touch_is_sigbus_and_never_zeros) {
  if (!maps_files()) {
    GTEST_SKIP() << "no mapped files here";
  }
  for (const std::uint32_t flags : {std::uint32_t{0}, std::uint32_t{kPrivate}}) {
    write_file(6 * kMiB);
    said.clear();
    EXPECT_TRUE(in_child([&] {
      context = make_context(spec("16M", "; log=error"));
      if (!adopt(flags, 64 << 10) || data[0] != expected[0]) {
        return false;
      }
      std::filesystem::resize_file(path, 4096);
      volatile char seen = 0;
      const auto touch = [&](std::size_t at) {
        return signal_of(data + at, [&] { seen = data[at]; });
      };
      return data[0] == expected[0] && touch(5 * kMiB) == SIGBUS && touch(5 * kMiB) == SIGBUS &&
             buffer.evict().ok() && touch(0) == SIGBUS &&
             buffer.acquire(kRead, 0, 1).code() == Code::io_error;
    })) << said;
    EXPECT_NE(said.find("the file has changed"), std::string::npos) << said;
    EXPECT_NE(said.find(path), std::string::npos) << said;
  }
}

TEST_F(MappedFile, file_is_replaced_or_deleted_then_the_bytes_are_the_adopted_ones) {
  open(5 * kMiB, "16M");
  std::ofstream(path + "2") << "something else";
  std::filesystem::rename(path + "2", path);
  EXPECT_EQ(first_wrong(), expected.size());
  std::filesystem::remove(path);
  ASSERT_TRUE(buffer.evict().ok());
  EXPECT_EQ(first_wrong(), expected.size());
}

TEST_F(MappedFile, private_stores_are_kept_and_the_file_is_not_written) {
  for (const std::uint64_t extent :
       {std::uint64_t{0}, std::uint64_t{64} << 10, std::uint64_t{4096}}) {
    open(32 * kMiB + 5, "8M", kPrivate, extent);
    if (IsSkipped()) {
      return;
    }
    std::mt19937 random(11);
    for (int i = 0; i < 200; ++i) {
      const std::size_t n = 1 + random() % 3000;
      store(random() % (expected.size() - n), n, static_cast<char>(i));
    }
    EXPECT_EQ(first_wrong(), expected.size()) << "extents of " << extent;
    store(5, 3, 'z');
    ASSERT_TRUE(buffer.evict().ok());
    EXPECT_EQ(first_wrong(), expected.size()) << "extents of " << extent;
    EXPECT_GT(context->stats().demoted, 0u);
    buffer = Buffer();
  }
  expect_file_untouched();
}

TEST_F(MappedFile, private_extents_without_stores_are_not_written_down) {
  open(16 * kMiB, "8M", kPrivate, 64 << 10);
  store(kMiB, 1, 'x');
  EXPECT_EQ(first_wrong(), expected.size());
  ASSERT_TRUE(buffer.evict().ok());
  EXPECT_LE(context->stats().demoted, 64u << 10);
  EXPECT_EQ(first_wrong(), expected.size());
}

TEST_F(MappedFile, private_bytes_that_are_given_up_are_the_files_again) {
  open(4 * kMiB, "16M", kPrivate, 64 << 10);
  store(0, 200'000, 'x');
  ASSERT_TRUE(buffer.evict().ok());
  store(300'000, 5, 'y');
  ASSERT_TRUE(buffer.advise(Advice::dont_need).ok());
  expected.assign(file.begin() + kLead, file.end());
  EXPECT_EQ(first_wrong(), expected.size());
}

TEST_F(MappedFile, rows_of_a_mapped_file_are_gathered) {
  open(4 * kMiB + kLead, "16M", 0, 64 << 10);
  std::vector<std::uint64_t> rows;
  for (std::uint64_t row = 0; row < expected.size() / 64; row += 97) {
    rows.push_back(row);
  }
  std::vector<char> got(rows.size() * 64);
  for (int round = 0; round < 2; ++round) {
    const Status gathered = buffer.gather(64, rows, got.data());
    ASSERT_TRUE(gathered.ok()) << gathered.message();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(std::memcmp(got.data() + i * 64, expected.data() + rows[i] * 64, 64), 0) << rows[i];
    }
    EXPECT_EQ(first_wrong(), expected.size());
  }
}

TEST_F(MappedFile, child_of_fork_touches_then_it_is_segv_and_the_parent_reads_on) {
  open(5 * kMiB, "16M");
  EXPECT_EQ(data[0], expected[0]);
  EXPECT_TRUE(in_child([&] {
    volatile char seen = 0;
    return signal_of(data, [&] { seen = data[0]; }) == SIGSEGV;
  })) << said;
  EXPECT_EQ(first_wrong(), expected.size());
}

// Without a block tier only written bytes must stay: all others are in the file.
TEST_F(MappedFile, private_file_needs_no_block_tier_for_what_is_not_written) {
  for (const std::uint64_t extent : {std::uint64_t{0}, std::uint64_t{64} << 10}) {
    write_file(32 * kMiB + 5);
    context = make_context("dram=8M; nvme=off");
    ASSERT_NE(context, nullptr);
    if (!adopt(kPrivate, extent)) {
      GTEST_SKIP() << "no mapped files here";
    }
    EXPECT_EQ(first_wrong(), expected.size()) << "extents of " << extent;
    store(3 * kMiB + 100, 5000, 'w');
    store(20 * kMiB, 1, 'w');
    EXPECT_EQ(first_wrong(), expected.size()) << "with written bytes";
    EXPECT_EQ(first_wrong(), expected.size()) << "the second time";
    const Status left = buffer.evict();
    EXPECT_FALSE(left.ok()) << "the written extents stay";
    EXPECT_GT(buffer.info()->resident, 0u);
    EXPECT_LE(buffer.info()->resident, 4 * kMiB) << "two written extents at most";
    EXPECT_EQ(first_wrong(), expected.size()) << "after an evict";
    EXPECT_EQ(context->stats().demoted, 0u);
    buffer = Buffer();
    context.reset();
  }
  expect_file_untouched();
}

TEST_F(MappedFile, context_follows_forks_then_parent_and_child_have_the_file) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
  }
  for (const std::uint32_t flags : {0u, kPrivate | 0u}) {
    for (const std::uint64_t extent :
         {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{64} << 10}) {
      write_file(12 * kMiB + 5);
      context = make_context(spec("8M", "; fork=follow"));
      ASSERT_NE(context, nullptr);
      if (!adopt(flags, extent)) {
        GTEST_SKIP() << "no mapped files here";
      }
      if (flags != 0) {
        store(5 * kMiB, 100'000, 'p');
      }
      EXPECT_EQ(first_wrong(), expected.size());
      const std::size_t resident = expected.size() - 1;  // Read last.
      const auto is_right = [&] {
        if (flags != 0) {
          store(7 * kMiB, 50'000, 'c');
        } else if (signal_of(data + resident, [&] { data[resident] = 1; }) != SIGSEGV ||
                   signal_of(data, [&] { data[0] = 1; }) != SIGSEGV) {
          return false;
        }
        return first_wrong() == expected.size();
      };
      EXPECT_TRUE(in_child([&] { return is_right() && in_child(is_right); })) << said;
      EXPECT_EQ(first_wrong(), expected.size());
      expect_file_untouched();
      buffer = Buffer();
      context.reset();
    }
  }
}

TEST_F(MappedFile, no_userfaultfd_then_only_private_files_are_mapped) {
  write_file(12 * kMiB);
  context = make_context(spec("8M", "; userfault=off; mechanism=auto"));
  ASSERT_NE(context, nullptr);
  const auto refused = context->adopt_file(path.c_str(), 0, 0, {.flags = kMapped});
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("private"));
  ASSERT_TRUE(adopt(kPrivate));
  store(kMiB, 100, 'x');
  EXPECT_EQ(first_wrong(), expected.size());
  expect_file_untouched();
}

TEST_F(MappedFile, many_are_freed_while_they_are_read_ahead) {
  open(8 * kMiB, "4M", 0, 64 << 10);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(adopt(i % 2 == 0 ? 0u : kPrivate | 0u, 64 << 10));
    for (std::size_t at = 0; at < kMiB; at += 4096) {
      ASSERT_EQ(data[at], expected[at]);
    }
    ASSERT_EQ(data[expected.size() - 1], expected.back());
    buffer = Buffer();
  }
  EXPECT_TRUE(comes_true([&] { return context->stats().buffers == 0; }));
}

}  // namespace
}  // namespace tiermem::test
