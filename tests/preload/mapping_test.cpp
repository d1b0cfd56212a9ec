// mmap and related calls under the preload library: large private memory is tiered, and behaves
// like the kernel's.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "preload/words.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHuge = 2 * kMiB;

std::byte* map_memory(std::size_t bytes, int flags = 0) {
  void* const at =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  EXPECT_NE(at, MAP_FAILED);
  return static_cast<std::byte*>(at);
}

std::size_t present_pages(std::byte* at, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + kPage - 1) / kPage);
  EXPECT_EQ(mincore(at, bytes, pages.data()), 0);
  std::size_t n = 0;
  for (const unsigned char page : pages) {
    n += page & 1u;
  }
  return n;
}

class Mapping : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    bytes_ = GetParam();
    at_ = map_memory(bytes_);
    put_words(at_, bytes_, 1);
  }
  /// Evicts all pages except up to `stays`. Repeats this, because read-ahead pages may still
  /// arrive, and pages that could not leave are left alone for some milliseconds.
  void evict(std::size_t stays = 0) { evict_part(0, bytes_, stays); }
  void evict_part(std::size_t from, std::size_t bytes, std::size_t stays = 0) {
    std::byte* const at = at_ + from;
    ASSERT_EQ(madvise(at, bytes, MADV_PAGEOUT), 0);
    for (int tries = 0; tries < 5000 && present_pages(at, bytes) > stays; ++tries) {
      usleep(1000);
      ASSERT_EQ(madvise(at, bytes, MADV_PAGEOUT), 0);
    }
    ASSERT_LE(present_pages(at, bytes), stays);
  }
  void TearDown() override { EXPECT_EQ(munmap(at_, bytes_), 0); }
  std::size_t bytes_ = 0;
  std::byte* at_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Sizes, Mapping,
                         testing::Values(kMiB / 2, kMiB + 12 * kPage, 8 * kMiB, 9 * kMiB + kPage),
                         [](const auto& at) { return std::to_string(at.param / kPage); });

TEST_P(Mapping, keeps_its_bytes_when_others_need_the_memory) {
  EXPECT_EQ(present_pages(at_, bytes_), (bytes_ + kPage - 1) / kPage);
  evict();
  EXPECT_EQ(wrong_words(at_, bytes_, 1), 0u);
  EXPECT_LE(resident_bytes(), kBudget + kOverhead);
}

TEST_P(Mapping, advice_that_it_is_not_needed_makes_zeros_of_whole_pages) {
  const std::size_t begin = bytes_ / 4 / kPage * kPage + kPage;
  const std::size_t length = bytes_ / 2 / kPage * kPage;
  evict();
  ASSERT_EQ(madvise(at_ + begin, length, MADV_DONTNEED), 0);
  EXPECT_EQ(wrong_words(at_, begin, 1), 0u);
  EXPECT_EQ(nonzero_words(at_ + begin, length), 0u);
  const std::uint64_t* const word = reinterpret_cast<std::uint64_t*>(at_ + begin + length);
  EXPECT_EQ(*word, word_of(1, (begin + length) / 8));
  for (const int advice : {MADV_WILLNEED, MADV_SEQUENTIAL, MADV_RANDOM, MADV_NORMAL, MADV_COLD,
                           MADV_PAGEOUT, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP}) {
    EXPECT_EQ(madvise(at_, bytes_, advice), 0) << advice;
  }
  EXPECT_EQ(wrong_words(at_, begin, 1), 0u);
  EXPECT_EQ(posix_madvise(at_, bytes_, POSIX_MADV_DONTNEED), 0);
  EXPECT_EQ(wrong_words(at_, begin, 1), 0u);
  errno = 0;
  EXPECT_EQ(madvise(at_ + 1, kPage, MADV_NORMAL), -1);
  EXPECT_EQ(errno, EINVAL);
}

