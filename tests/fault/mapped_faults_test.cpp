// Mapped buffers on failing devices, and when userfaultfd is refused. Goal: no wrong byte is
// visible and none is lost, and only the thread that touches unavailable bytes gets SIGBUS. Method:
// as in device_faults_test.cpp; the test catches SIGBUS. With io_engine=threads a thread of its own
// reads the faults, and not the mover's thread.
#include <gtest/gtest.h>
#include <setjmp.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "fault/child.hpp"
#include "fault/failing_io.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

thread_local sigjmp_buf t_back;

void jump_back(int) {
  siglongjmp(t_back, 1);
}

/// Returns whether a read of the word raised SIGBUS.
bool bus_error(const volatile std::uint64_t& word) {
  if (sigsetjmp(t_back, 1) != 0) {
    return true;
  }
  [[maybe_unused]] const std::uint64_t seen = word;
  return false;
}

class MappedFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    struct sigaction action {};
    action.sa_handler = jump_back;
    sigaction(SIGBUS, &action, &before_);
    open();
  }
  void TearDown() override { sigaction(SIGBUS, &before_, nullptr); }
  void open() {
    context_ = make_context("io_engine=threads; dram=8M; nvme=" + directory_.path() + ":256M");
    auto made = context_->alloc(24 * kMiB, {.flags = kMapped, .label = "mapped"});
    if (made.code() == Code::unsupported) {
      GTEST_SKIP() << made.message();
    }
    ASSERT_TRUE(made.ok()) << made.message();
    buffer_ = std::move(made).value();
    words_ = {reinterpret_cast<std::uint64_t*>(*buffer_.address()), 24 * kMiB / 8};
  }

  Directory directory_;
  std::unique_ptr<Context> context_;
  Buffer buffer_;
  std::span<std::uint64_t> words_;
  struct sigaction before_ {};
};

TEST_F(MappedFaults, a_read_error_is_a_bus_error_for_who_touched_and_the_bytes_come_back) {
  fill(words_, 1);
  ASSERT_TRUE(buffer_.evict().ok());
  FailingIo device(directory_.path());
  for (const int error : {EIO, ENODATA}) {
    device.read_error = error;
    EXPECT_TRUE(bus_error(words_[1000]));
    EXPECT_TRUE(bus_error(words_[2 * kMiB / 8 + 5]));
    device.read_error = 0;
    EXPECT_TRUE(bus_error(words_[1001])) << "the page stays poisoned";
    EXPECT_FALSE(bus_error(words_[4 * kMiB / 8]));
    ASSERT_TRUE(buffer_.acquire(kRead, 0, 4 * kMiB, Timeout::seconds(10)).ok());
    EXPECT_EQ(wrong(words_, 1), 0u) << "after errno " << error;
    ASSERT_TRUE(buffer_.evict().ok());
  }
  EXPECT_GE(context_->stats().poisoned_touches, 4u);
}

TEST_F(MappedFaults, what_cannot_be_written_down_stays_and_is_right) {
  fill(words_.first(6 * kMiB / 8), 2);
  FailingIo device(directory_.path());
  device.write_error = EIO;
  const Status refused = buffer_.evict();
  EXPECT_FALSE(refused.ok());
  EXPECT_SAYS(refused, "mapped");
  EXPECT_EQ(wrong(words_.first(6 * kMiB / 8), 2), 0u);
  // The device was given up after the write error: it serves reads but gets no writes.
  device.write_error = 0;
  EXPECT_FALSE(buffer_.evict().ok());
  EXPECT_EQ(context_->stats().degraded_devices, 1u);
  EXPECT_EQ(wrong(words_.first(6 * kMiB / 8), 2), 0u);
}

TEST_F(MappedFaults, a_running_writer_loses_nothing_while_writes_are_short_and_then_fail) {
  std::atomic<bool> stop{false};
  std::uint64_t rounds = 0;
  std::thread writer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      for (std::size_t i = 0; i < 6 * kMiB / 8; i += 512) {
        words_[i] += 1;
      }
      ++rounds;
    }
  });
  {
    FailingIo device(directory_.path());
    for (int i = 0; i < 60; ++i) {
      device.most_written = i % 2 == 1 ? 4096 : 0;
      device.write_error = i > 50 ? EIO : 0;
      (void)buffer_.evict();
    }
    device.write_error = 0;
    stop = true;
    writer.join();
  }
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < 6 * kMiB / 8; i += 512) {
    bad += words_[i] != rounds ? 1 : 0;
  }
  EXPECT_EQ(bad, 0u);
}

