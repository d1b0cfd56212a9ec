// Lengths, counts, alignments and times that no program uses on purpose. Each call returns the same
// as libc and the kernel, and leaves the bytes unchanged.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>

#include "preload/evicted.hpp"
#include "preload/words.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kTop = std::size_t{1} << 63;
// Volatile, because the compiler must not know the values.
const volatile std::size_t kTooMuch[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4095, kTop,
                                         kTop + 1, kTop - 4096,   kTop / 2,        kTop / 4};

TEST(FaultsFound, L01_malloc_family_refuses_what_no_memory_has) {
  auto* const kept = static_cast<unsigned char*>(malloc(100));
  memset(kept, 7, 100);
  for (const volatile std::size_t& each : kTooMuch) {
    const std::size_t bytes = each;
    errno = 0;
    EXPECT_EQ(malloc(bytes), nullptr) << bytes;
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(calloc(1, bytes), nullptr) << bytes;
    EXPECT_EQ(calloc(bytes, 16), nullptr) << bytes;
    EXPECT_EQ(calloc(bytes / 2 + 1, bytes / 2 + 1), nullptr) << bytes;
    EXPECT_EQ(realloc(kept, bytes), nullptr) << bytes;
    EXPECT_EQ(reallocarray(nullptr, bytes, 4096), nullptr) << bytes;
    EXPECT_EQ(memalign(64, bytes), nullptr) << bytes;
    EXPECT_EQ(valloc(bytes), nullptr) << bytes;
    EXPECT_EQ(pvalloc(bytes), nullptr) << bytes;
    void* block = kept;
    EXPECT_EQ(posix_memalign(&block, 4096, bytes), ENOMEM) << bytes;
    EXPECT_EQ(posix_memalign(&block, bytes | 1, 16), EINVAL) << bytes;
    EXPECT_EQ(block, kept);
  }
  const volatile std::size_t alignments[] = {kTop, kTop / 2};
  for (const volatile std::size_t& alignment : alignments) {
    EXPECT_EQ(memalign(alignment, 1), nullptr);
    EXPECT_EQ(memalign(alignment, 100 << 20), nullptr);
  }
  for (unsigned i = 0; i < 100; ++i) {
    EXPECT_EQ(kept[i], 7);
  }
  free(kept);
}

TEST(FaultsFound, L01_ranges_that_wrap_are_refused_and_keep_their_bytes) {
  const Evicted memory(8 * kMiB);
  memset(memory.at(), 9, memory.bytes());
  const auto address = reinterpret_cast<std::uintptr_t>(memory.at());
  for (const std::size_t length : {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX - 2 * 4096 + 1,
                                   SIZE_MAX - address + 1, SIZE_MAX - address + 4097}) {
    EXPECT_EQ(munmap(memory.at(), length), -1) << length;
    EXPECT_EQ(madvise(memory.at(), length, MADV_DONTNEED), -1) << length;
    EXPECT_EQ(mprotect(memory.at(), length, PROT_READ | PROT_WRITE), -1) << length;
    EXPECT_EQ(mremap(memory.at(), length, 4096, 0), MAP_FAILED) << length;
  }
  EXPECT_EQ(munmap(memory.at(), std::size_t{1} << 60), -1);
  memory.evict();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < memory.bytes(); i += 64) {
    wrong += memory.at()[i] != std::byte{9} ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(FaultsFound, L01_recvmmsg_with_the_longest_timeout_gets_all_messages) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
  const Evicted memory(kMiB);
  memory.evict();
  mmsghdr messages[3] = {};
  iovec parts[3] = {};
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_EQ(send(ends[0], "word", 4, 0), 4);
    parts[i] = {memory.at() + i * 4096, 4};
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  timespec longest{INT64_MAX, 999'999'999};
  EXPECT_EQ(recvmmsg(ends[1], messages, 3, 0, &longest), 3);
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(memcmp(memory.at() + i * 4096, "word", 4), 0) << i;
  }
  timespec bad{0, 1'000'000'000};
  EXPECT_EQ(recvmmsg(ends[1], messages, 3, 0, &bad), -1);
  EXPECT_EQ(errno, EINVAL);
  close(ends[0]);
  close(ends[1]);
}

TEST(FaultsFound, L01_vectors_whose_lengths_wrap_or_that_are_too_long_are_refused) {
  const Evicted memory(kMiB);
  memory.evict();
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const iovec wraps[] = {{memory.at(), 16}, {memory.at() + 4096, SIZE_MAX - 7}};
  EXPECT_EQ(writev(ends[1], wraps, 2), -1);
  EXPECT_EQ(errno, EINVAL);
  const iovec one = {memory.at(), 16};
  EXPECT_EQ(vmsplice(ends[1], &one, IOV_MAX + 1, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(process_vm_readv(getpid(), &one, 1, &one, (1ul << 32) + 1, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace tiermem::test