// Empties one of sixteen evicted pages. The pages are not read for this.
TEST_P(Mapping, single_pages_that_are_not_needed_cost_no_reading) {
  evict();
  std::size_t emptied = 0;
  for (std::size_t page = 1; page < bytes_ / kPage; page += 16, ++emptied) {
    ASSERT_EQ(madvise(at_ + page * kPage, kPage, MADV_DONTNEED), 0);
  }
  EXPECT_EQ(present_pages(at_, bytes_), 0u);
  for (std::size_t page = 1; page < bytes_ / kPage; page += 16) {
    EXPECT_EQ(at_[page * kPage + 77], std::byte{0}) << page;
  }
  EXPECT_EQ(wrong_words(at_, bytes_, 1), emptied * kPage / sizeof(std::uint64_t));
}

// Compared with a model: pages are written, emptied, evicted, moved with their mapping, and read by
// a child.
TEST_P(Mapping, pages_that_are_not_needed_are_zeros_wherever_they_are) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> model(bytes_ / kPage);
  bytes_ = model.size() * kPage;
  const auto below = [&](std::size_t n) { return random() % n; };
  const auto write = [&](std::size_t page) {
    model[page] = static_cast<std::uint32_t>(random()) | 1;
    std::uint32_t words[kPage / 4];
    std::fill(std::begin(words), std::end(words), model[page]);
    memcpy(at_ + page * kPage, words, kPage);
  };
  const auto wrong = [&](std::size_t page) {
    std::uint32_t words[kPage / 4];
    memcpy(words, at_ + page * kPage, kPage);
    return std::any_of(std::begin(words), std::end(words),
                       [&](std::uint32_t word) { return word != model[page]; });
  };
  const auto wrong_pages = [&] {
    std::size_t n = 0;
    for (std::size_t page = 0; page < model.size(); ++page) {
      n += wrong(page) ? 1 : 0;
    }
    return n;
  };
  for (std::size_t page = 0; page < model.size(); ++page) {
    write(page);
  }
  for (int step = 0; step < 1500; ++step) {
    const std::size_t page = below(model.size());
    const std::size_t pages = 1 + below(std::min<std::size_t>(model.size() - page, 20));
    switch (below(16)) {
      case 0:
        ASSERT_EQ(madvise(at_, bytes_, MADV_PAGEOUT), 0);
        break;
      case 1:
        ASSERT_EQ(madvise(at_ + page * kPage, pages * kPage, MADV_PAGEOUT), 0);
        break;
      case 2:
      case 3:
      case 4:
        write(page);
        break;
      case 5:
      case 6:
      case 7:
      case 8:
        ASSERT_EQ(madvise(at_ + page * kPage, pages * kPage, MADV_DONTNEED), 0);
        std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(page), pages, 0);
        [[fallthrough]];
      default:
        ASSERT_FALSE(wrong(page)) << "page " << page << " in step " << step;
    }
    if (step % 500 == 250) {  // To another place: the zeros are then in the other buffer.
      void* const moved = mremap(at_, bytes_, 2 * bytes_, MREMAP_MAYMOVE);
      ASSERT_NE(moved, MAP_FAILED);
      at_ = static_cast<std::byte*>(moved);
      ASSERT_EQ(munmap(at_ + bytes_, bytes_), 0);
    }
    if (step % 500 == 400) {
      const pid_t child = fork();
      if (child == 0) {
        _exit(wrong_pages() == 0 ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0) << "in step " << step;
    }
  }
  EXPECT_EQ(wrong_pages(), 0u);
}

// The advice makes the kernel cut the mapping in two, in the middle of an extent.
TEST_P(Mapping, a_part_without_core_dumps_leaves_and_comes_like_the_rest) {
  ASSERT_EQ(madvise(at_ + kPage, bytes_ / 2 / kPage * kPage, MADV_DONTDUMP), 0);
  for (int round = 0; round < 3; ++round) {
    evict();
    EXPECT_EQ(wrong_words(at_, bytes_, 1 + round), 0u);
    put_words(at_, bytes_, 2 + round);
  }
}