// As before Linux 6.8. Views of large extents still use mremap at the same time.
TEST(MappedRefused, where_pages_cannot_be_moved_they_are_copied) {
  SKIP_IF(in_child([] {
    constexpr long kMove = 0xC028AA05;
    if (!refuse({{SYS_ioctl, EINVAL, kMove}})) {
      return not_here(std::string("no seccomp: ") + std::strerror(errno));
    }
    const Directory directory;
    auto context = Context::create("dram=8M; nvme=" + directory.path() + ":128M; mechanism=auto");
    EXPECT_TRUE(context.ok()) << context.message();
    auto mapped = (*context)->alloc(32 * kMiB, {.flags = kMapped});
    if (mapped.code() == Code::unsupported) {
      return not_here(mapped.message());
    }
    EXPECT_TRUE(mapped.ok()) << mapped.message();
    const std::span<std::uint64_t> words{reinterpret_cast<std::uint64_t*>(*mapped->address()),
                                         32 * kMiB / 8};
    fill(words, 1);
    Buffer other = make_buffer(**context, 32 * kMiB, "viewed");
    EXPECT_TRUE(write_pattern(other, 2).ok());
    EXPECT_EQ(wrong(words, 1), 0u);
    EXPECT_EQ(wrong_words(other, 2), 0u);
    const Stats stats = (*context)->stats();
    EXPECT_GT(stats.moved_by_copy, 0u);
    EXPECT_GT(stats.moved_by_remap, 0u);
    EXPECT_EQ(stats.moved_by_uffd, 0u);
    EXPECT_EQ(Context::create("dram=8M; nvme=off; mechanism=uffd_move").code(), Code::unsupported);
    return ChildEnd();
  }));
}

// As in a container. Following forks requires userfaultfd, also for the preload library.
TEST(MappedRefused, without_userfaultfd_touches_are_signals_but_where_forks_are_followed) {
  SKIP_IF(in_child([] {
    if (!refuse({{SYS_userfaultfd, EPERM}, {SYS_ioctl, EPERM, 0xAA00}})) {
      return not_here(std::string("no seccomp: ") + std::strerror(errno));
    }
    const Directory directory;
    const std::string tiers = "mechanism=auto; dram=8M; nvme=" + directory.path() + ":128M";
    auto context = Context::create(tiers);
    EXPECT_TRUE(context.ok()) << context.message();
    auto mapped = (*context)->alloc(32 * kMiB, {.flags = kMapped});
    EXPECT_TRUE(mapped.ok()) << mapped.message();
    const std::span<std::uint64_t> words{reinterpret_cast<std::uint64_t*>(*mapped->address()),
                                         32 * kMiB / 8};
    fill(words, 1);
    EXPECT_EQ(wrong(words, 1), 0u);
    auto follows = Context::create(tiers + "; fork=follow");
    EXPECT_TRUE(follows.ok()) << follows.message();
    auto buffer = (*follows)->alloc(4 * kMiB, {.flags = kMapped});
    EXPECT_EQ(buffer.code(), Code::unsupported);
    EXPECT_SAYS(buffer, "userfaultfd");
    EXPECT_SAYS(buffer, "mapped");
    return ChildEnd();
  }));
}

// Without userfaultfd, unreadable bytes also raise SIGBUS.
TEST(MappedRefused, a_read_error_without_userfaultfd_is_a_bus_error) {
  SKIP_IF(in_child([] {
    struct sigaction action {};
    action.sa_handler = jump_back;
    sigaction(SIGBUS, &action, nullptr);
    const Directory directory;
    auto context = Context::create(
        "mechanism=auto; userfault=off; io_engine=threads; dram=8M; nvme=" + directory.path() +
        ":128M");
    EXPECT_TRUE(context.ok()) << context.message();
    auto mapped = (*context)->alloc(24 * kMiB, {.flags = kMapped});
    EXPECT_TRUE(mapped.ok()) << mapped.message();
    const std::span<std::uint64_t> words{reinterpret_cast<std::uint64_t*>(*mapped->address()),
                                         24 * kMiB / 8};
    fill(words, 1);
    EXPECT_TRUE(mapped->evict().ok());
    FailingIo device(directory.path());
    device.read_error = EIO;
    EXPECT_TRUE(bus_error(words[1000]));
    device.read_error = 0;
    EXPECT_TRUE(bus_error(words[1001])) << "the page stays poisoned";
    EXPECT_TRUE(mapped->acquire(kRead, 0, 4 * kMiB, Timeout::seconds(10)).ok());
    EXPECT_EQ(wrong(words, 1), 0u);
    return ChildEnd();
  }));
}

}  // namespace
}  // namespace tiermem::test
