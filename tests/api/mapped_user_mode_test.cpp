// Mapped buffers when userfaultfd serves only touches by the program, as for a user without
// privileges (userfault=user_mode). Goal: touches work as usual, also around forks. A system call
// on absent bytes returns EFAULT; it neither waits nor uses other bytes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

#include "support/directory.hpp"
#include "support/forked_child.hpp"
#include "support/made.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

struct MappedUserMode : ::testing::Test {
  void open(const std::string& more) {
    context =
        make_context("dram=16M; nvme=" + directory.path() + ":512M; userfault=user_mode" + more);
    ASSERT_NE(context, nullptr);
    auto made = context->alloc(64 * kMiB, {.flags = kMapped, .label = "user mode"});
    if (made.code() == Code::unsupported) {
      GTEST_SKIP() << made.message();
    }
    ASSERT_TRUE(made.ok()) << made.message();
    buffer = std::move(made).value();
    words = {reinterpret_cast<std::uint64_t*>(*buffer.address()), buffer.size() / 8};
    fill(words, 1);
  }
  Directory directory;
  std::unique_ptr<Context> context;
  Buffer buffer;
  std::span<std::uint64_t> words;
};

TEST_F(MappedUserMode, system_calls_on_absent_bytes_fail_and_touches_do_not) {
  open("");
  ASSERT_EQ(wrong(words, 1), 0u);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_TRUE(buffer.evict(0, 2 * kMiB).ok());
  EXPECT_EQ(write(ends[1], &words[0], 4096), -1);
  EXPECT_EQ(errno, EFAULT);
  // The page was touched first, so it is present.
  const std::uint64_t first = *static_cast<volatile std::uint64_t*>(&words[0]);
  EXPECT_EQ(write(ends[1], &words[0], 4096), 4096);
  ASSERT_TRUE(buffer.evict(2 * kMiB, 2 * kMiB).ok());
  EXPECT_EQ(read(ends[0], &words[2 * kMiB / 8], 4096), -1);
  EXPECT_EQ(errno, EFAULT);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(words[0], first);
  EXPECT_EQ(wrong(words, 1), 0u);
}

// To leave, shared pages must be copied by the kernel, which then meets holes that it may not fill
// by a fault.
TEST_F(MappedUserMode, pages_that_a_child_shares_leave_with_their_holes) {
  open("; fork=follow");
  const std::uint64_t resident = buffer.info()->resident;
  ASSERT_GT(resident, 0u);
  const pid_t child = child_that([&] {
    usleep(200'000);
    return wrong(words, 1) == 0;
  });
  ASSERT_GT(child, 0);
  const std::uint64_t last = buffer.size() - 4096;
  ASSERT_EQ(madvise(reinterpret_cast<std::byte*>(words.data()) + last, 4096, MADV_DONTNEED), 0);
  const Status evicted = buffer.evict();
  EXPECT_TRUE(evicted.ok()) << evicted.message();
  EXPECT_EQ(wrong(words.first(last / 8), 1), 0u);
  for (const std::uint64_t word : words.subspan(last / 8)) {
    EXPECT_EQ(word, 0u);
  }
  EXPECT_TRUE(ended_well(child));
}

}  // namespace
}  // namespace tiermem::test