TEST_P(Mapping, is_unmapped_in_pieces) {
  const std::size_t half = bytes_ / 2 / kPage * kPage;
  EXPECT_EQ(munmap(at_, half), 0);
  EXPECT_EQ(madvise(at_, bytes_, MADV_PAGEOUT), -1);
  EXPECT_EQ(errno, ENOMEM) << "there is a hole";
  evict_part(half, bytes_ - half);
  const std::uint64_t* const word = reinterpret_cast<std::uint64_t*>(at_ + half);
  EXPECT_EQ(*word, word_of(1, half / 8));
  EXPECT_EQ(munmap(at_ + half, kPage), 0);
  // Nothing is mapped there, which is not an error, as with the kernel.
  EXPECT_EQ(munmap(at_ + half, kPage), 0);
  EXPECT_EQ(munmap(at_ + half + kPage, bytes_ - half - kPage), 0);
  at_ = map_memory(bytes_);
  EXPECT_EQ(nonzero_words(at_, bytes_), 0u);
}

TEST_P(Mapping, fresh_memory_replaces_a_part) {
  void* const again = mmap(at_ + 4 * kPage, 8 * kPage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ASSERT_EQ(again, at_ + 4 * kPage);
  EXPECT_EQ(nonzero_words(again, 8 * kPage), 0u);
  EXPECT_EQ(wrong_words(at_, 4 * kPage, 1), 0u);
}

TEST_P(Mapping, a_part_that_is_mapped_again_outlives_the_rest) {
  const std::size_t half = bytes_ / 2 / kPage * kPage;
  ASSERT_EQ(munmap(at_, half), 0);
  ASSERT_EQ(mmap(at_, half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            at_);
  put_words(at_, half, 3);
  ASSERT_EQ(munmap(at_ + half, bytes_ - half), 0);
  bytes_ = half;
  evict();
  EXPECT_EQ(wrong_words(at_, half, 3), 0u);
}

TEST_P(Mapping, mremap_of_a_part_leaves_the_other_parts) {
  const std::size_t part = 8 * kPage;
  ASSERT_EQ(mremap(at_, part, 4 * kPage, 0), at_);  // Leaves a hole after the first four pages.
  evict_part(part, bytes_ - part);
  EXPECT_EQ(wrong_words(at_, 4 * kPage, 1), 0u);
  void* const moved = mremap(at_ + part, part, 2 * part, MREMAP_MAYMOVE);
  ASSERT_NE(moved, MAP_FAILED);
  EXPECT_EQ(*static_cast<std::uint64_t*>(moved), word_of(1, part / 8));
  EXPECT_EQ(nonzero_words(static_cast<std::byte*>(moved) + part, part), 0u);
  const auto* const rest = reinterpret_cast<std::uint64_t*>(at_ + 2 * part);
  EXPECT_EQ(*rest, word_of(1, 2 * part / 8));
  EXPECT_EQ(munmap(moved, 2 * part), 0);
}

TEST_P(Mapping, a_file_over_a_part_leaves_the_rest_as_it_is) {
  char name[] = "/tmp/tiermem-overlay-XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  unlink(name);
  const std::vector<char> text(kPage, 'f');
  ASSERT_EQ(write(fd, text.data(), kPage), static_cast<ssize_t>(kPage));
  evict();
  void* const file = mmap(at_ + kPage, kPage, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
  ASSERT_EQ(file, at_ + kPage);
  close(fd);
  evict(kHuge / kPage);
  EXPECT_EQ(memcmp(file, text.data(), kPage), 0);
  EXPECT_EQ(wrong_words(at_, kPage, 1), 0u);
  const std::size_t rest = bytes_ - 2 * kPage;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < rest / 8; ++i) {
    wrong += reinterpret_cast<std::uint64_t*>(at_ + 2 * kPage)[i] != word_of(1, 2 * kPage / 8 + i);
  }
  EXPECT_EQ(wrong, 0u);
}

thread_local sigjmp_buf t_jump;
volatile int g_signal = 0;

bool faults_on_write(std::byte* at) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int number) {
    g_signal = number;
    siglongjmp(t_jump, 1);
  };
  sigaction(SIGSEGV, &action, &before);
  g_signal = 0;
  if (sigsetjmp(t_jump, 1) == 0) {
    *const_cast<volatile std::byte*>(at) = std::byte{1};
  }
  sigaction(SIGSEGV, &before, nullptr);
  return g_signal == SIGSEGV;
}

