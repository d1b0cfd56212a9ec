// Faults P1 to P10 and P17: operations of a program on parts of its memory.
#include <errno.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include "preload/words.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kSmall = std::size_t{64} << 10;

/// 8 MiB of a program's memory, filled with 0xAA.
class Memory {
 public:
  explicit Memory(std::size_t bytes = 8 * kMiB) : bytes_(bytes) {
    void* const got =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(got, MAP_FAILED);
    at = static_cast<unsigned char*>(got);
    memset(at, 0xAA, bytes);
  }
  ~Memory() { munmap(at, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Returns the number of bytes in the range that differ from `value`.
  std::size_t other_than(unsigned char value, std::size_t from, std::size_t bytes) const {
    return bytes - static_cast<std::size_t>(std::count(at + from, at + from + bytes, value));
  }
  void page_out() const {
    for (int i = 0; i < 20; ++i) {
      (void)madvise(at, bytes_, MADV_PAGEOUT);
      usleep(1000);
    }
  }
  void* map_over(std::size_t from, std::size_t bytes, int protection, int flags,
                 int fd = -1) const {
    return mmap(at + from, bytes, protection, flags | MAP_FIXED, fd, 0);
  }

  unsigned char* at = nullptr;

 private:
  std::size_t bytes_;
};

constexpr int kFresh = MAP_PRIVATE | MAP_ANONYMOUS;

class File {
 public:
  explicit File(std::size_t bytes) {
    char name[] = "/tmp/tiermem-found-XXXXXX";
    fd = mkstemp(name);
    EXPECT_GE(fd, 0);
    unlink(name);
    const std::vector<unsigned char> text(bytes, 'f');
    EXPECT_EQ(write(fd, text.data(), bytes), static_cast<ssize_t>(bytes));
  }
  ~File() { close(fd); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::size_t other_than(unsigned char value, std::size_t bytes) const {
    std::vector<unsigned char> text(bytes);
    EXPECT_EQ(pread(fd, text.data(), bytes, 0), static_cast<ssize_t>(bytes));
    return bytes - static_cast<std::size_t>(std::count(text.begin(), text.end(), value));
  }
  int fd = -1;
};

sigjmp_buf g_back;
void go_back(int) {
  siglongjmp(g_back, 1);
}
[[gnu::noinline]] bool store_is_a_signal(unsigned char* at) {
  if (sigsetjmp(g_back, 1) != 0) {
    return true;
  }
  const_cast<volatile unsigned char&>(*at) = 1;
  return false;
}

TEST(FaultsFound, P01_memory_beside_a_mapped_file_is_emptied_then_the_file_keeps_its_bytes) {
  for (const int protection : {PROT_READ | PROT_WRITE, PROT_READ}) {
    const Memory memory;
    const File file(kSmall);
    ASSERT_NE(memory.map_over(kSmall, kSmall, protection, MAP_SHARED, file.fd), MAP_FAILED);
    EXPECT_EQ(madvise(memory.at + kSmall, 4096, MADV_DONTNEED), 0);
    EXPECT_EQ(madvise(memory.at, 4 * kSmall, MADV_DONTNEED), 0);
    memory.page_out();
    EXPECT_EQ(file.other_than('f', kSmall), 0u);
    EXPECT_EQ(memory.other_than('f', kSmall, kSmall), 0u);
    EXPECT_EQ(memory.other_than(0, 0, kSmall), 0u);
    EXPECT_EQ(memory.other_than(0xAA, 4 * kSmall, kSmall), 0u);
  }
}

// An extent in the middle of the part is only partly tiered.
TEST(FaultsFound, P01_a_file_is_mapped_over_holes_then_what_is_stored_there_stays) {
  for (const std::size_t hole : {std::size_t{4096}, 13 * std::size_t{4096}}) {
    const Memory memory;
    const File file(8 * kSmall);
    ASSERT_EQ(munmap(memory.at + 3 * kSmall, hole), 0);
    ASSERT_EQ(munmap(memory.at + 5 * kSmall - hole, hole), 0);
    memory.page_out();
    EXPECT_EQ(memory.other_than(0xAA, 4 * kSmall, 4096), 0u);  // Brings it into memory again.
    EXPECT_EQ(memory.other_than(0xAA, 3 * kSmall + hole, 4096), 0u);
    ASSERT_NE(
        memory.map_over(kSmall + 8192, 7 * kSmall, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.fd),
        MAP_FAILED);
    memset(memory.at + kSmall + 8192, 0x77, 7 * kSmall);
    const Memory others(96 * kMiB);  // The budget is 64 MiB.
    memory.page_out();
    EXPECT_EQ(memory.other_than(0x77, kSmall + 8192, 7 * kSmall), 0u) << "hole " << hole;
    EXPECT_EQ(memory.other_than(0xAA, 0, kSmall + 8192), 0u);
    EXPECT_EQ(memory.other_than(0xAA, 8 * kSmall + 8192, kSmall), 0u);
  }
}

TEST(FaultsFound, P02_memory_is_decommitted_and_committed_then_it_keeps_what_is_stored) {
  for (const std::size_t from : {kSmall, std::size_t{12288}}) {
    const Memory memory;
    ASSERT_NE(memory.map_over(from, 2 * kMiB, PROT_NONE, kFresh | MAP_NORESERVE), MAP_FAILED);
    ASSERT_EQ(mprotect(memory.at + from, 2 * kMiB, PROT_READ | PROT_WRITE), 0);
    EXPECT_EQ(memory.other_than(0, from, 2 * kMiB), 0u);
    memset(memory.at + from, 0x55, 2 * kMiB);
    memory.page_out();
    EXPECT_EQ(memory.other_than(0x55, from, 2 * kMiB), 0u);
    EXPECT_EQ(memory.other_than(0xAA, 0, from), 0u);
    EXPECT_EQ(memory.other_than(0xAA, from + 2 * kMiB, kSmall), 0u);
  }
}

// Faults P3 and P10: every withdrawal ends, whatever the extents contain, and nothing is lost.
TEST(FaultsFound, P03_parts_are_replaced_and_unmapped_then_a_shortage_ends) {
  const Memory memory(16 * kMiB);
  const File file(kSmall);
  ASSERT_NE(memory.map_over(kSmall + 8192, 2 * kMiB, PROT_NONE, kFresh | MAP_NORESERVE),
            MAP_FAILED);
  ASSERT_NE(memory.map_over(4 * kMiB + 8192, 8192, PROT_READ, MAP_PRIVATE, file.fd), MAP_FAILED);
  ASSERT_EQ(munmap(memory.at + 4 * kMiB + 28672, 8192), 0);
  ASSERT_EQ(munmap(memory.at + 6 * kMiB + 4096, kSmall), 0);
  ASSERT_EQ(mprotect(memory.at + 8 * kMiB, 4096, PROT_READ), 0);
  const Memory others(48 * kMiB);  // The budget is 64 MiB.
  memory.page_out();
  EXPECT_EQ(others.other_than(0xAA, 0, 48 * kMiB), 0u);
  EXPECT_EQ(memory.other_than('f', 4 * kMiB + 8192, 8192), 0u);
  EXPECT_EQ(memory.other_than(0xAA, 4 * kMiB, 8192), 0u);
  EXPECT_EQ(memory.other_than(0xAA, 4 * kMiB + 16384, 12288), 0u);
  EXPECT_EQ(memory.other_than(0xAA, 8 * kMiB, kSmall), 0u);
}

TEST(FaultsFound, P04_memory_is_written_and_decommitted_again_and_again_then_there_is_room) {
  const Memory memory(256 * kMiB);
  for (std::size_t from = 0; from < 256 * kMiB; from += 16 * kMiB) {
    memset(memory.at + from, 0x33, 16 * kMiB);
    ASSERT_NE(memory.map_over(from, 16 * kMiB, PROT_NONE, kFresh | MAP_NORESERVE), MAP_FAILED)
        << strerror(errno);
  }
}

void protect_and_empty(int protection) {
  const Memory memory;
  ASSERT_EQ(mprotect(memory.at, 8 * kMiB, protection), 0);
  ASSERT_EQ(madvise(memory.at, 8 * kMiB, MADV_DONTNEED), 0);
  ASSERT_EQ(mprotect(memory.at, 8 * kMiB, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(memory.other_than(0, 0, 8 * kMiB), 0u);
}

TEST(FaultsFound, P05_read_only_memory_is_emptied_then_it_reads_as_zeros) {
  protect_and_empty(PROT_READ);
}

TEST(FaultsFound, P06_inaccessible_memory_is_emptied_then_it_reads_as_zeros) {
  protect_and_empty(PROT_NONE);
}

TEST(FaultsFound, P07_protected_memory_is_unmapped_and_mapped_then_it_is_fresh) {
  const Memory memory;
  ASSERT_EQ(mprotect(memory.at, 8 * kMiB, PROT_READ), 0);
  ASSERT_EQ(munmap(memory.at + 4 * kMiB, 4 * kMiB), 0);
  ASSERT_NE(memory.map_over(4 * kMiB, 4 * kMiB, PROT_READ | PROT_WRITE, kFresh), MAP_FAILED);
  EXPECT_EQ(memory.other_than(0, 4 * kMiB, 4 * kMiB), 0u);
  EXPECT_EQ(memory.other_than(0xAA, 0, 4 * kMiB), 0u);
}

TEST(FaultsFound, P08_a_read_only_page_is_emptied_then_it_reads_as_zeros) {
  const Memory memory;
  for (const std::size_t page : {0u, 5u, 16u}) {
    ASSERT_EQ(mprotect(memory.at + page * 4096, 4096, PROT_READ), 0);
    ASSERT_EQ(madvise(memory.at + page * 4096, 4096, MADV_DONTNEED), 0);
    EXPECT_EQ(memory.other_than(0, page * 4096, 4096), 0u);
    EXPECT_EQ(memory.other_than(0xAA, (page + 1) * 4096, 4096), 0u);
  }
}

TEST(FaultsFound, P09_thousands_of_stacks_with_guard_pages_then_guards_cost_no_memory) {
  constexpr std::size_t kStacks = 1500, kStack = std::size_t{256} << 10;
  std::vector<void*> stacks;
  for (std::size_t i = 0; i < kStacks; ++i) {
    void* const stack =
        mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(stack, MAP_FAILED);
    ASSERT_EQ(mprotect(stack, 4096, PROT_NONE), 0) << i;
    static_cast<unsigned char*>(stack)[kStack - 8] = static_cast<unsigned char>(i);
    stacks.push_back(stack);
  }
  for (std::size_t i = 0; i < kStacks; ++i) {
    EXPECT_EQ(static_cast<unsigned char*>(stacks[i])[kStack - 8], static_cast<unsigned char>(i));
    EXPECT_EQ(munmap(stacks[i], kStack), 0);
  }
}

TEST(FaultsFound, P10_stores_to_protected_and_unmapped_pages_are_signals) {
  const Memory memory;
  ASSERT_EQ(mprotect(memory.at + 4096, 4096, PROT_READ), 0);
  ASSERT_EQ(mprotect(memory.at + 8192, 4096, PROT_NONE), 0);
  ASSERT_EQ(munmap(memory.at + 12288, 4096), 0);
  memory.page_out();
  struct sigaction action {
  }, before{};
  action.sa_handler = go_back;
  action.sa_flags = SA_NODEFER;
  ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
  for (const std::size_t page : {1u, 2u, 3u}) {
    EXPECT_TRUE(store_is_a_signal(memory.at + page * 4096)) << page;
  }
  ASSERT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
  EXPECT_EQ(memory.other_than(0xAA, 0, 8192), 0u);
}

// The kernel moves memory that is not tiered. The pages that it left are unmapped.
TEST(FaultsFound, P01_a_file_over_a_part_is_moved_away_then_its_place_can_be_mapped_again) {
  const Memory memory;
  const File file(2 * kSmall);
  ASSERT_NE(memory.map_over(kSmall + 8192, kSmall, PROT_READ, MAP_PRIVATE, file.fd), MAP_FAILED);
  void* const moved = mremap(memory.at + kSmall + 8192, kSmall, 2 * kSmall, MREMAP_MAYMOVE);
  ASSERT_NE(moved, MAP_FAILED) << strerror(errno);
  auto* const text = static_cast<unsigned char*>(moved);
  EXPECT_EQ(std::count(text, text + 2 * kSmall, 'f'), static_cast<std::ptrdiff_t>(2 * kSmall));
  EXPECT_EQ(munmap(moved, 2 * kSmall), 0);
  EXPECT_EQ(madvise(memory.at + kSmall + 8192, kSmall, MADV_DONTNEED), -1);
  EXPECT_EQ(errno, ENOMEM) << "nothing is there";
  ASSERT_NE(memory.map_over(kSmall + 8192, kSmall, PROT_READ | PROT_WRITE, kFresh), MAP_FAILED);
  memory.page_out();
  EXPECT_EQ(memory.other_than(0, kSmall + 8192, kSmall), 0u);
  EXPECT_EQ(memory.other_than(0xAA, 0, kSmall + 8192), 0u);
  EXPECT_EQ(memory.other_than(0xAA, 2 * kSmall + 8192, kSmall), 0u);
}

// Some of the addresses are still reserved by tiermem, and the others are free.
TEST(FaultsFound, P01_unmapped_addresses_are_mapped_without_replacing_then_all_of_them_are) {
  constexpr std::size_t kBytes = 8 * kMiB;
  constexpr int kOnlyFree = kFresh | MAP_FIXED_NOREPLACE;
  void* const got = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kFresh, -1, 0);
  ASSERT_NE(got, MAP_FAILED);
  auto* const at = static_cast<unsigned char*>(got);
  memset(at, 1, kBytes);
  ASSERT_EQ(munmap(at, kBytes), 0);
  const File file(kSmall);
  ASSERT_NE(mmap(at + 4 * kMiB, kSmall, PROT_READ, MAP_SHARED | MAP_FIXED, file.fd, 0), MAP_FAILED);
  ASSERT_EQ(munmap(at + 4 * kMiB + 4096, kSmall - 4096), 0);
  EXPECT_EQ(mmap(at + 3 * kMiB, 2 * kMiB, PROT_READ | PROT_WRITE, kOnlyFree, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EEXIST) << "a page of the file is there";
  EXPECT_EQ(at[4 * kMiB], 'f');
  ASSERT_EQ(munmap(at + 4 * kMiB, 4096), 0);
  ASSERT_EQ(mmap(at + 3 * kMiB, 2 * kMiB, PROT_READ | PROT_WRITE, kOnlyFree, -1, 0), at + 3 * kMiB)
      << strerror(errno);
  memset(at + 3 * kMiB, 2, 2 * kMiB);
  EXPECT_EQ(std::count(at + 3 * kMiB, at + 5 * kMiB, 2), static_cast<std::ptrdiff_t>(2 * kMiB));
  EXPECT_EQ(munmap(at + 3 * kMiB, 2 * kMiB), 0);
}

TEST(FaultsFound, P01_shared_memory_is_attached_over_a_part_then_both_keep_their_bytes) {
  constexpr std::size_t kSegment = 3 * kSmall;
  const int id = shmget(IPC_PRIVATE, kSegment - 100, IPC_CREAT | 0600);
  ASSERT_GE(id, 0) << strerror(errno);
  auto* const elsewhere = static_cast<unsigned char*>(shmat(id, nullptr, 0));
  ASSERT_NE(elsewhere, MAP_FAILED);
  ASSERT_EQ(shmctl(id, IPC_RMID, nullptr), 0);  // It lives as long as it is attached.
  memset(elsewhere, 's', kSegment);
  {
    const Memory memory;
    unsigned char* const part = memory.at + kSmall + 8192;
    EXPECT_EQ(shmat(id, part, 0), MAP_FAILED);
    EXPECT_EQ(errno, EINVAL) << "something is there";
    EXPECT_EQ(memory.other_than(0xAA, kSmall, 4 * kSmall), 0u);
    ASSERT_EQ(shmat(id, part + 77, SHM_REMAP | SHM_RND), part) << strerror(errno);
    EXPECT_EQ(memory.other_than('s', kSmall + 8192, kSegment), 0u);
    memset(part, 't', kSegment);
    EXPECT_EQ(madvise(memory.at, kSmall, MADV_DONTNEED), 0);
    const Memory others(96 * kMiB);  // The budget is 64 MiB.
    memory.page_out();
    EXPECT_EQ(std::count(elsewhere, elsewhere + kSegment, 't'),
              static_cast<std::ptrdiff_t>(kSegment));
    EXPECT_EQ(memory.other_than('t', kSmall + 8192, kSegment), 0u);
    EXPECT_EQ(memory.other_than(0xAA, kSmall + 8192 + kSegment, kSmall), 0u);
    // One page of the segment is replaced, and stays when the segment is detached.
    ASSERT_NE(memory.map_over(2 * kSmall, 4096, PROT_READ | PROT_WRITE, kFresh), MAP_FAILED);
    memory.at[2 * kSmall] = 5;
    ASSERT_EQ(shmdt(part), 0) << strerror(errno);
    EXPECT_EQ(shmdt(part), -1);
    EXPECT_EQ(memory.at[2 * kSmall], 5);
    EXPECT_EQ(madvise(part, 4096, MADV_DONTNEED), -1);
    EXPECT_EQ(errno, ENOMEM) << "nothing is there";
    ASSERT_EQ(shmat(id, part, SHM_RDONLY), MAP_FAILED) << "the replaced page is there";
    ASSERT_EQ(munmap(memory.at + 2 * kSmall, 4096), 0);
    ASSERT_EQ(shmat(id, part, SHM_RDONLY), part) << strerror(errno);
    EXPECT_EQ(memory.other_than('t', kSmall + 8192, kSegment), 0u);
    ASSERT_EQ(shmdt(part), 0);
    ASSERT_NE(memory.map_over(kSmall + 8192, kSegment, PROT_READ | PROT_WRITE, kFresh), MAP_FAILED);
    EXPECT_EQ(memory.other_than(0, kSmall + 8192, kSegment), 0u);
    EXPECT_EQ(memory.other_than(0xAA, kSmall, 8192), 0u);
  }
  EXPECT_EQ(std::count(elsewhere, elsewhere + kSegment, 't'),
            static_cast<std::ptrdiff_t>(kSegment));
  EXPECT_EQ(shmdt(elsewhere), 0);
}

// A segment of two pieces: the first one is in front of tiered memory, the second one in it.
TEST(FaultsFound, P01_shared_memory_that_begins_in_front_of_tiered_memory_is_detached_whole) {
  const int id = shmget(IPC_PRIVATE, 2 * kSmall, IPC_CREAT | 0600);
  ASSERT_GE(id, 0) << strerror(errno);
  bool attached = false;
  for (int tries = 0; tries < 20 && !attached; ++tries) {
    const Memory memory;
    ASSERT_EQ(munmap(memory.at, kSmall), 0);
    unsigned char* const front = memory.at - kSmall;
    if (shmat(id, front, 0) == MAP_FAILED) {
      continue;  // Something is mapped there.
    }
    attached = true;
    memset(front, 's', 2 * kSmall);
    ASSERT_EQ(shmdt(front), 0) << strerror(errno);
    for (int again = 0; again < 2; ++again) {
      ASSERT_EQ(shmat(id, front, 0), front) << strerror(errno) << ": nothing is mapped there";
      ASSERT_EQ(shmdt(front), 0) << strerror(errno);
    }
    ASSERT_NE(memory.map_over(0, kSmall, PROT_READ | PROT_WRITE, kFresh | MAP_FIXED_NOREPLACE),
              MAP_FAILED)
        << strerror(errno);
    EXPECT_EQ(memory.other_than(0, 0, kSmall), 0u);
    EXPECT_EQ(memory.other_than(0xAA, kSmall, 8 * kMiB - kSmall), 0u);
  }
  EXPECT_TRUE(attached);
  EXPECT_EQ(shmctl(id, IPC_RMID, nullptr), 0);
}

// Some programs call the kernel by number.
TEST(FaultsFound, P01_calls_on_memory_by_number_then_they_are_those_of_libc) {
  const Memory memory;
  const File file(kSmall);
  unsigned char* const at = memory.at;
  ASSERT_EQ(syscall(SYS_mmap, at + kSmall, kSmall, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    file.fd, 0),
            reinterpret_cast<long>(at + kSmall));
  ASSERT_EQ(syscall(SYS_munmap, at + 3 * kSmall, kSmall), 0);
  ASSERT_EQ(syscall(SYS_mprotect, at + 5 * kSmall, kSmall, PROT_READ), 0);
  ASSERT_EQ(syscall(SYS_madvise, at + 6 * kSmall, kSmall, MADV_DONTNEED), 0);
  EXPECT_EQ(syscall(SYS_madvise, at + 3 * kSmall, 4096, MADV_DONTNEED), -1);
  EXPECT_EQ(errno, ENOMEM);
  unsigned char resident[16];
  EXPECT_EQ(syscall(SYS_mincore, at + 3 * kSmall, kSmall, resident), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(syscall(SYS_mlock, at + 7 * kSmall, 4096), 0);
  EXPECT_EQ(syscall(SYS_madvise, at + 7 * kSmall, 4096, MADV_DONTNEED), -1);
  EXPECT_EQ(errno, EINVAL) << "it is locked";
  EXPECT_EQ(syscall(SYS_munlock, at + 7 * kSmall, 4096), 0);
  const Memory others(96 * kMiB);  // The budget is 64 MiB.
  memory.page_out();
  EXPECT_EQ(file.other_than('f', kSmall), 0u);
  EXPECT_EQ(memory.other_than('f', kSmall, kSmall), 0u);
  EXPECT_EQ(memory.other_than(0xAA, 2 * kSmall, kSmall), 0u);
  EXPECT_EQ(memory.other_than(0xAA, 4 * kSmall, 2 * kSmall), 0u);
  EXPECT_EQ(memory.other_than(0, 6 * kSmall, kSmall), 0u);
  const long moved =
      syscall(SYS_mremap, at + 8 * kSmall, 4 * kSmall, 8 * kSmall, MREMAP_MAYMOVE, nullptr);
  ASSERT_NE(moved, -1) << strerror(errno);
  auto* const there = reinterpret_cast<unsigned char*>(moved);
  EXPECT_EQ(std::count(there, there + 4 * kSmall, 0xAA), static_cast<std::ptrdiff_t>(4 * kSmall));
  EXPECT_EQ(std::count(there + 4 * kSmall, there + 8 * kSmall, 0),
            static_cast<std::ptrdiff_t>(4 * kSmall));
  EXPECT_EQ(syscall(SYS_munmap, moved, 8 * kSmall), 0);
}

// The judge found this fault with wrapped system calls: the pages were holes of a pinned extent.
TEST(FaultsFound, P01_memory_beside_a_mapped_file_was_emptied_before_then_a_call_can_write_to_it) {
  const Memory memory(kSmall * 4);
  const File file(kSmall);
  EXPECT_EQ(mprotect(memory.at + 4096, 4096, PROT_READ), 0);  // The window is altered.
  EXPECT_EQ(madvise(memory.at + kSmall * 3 - 8192, 16384, MADV_DONTNEED), 0);
  EXPECT_NE(memory.map_over(kSmall * 4 - 4096, 4096, PROT_READ, MAP_SHARED, file.fd), MAP_FAILED);
  EXPECT_EQ(pread(file.fd, memory.at + kSmall * 3, 4096, 0), 4096);
  EXPECT_EQ(memory.other_than('f', kSmall * 3, 4096), 0u);
  EXPECT_EQ(memory.other_than(0, kSmall * 3 - 8192, 8192), 0u);
}

TEST(FaultsFound, P01_fresh_memory_between_mapped_files_then_a_call_can_write_to_it) {
  const Memory memory(kSmall * 4);
  const File file(kSmall);
  for (const std::size_t page : {std::size_t{3}, std::size_t{14}}) {
    EXPECT_NE(memory.map_over(page * 4096, 4096, PROT_READ, MAP_SHARED, file.fd), MAP_FAILED);
  }
  EXPECT_NE(memory.map_over(3 * 4096, 4096, PROT_READ | PROT_WRITE, kFresh), MAP_FAILED);
  EXPECT_EQ(pread(file.fd, memory.at + 3 * 4096, 4096, 0), 4096);
  EXPECT_EQ(memory.other_than('f', 3 * 4096, 4096), 0u);
  EXPECT_EQ(munmap(memory.at + 5 * 4096, 4096), 0);
  EXPECT_NE(memory.map_over(5 * 4096, 4096, PROT_READ | PROT_WRITE, kFresh), MAP_FAILED);
  EXPECT_EQ(pread(file.fd, memory.at + 5 * 4096, 4096, 0), 4096);
  EXPECT_EQ(memory.other_than('f', 5 * 4096, 4096), 0u);
  EXPECT_EQ(memory.other_than(0xAA, 6 * 4096, 8 * 4096), 0u);
}

// Ruby maps its objects in pieces of 32 KiB. Formerly none of them was tiered.
TEST(FaultsFound, P18_small_mappings_are_tiered_and_keep_their_bytes) {
  constexpr std::size_t kCount = 4000, kBytes = 32 << 10;  // Twice as many bytes as memory.
  std::vector<unsigned char*> mappings(kCount);
  const auto map = [] {
    void* const got = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kFresh, -1, 0);
    EXPECT_NE(got, MAP_FAILED);
    return static_cast<unsigned char*>(got);
  };
  const auto differs = [&](std::size_t i, unsigned round) {
    const auto value = static_cast<unsigned char>(i * 7 + round + 1);
    return mappings[i][0] != value || mappings[i][kBytes - 1] != value;
  };
  const auto fill = [&](std::size_t i, unsigned round) {
    memset(mappings[i], static_cast<int>((i * 7 + round + 1) & 255), kBytes);
  };
  for (std::size_t i = 0; i < kCount; ++i) {
    mappings[i] = map();
    fill(i, 0);
  }
  EXPECT_LT(resident_bytes(), 96 * kMiB);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_FALSE(differs(i, 0)) << i;
  }
  for (std::size_t i = 0; i < kCount; i += 3) {  // Leaves holes for other mappings.
    ASSERT_EQ(munmap(mappings[i], kBytes), 0);
  }
  for (std::size_t i = 0; i < kCount; i += 3) {
    mappings[i] = map();
    ASSERT_EQ(mappings[i][0] + mappings[i][kBytes / 2] + mappings[i][kBytes - 1], 0) << i;
    fill(i, 1);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_FALSE(differs(i, i % 3 == 0 ? 1 : 0)) << i;
    ASSERT_EQ(munmap(mappings[i], kBytes), 0);
  }
}

// PARI/GP does this with its setting parisizemax.
TEST(FaultsFound, P17_most_of_a_reservation_is_made_inaccessible_then_it_needs_no_memory) {
  constexpr std::size_t kReserved = std::size_t{6} << 30;
  void* const got = mmap(nullptr, kReserved, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(got, MAP_FAILED);
  auto* const at = static_cast<unsigned char*>(got);
  EXPECT_EQ(mprotect(at, kReserved - 64 * kMiB, PROT_NONE), 0) << strerror(errno);
  memset(at + kReserved - kMiB, 1, kMiB);
  EXPECT_EQ(mprotect(at, kReserved, PROT_READ | PROT_WRITE), 0) << strerror(errno);
  at[0] = 7;
  EXPECT_EQ(munmap(got, kReserved), 0);
}

std::size_t anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) {
      return std::stoul(line.substr(8));
    }
  }
  return 0;
}

// Like GHC's run-time system. Records of its 16 million extents would take more than 1 GiB.
TEST(FaultsFound, P18_a_tebibyte_is_reserved_then_records_take_no_memory) {
  constexpr std::size_t kReserved = std::size_t{1} << 40;
  const std::size_t before = anonymous_kib();
  ASSERT_NE(before, 0U);
  void* const got =
      mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(got, MAP_FAILED);
  auto* const at = static_cast<unsigned char*>(got);
  for (std::size_t from = 0; from < 8 * kMiB; from += kMiB) {
    ASSERT_EQ(mmap(at + from, kMiB, PROT_READ | PROT_WRITE,
                   MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
              at + from);
    memset(at + from, 7, kMiB);
  }
  EXPECT_EQ(madvise(at, kReserved, MADV_COLD), 0) << strerror(errno);
  EXPECT_EQ(mprotect(at, kReserved, PROT_NONE), 0) << strerror(errno);
  EXPECT_EQ(mprotect(at, 8 * kMiB, PROT_READ), 0) << strerror(errno);
  EXPECT_EQ(at[5 * kMiB], 7);
  EXPECT_LT(anonymous_kib(), before + (64 << 10));
  EXPECT_EQ(munmap(got, kReserved), 0);
}

// Like MariaDB for InnoDB's pool. With extents of 64 KiB a buffer could not have this many.
TEST(FaultsFound, P19_eight_tebibytes_are_reserved_then_what_is_opened_is_tiered) {
  if (getenv("TIERMEM_WRAP_SYSCALLS") != nullptr) {
    GTEST_SKIP() << "where calls are wrapped the addresses of all tiered memory are 8 TiB";
  }
  constexpr std::size_t kReserved = std::size_t{1} << 43;
  void* const got = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(got, MAP_FAILED);
  auto* const at = static_cast<unsigned char*>(got);
  ASSERT_EQ(mmap(at, kMiB, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            got);
  memset(at, 7, kMiB);
  // If a resident page leaves, its mapping is tiered: other memory has no swap.
  unsigned char page = 1;
  for (int tries = 0; tries < 1000 && (page & 1) != 0; ++tries) {
    usleep(1000);
    ASSERT_EQ(madvise(at, kMiB, MADV_PAGEOUT), 0);
    ASSERT_EQ(mincore(at, 1, &page), 0);
  }
  EXPECT_EQ(page & 1, 0);
  EXPECT_EQ(at[0], 7);
  EXPECT_EQ(at[kMiB - 1], 7);
  EXPECT_EQ(munmap(got, kReserved), 0);
}

}  // namespace
}  // namespace tiermem::test
