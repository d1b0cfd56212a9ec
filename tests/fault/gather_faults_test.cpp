// Gathers on devices that refuse, shorten or delay reads. Goal: no wrong byte, an error that names
// the cause and the affected row, and a call that ends in time, whatever the device does. Method:
// as in device_faults_test.cpp.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fault/failing_io.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kRow = 256;

class GatherFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    context_ = make_context("io_engine=threads; gather_gap=16K; dram=16M; nvme=" + directory_.path() + ":256M");
    auto made = context_->alloc(64 * kMiB, {.advice = Advice::random, .label = "table"});
    ASSERT_TRUE(made.ok()) << made.message();
    table_ = std::move(made).value();
    ASSERT_TRUE(write_pattern(table_, 1).ok());
    ASSERT_TRUE(table_.evict().ok());
    for (std::uint64_t i = 0; i < 500; ++i) {
      index_.push_back((i + 1) * 7919 % (64 * kMiB / kRow));
    }
    words_.resize(index_.size() * kRow / 8);
  }
  Status gather(Timeout timeout = Timeout::seconds(20), Op* op = nullptr) {
    std::fill(words_.begin(), words_.end(), 0);
    return context_->gather(table_.rows(kRow, index_), words_.data(), timeout, op);
  }
  std::uint64_t wrong_rows() const {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < index_.size(); ++i) {
      n += wrong({&words_[i * kRow / 8], kRow / 8}, 1, index_[i] * kRow / 8);
    }
    return n;
  }
  /// Expects that a gather works, whatever happened before.
  void expect_good() {
    const Status status = gather();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(wrong_rows(), 0u);
    EXPECT_TRUE(eventually([&] { return context_->stats().dram_pinned == 0; }));
    EXPECT_LE(context_->stats().dram_used, 16 * kMiB);
  }

  Directory directory_;
  std::unique_ptr<Context> context_;
  Buffer table_;
  std::vector<std::uint64_t> index_, words_;
};

TEST_F(GatherFaults, a_read_that_fails_names_errno_device_offset_and_row) {
  FailingIo device(directory_.path());
  device.read_error = EIO;
  const Status status = gather();
  ASSERT_EQ(status.code(), Code::io_error) << status.message();
  EXPECT_EQ(status.info()->native, EIO);
  EXPECT_EQ(status.info()->tier, (Place{Kind::block, 0}));
  EXPECT_EQ(status.info()->buffer, table_.handle());
  EXPECT_SAYS(status, "row ");
  EXPECT_SAYS(status, "number ");
  EXPECT_SAYS(status, "table");
  EXPECT_SAYS(status, "offset");
  device.read_error = 0;
  expect_good();
}

TEST_F(GatherFaults, a_read_that_fails_once_is_made_again) {
  FailingIo device(directory_.path());
  device.good_before = 490;  // The last reads fail, and are retried after the device works again.
  device.read_error = EIO;
  std::thread mend([&] {
    EXPECT_TRUE(eventually([&] { return device.failed() != 0; }));
    device.read_error = 0;
  });
  const Status status = gather();
  mend.join();
  // If a read fails twice before the device works again, the result is an error and not wrong
  // bytes.
  EXPECT_TRUE(status.code() == Code::io_error || wrong_rows() == 0) << status.message();
  expect_good();
}

TEST_F(GatherFaults, short_reads_are_gone_on_with) {
  FailingIo device(directory_.path());
  device.most_read = 512;
  expect_good();
  EXPECT_GT(device.shortened(), 0u);
}

TEST_F(GatherFaults, a_device_that_hangs_holds_no_caller_beyond_its_time) {
  FailingIo device(directory_.path());
  device.close_gate();
  const Status late = gather(Timeout::milliseconds(100));
  EXPECT_EQ(late.code(), Code::timed_out) << late.message();
  Op op;
  ASSERT_TRUE(gather(Timeout::forever(), &op).ok());
  EXPECT_EQ(op.poll().code(), Code::busy);
  EXPECT_TRUE(op.cancel().ok());
  const Status cancelled = op.wait(Timeout::seconds(20));
  EXPECT_EQ(cancelled.code(), Code::cancelled) << cancelled.message();
  // The reads in progress must not write into memory that other buffers get now.
  Buffer other = make_buffer(*context_, 8 * kMiB, "other");
  ASSERT_TRUE(write_pattern(other, 9).ok());
  device.open_gate();
  EXPECT_EQ(wrong_words(other, 9), 0u);
  expect_good();
  EXPECT_EQ(wrong_words(other, 9), 0u);
}

TEST_F(GatherFaults, a_buffer_freed_under_a_gather_is_stale_and_one_closed_under_it_shut_down) {
  FailingIo device(directory_.path());
  device.close_gate();
  auto freed = std::async(std::launch::async, [&] { return gather().code(); });
  ASSERT_TRUE(device.wait_for_held(1));
  const Rows rows = table_.rows(kRow, index_);
  table_.reset();
  EXPECT_EQ(freed.get(), Code::stale_handle);
  EXPECT_EQ(context_->gather(rows, words_.data()).code(), Code::stale_handle);
  device.open_gate();
  EXPECT_TRUE(eventually([&] { return context_->stats().block_used == 0; }));

  Buffer another = make_buffer(*context_, 32 * kMiB, "another");
  ASSERT_TRUE(write_pattern(another, 1).ok());
  ASSERT_TRUE(another.evict().ok());
  index_.resize(100);
  for (std::uint64_t& row : index_) {
    row /= 2;
  }
  device.close_gate();
  auto closed = std::async(std::launch::async, [&] {
    return context_->gather(another.rows(kRow, index_), words_.data()).code();
  });
  ASSERT_TRUE(device.wait_for_held(1));
  std::thread open([&] {
    EXPECT_EQ(closed.get(), Code::shut_down);
    device.open_gate();
  });
  EXPECT_TRUE(context_->close(true, Timeout::seconds(20)).ok());
  open.join();
}

}  // namespace
}  // namespace tiermem::test