TEST_P(Mapping, protection_holds_and_ends) {
  evict();
  ASSERT_EQ(mprotect(at_ + kPage, kPage, PROT_READ), 0);
  evict(kHuge / kPage);
  EXPECT_TRUE(faults_on_write(at_ + kPage));
  EXPECT_EQ(wrong_words(at_, bytes_, 1), 0u);
  ASSERT_EQ(mprotect(at_ + kPage, kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_FALSE(faults_on_write(at_ + kPage));
  put_words(at_, bytes_, 2);
  evict();
  EXPECT_EQ(wrong_words(at_, bytes_, 2), 0u);
}

// A region has whole extents. The pages behind the end of the mapping are not the program's.
TEST_P(Mapping, stores_behind_its_end_are_signals) {
  constexpr std::size_t kExtent = std::size_t{64} << 10;  // Those of large mappings are multiples.
  const std::size_t whole_pages = (bytes_ + kPage - 1) / kPage * kPage;
  if (whole_pages % kExtent == 0) {
    GTEST_SKIP() << "anything may be behind whole extents";
  }
  unsigned char present = 0;
  EXPECT_EQ(mincore(at_ + whole_pages, kPage, &present), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_TRUE(faults_on_write(at_ + whole_pages));
  EXPECT_TRUE(faults_on_write(at_ + (whole_pages / kExtent + 1) * kExtent - kPage));
}

TEST_P(Mapping, a_locked_range_stays) {
  evict();
  const std::size_t length = std::min(bytes_, kMiB);
  if (mlock(at_, length) != 0) {
    GTEST_SKIP() << "mlock: " << strerror(errno);
  }
  EXPECT_EQ(madvise(at_, length, MADV_PAGEOUT), -1);
  EXPECT_EQ(errno, EINVAL) << "as the kernel says of locked pages";
  if (length < bytes_) {
    evict_part(length, bytes_ - length);
  }
  EXPECT_EQ(present_pages(at_, length), length / kPage);
  EXPECT_EQ(munlock(at_, length), 0);
  evict();
  EXPECT_EQ(wrong_words(at_, bytes_, 1), 0u);
}

TEST_P(Mapping, mremap_keeps_the_bytes) {
  for (const std::size_t next : {bytes_ + 5 * kPage, 3 * bytes_, bytes_ / 2 / kPage * kPage}) {
    void* const moved = mremap(at_, bytes_, next, MREMAP_MAYMOVE);
    ASSERT_NE(moved, MAP_FAILED) << next;
    at_ = static_cast<std::byte*>(moved);
    EXPECT_EQ(wrong_words(at_, std::min(bytes_, next), 1), 0u);
    if (next > bytes_) {
      EXPECT_EQ(nonzero_words(at_ + bytes_, next - bytes_), 0u);
    }
    bytes_ = next;
    put_words(at_, bytes_, 1);
  }
}

TEST_P(Mapping, what_mremap_cut_off_is_zero_when_it_grows_again) {
  const std::size_t half = bytes_ / 2 / kPage * kPage;
  evict();
  ASSERT_EQ(mremap(at_, bytes_, half, 0), at_);
  void* const grown = mremap(at_, half, bytes_, MREMAP_MAYMOVE);
  ASSERT_NE(grown, MAP_FAILED);
  at_ = static_cast<std::byte*>(grown);
  EXPECT_EQ(wrong_words(at_, half, 1), 0u);
  EXPECT_EQ(nonzero_words(at_ + half, bytes_ - half), 0u);
}

TEST_P(Mapping, system_calls_reach_evicted_pages) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  evict();
  std::vector<std::byte> copy(bytes_);
  std::thread reader([&] {
    for (std::size_t at = 0; at < bytes_;) {
      const ssize_t got = read(ends[1], copy.data() + at, bytes_ - at);
      ASSERT_GT(got, 0);
      at += static_cast<std::size_t>(got);
    }
  });
  for (std::size_t at = 0; at < bytes_;) {
    const ssize_t sent = send(ends[0], at_ + at, bytes_ - at, 0);
    ASSERT_GT(sent, 0) << strerror(errno);
    at += static_cast<std::size_t>(sent);
  }
  reader.join();
  EXPECT_EQ(wrong_words(copy.data(), bytes_, 1), 0u);

  evict();
  const iovec local{copy.data(), bytes_}, remote{at_, bytes_};
  memset(copy.data(), 0, bytes_);
  EXPECT_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), static_cast<ssize_t>(bytes_));
  EXPECT_EQ(wrong_words(copy.data(), bytes_, 1), 0u);

  evict();
  auto* const word = reinterpret_cast<std::uint32_t*>(at_);
  EXPECT_EQ(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, *word + 1, nullptr, nullptr, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
  close(ends[0]);
  close(ends[1]);
}

TEST_P(Mapping, direct_io_reads_into_evicted_pages) {
  char name[] = "./tiermem-direct-XXXXXX";
  int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  const std::size_t bytes = bytes_ / kPage * kPage;
  std::vector<std::byte> text(bytes);
  put_words(text.data(), bytes, 5);
  ASSERT_EQ(write(fd, text.data(), bytes), static_cast<ssize_t>(bytes));
  fsync(fd);
  close(fd);
  fd = open(name, O_RDONLY | O_DIRECT);
  unlink(name);
  if (fd < 0) {
    GTEST_SKIP() << "O_DIRECT: " << strerror(errno);
  }
  evict();
  std::size_t at = 0;
  while (at < bytes) {
    const ssize_t got = pread(fd, at_ + at, bytes - at, static_cast<off_t>(at));
    ASSERT_GT(got, 0) << strerror(errno);
    at += static_cast<std::size_t>(got);
  }
  close(fd);
  evict();
  EXPECT_EQ(wrong_words(at_, bytes, 5), 0u);
}

TEST_P(Mapping, bytes_in_a_pipe_are_those_that_were_put_there) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const iovec part{at_, 4 * kPage};
  ASSERT_EQ(vmsplice(ends[1], &part, 1, 0), static_cast<ssize_t>(part.iov_len));
  evict();
  put_words(at_, bytes_, 6);
  std::vector<std::byte> copy(4 * kPage);
  ASSERT_EQ(read(ends[0], copy.data(), copy.size()), static_cast<ssize_t>(copy.size()));
  EXPECT_EQ(wrong_words(copy.data(), copy.size(), 1), 0u);
  close(ends[0]);
  close(ends[1]);
}

TEST(Mappings, beyond_memory_keep_their_bytes) {
  std::byte* const at = map_memory(6 * kBudget, MAP_NORESERVE);
  put_words(at, 6 * kBudget, 4);
  EXPECT_LE(resident_bytes(), kBudget + kOverhead);
  EXPECT_EQ(wrong_words(at, 6 * kBudget, 4), 0u);
  EXPECT_EQ(munmap(at, 6 * kBudget), 0);
}

TEST(Mappings, what_is_small_shared_or_protected_is_the_kernels) {
  for (const auto& [bytes, protection, flags] :
       {std::tuple{kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS},
        std::tuple{kMiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS},
        std::tuple{kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS},
        std::tuple{kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK}}) {
    void* const at = mmap(nullptr, bytes, protection, flags, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    EXPECT_EQ(mprotect(at, bytes, PROT_READ | PROT_WRITE), 0);
    memset(at, 1, bytes);
    void* const moved = mremap(at, bytes, 2 * bytes, MREMAP_MAYMOVE);
    EXPECT_TRUE(moved != MAP_FAILED || flags == (MAP_SHARED | MAP_ANONYMOUS));
    EXPECT_EQ(munmap(moved != MAP_FAILED ? moved : at, 2 * bytes), 0);
  }
  EXPECT_EQ(mmap(nullptr, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
}

// Linux 5.14; the numbers are from its headers.
TEST(Mappings, memory_is_populated_as_by_the_kernel) {
  constexpr int kRead = 22, kWrite = 23;
  constexpr std::size_t kPart = 4 * kPage;
  std::byte* const at = map_memory(kMiB);
  memset(at, 7, kMiB);
  for (int tries = 0; tries < 20; ++tries) {
    (void)madvise(at, kMiB, MADV_PAGEOUT);
    usleep(1000);
  }
  const auto populated = [&](std::byte* from, std::size_t bytes, int how) {
    errno = 0;
    return madvise(from, bytes, how) == 0 ? 0 : errno;
  };
  EXPECT_EQ(populated(at, kMiB, kRead), 0);
  EXPECT_EQ(populated(at, kMiB, kWrite), 0);
  EXPECT_EQ(std::count(at, at + kMiB, std::byte{7}), static_cast<std::ptrdiff_t>(kMiB));
  ASSERT_EQ(mprotect(at + kPart, kPart, PROT_READ), 0);
  EXPECT_EQ(populated(at, 3 * kPart, kRead), 0);
  EXPECT_EQ(populated(at, 3 * kPart, kWrite), EINVAL);
  EXPECT_EQ(populated(at, kPart, kWrite), 0) << "what lies in front of it";
  ASSERT_EQ(mprotect(at + kPart, kPart, PROT_NONE), 0);
  EXPECT_EQ(populated(at + kPart, kPart, kRead), EINVAL);
  ASSERT_NE(mmap(at + 2 * kPart, kPart, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  EXPECT_EQ(populated(at + 2 * kPart, 2 * kPart, kRead), 0);
  EXPECT_EQ(populated(at + 2 * kPart, 2 * kPart, kWrite), EINVAL);
  ASSERT_EQ(munmap(at + 8 * kPart, kPart), 0);
  EXPECT_EQ(populated(at + 7 * kPart, 3 * kPart, kRead), ENOMEM);
  EXPECT_EQ(populated(at + 7 * kPart, kPart, kWrite), 0);
  munmap(at, kMiB);
}

TEST(Mappings, other_calls_on_memory_answer_as_the_table_says) {
  std::byte* const at = map_memory(kMiB);
  memset(at, 7, kMiB);
  EXPECT_EQ(remap_file_pages(at, kPage, 0, 1, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  void* const before = sbrk(4 * static_cast<std::intptr_t>(kPage));
  ASSERT_NE(before, MAP_FAILED);
  memset(before, 1, 4 * kPage);
  const auto fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | 1));  // UFFD_USER_MODE_ONLY
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0) {
    uffdio_register range{};
    range.range = {reinterpret_cast<std::uint64_t>(at), kMiB};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    EXPECT_EQ(ioctl(fd, UFFDIO_REGISTER, &range), -1);
    EXPECT_EQ(errno, EBUSY);
  }
  close(fd);
  const int key = pkey_alloc(0, 0);
  if (key >= 0) {
    EXPECT_EQ(pkey_mprotect(at, kPage, PROT_READ | PROT_WRITE, key), 0);
    (void)madvise(at, kMiB, MADV_PAGEOUT);
    EXPECT_EQ(at[0], std::byte{7});
    EXPECT_EQ(pkey_mprotect(at, kPage, PROT_READ | PROT_WRITE, 0), 0);
    pkey_free(key);
  }
  EXPECT_EQ(std::count(at, at + kMiB, std::byte{7}), static_cast<std::ptrdiff_t>(kMiB));
  munmap(at, kMiB);
}

TEST(Mappings, zero_copy_sends_are_not_offered) {
  std::byte* const at = map_memory(kMiB);  // Tiering has begun, at the latest with this call.
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)), 0);
  close(fd);
  munmap(at, kMiB);
}

}  // namespace
}  // namespace tiermem::test
