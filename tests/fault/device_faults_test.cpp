// A whole context on devices that refuse, shorten or delay transfers. Goal: no byte is lost, the
// caller gets an error that names errno, device and buffer, and everything works again when the
// device does. Method: this program replaces the calls below io_engine=threads (failing_io.hpp).
// tests/unit/block_faults_test.cpp tests how a single transfer is resumed and counted.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fault/failing_io.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

class DeviceFaults : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& dram, const std::string& more = "",
                                bool two = false) {
    return make_context("io_engine=threads; dram=" + dram + "; nvme=" + one_.path() + ":256M" +
                        (two ? "," + other_.path() + ":256M" : "") + more);
  }
  Directory one_, other_;
};

TEST_F(DeviceFaults,
       a_read_that_fails_names_errno_device_and_buffer_and_the_bytes_are_still_there) {
  auto context = make("8M");
  Buffer data = make_buffer(*context, 24 * kMiB, "weights");
  ASSERT_TRUE(write_pattern(data, 1).ok());
  ASSERT_TRUE(data.evict().ok());
  FailingIo device(one_.path());
  for (const int error : {EIO, ENODATA, ENXIO}) {
    device.read_error = error;
    auto view = data.acquire(kRead, 4 * kMiB, 2 * kMiB, Timeout::seconds(10));
    ASSERT_EQ(view.code(), Code::io_error) << view.message();
    EXPECT_EQ(view.status().info()->native, error);
    EXPECT_EQ(view.status().info()->tier, (Place{Kind::block, 0}));
    EXPECT_EQ(view.status().info()->buffer, data.handle());
    EXPECT_SAYS(view, "weights");
    EXPECT_SAYS(view, one_.path().substr(one_.path().size() - 20));
    EXPECT_SAYS(view, "reading");
    EXPECT_SAYS(view, "offset");
    std::vector<std::byte> bytes(4 * kMiB);
    EXPECT_EQ(data.read(0, bytes.data(), bytes.size()).code(), Code::io_error);
    device.read_error = 0;
    EXPECT_EQ(wrong_words(data, 1), 0u) << "after errno " << error;
    ASSERT_TRUE(data.evict().ok());
  }
  EXPECT_GE(context->stats().io_errors, 3u);
}

TEST_F(DeviceFaults, an_error_in_one_range_of_a_list_gives_no_view_at_all) {
  auto context = make("16M");
  Buffer here = make_buffer(*context, 2 * kMiB, "here");
  Buffer there = make_buffer(*context, 4 * kMiB, "there");
  ASSERT_TRUE(write_pattern(there, 2).ok());
  ASSERT_TRUE(there.evict().ok());
  ASSERT_TRUE(write_pattern(here, 1).ok());
  FailingIo device(one_.path());
  device.read_error = EIO;
  const std::array list{here.range(), there.range()};
  std::array<ViewRecord, 2> views{};
  EXPECT_EQ(context->acquire(list, Timeout::seconds(10), views).code(), Code::io_error);
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  device.read_error = 0;
  ASSERT_TRUE(context->acquire(list, Timeout::seconds(10), views).ok());
  EXPECT_TRUE(context->release(views).ok());
  EXPECT_EQ(wrong_words(here, 1) + wrong_words(there, 2), 0u);
}

TEST_F(DeviceFaults, a_prefetch_that_fails_is_no_error_and_the_next_reader_decides) {
  auto context = make("16M");
  Buffer data = make_buffer(*context, 8 * kMiB, "later");
  ASSERT_TRUE(write_pattern(data, 3).ok());
  ASSERT_TRUE(data.evict().ok());
  {
    FailingIo device(one_.path());
    device.read_error = EIO;
    const Access range = data.range();
    Op op;
    ASSERT_TRUE(context->prefetch({&range, 1}, 0, &op).ok());
    const Status ended = op.wait(Timeout::seconds(10));
    EXPECT_TRUE(ended.ok()) << ended.message();
    EXPECT_GT(device.failed(), 0u);
  }
  EXPECT_EQ(wrong_words(data, 3), 0u);
}

TEST_F(DeviceFaults, a_write_that_fails_is_named_and_the_bytes_stay_in_memory) {
  auto context = make("16M");
  Buffer data = make_buffer(*context, 8 * kMiB, "activations");
  ASSERT_TRUE(write_pattern(data, 4).ok());
  FailingIo device(one_.path());
  device.write_error = EIO;
  const Status status = data.evict();
  ASSERT_EQ(status.code(), Code::io_error) << status.message();
  EXPECT_EQ(status.info()->native, EIO);
  EXPECT_SAYS(status, "activations");
  EXPECT_SAYS(status, one_.path().substr(one_.path().size() - 20));
  EXPECT_SAYS(status, "writing");
  EXPECT_EQ(data.info()->resident, 8 * kMiB);
  EXPECT_EQ(data.info()->dirty, 8 * kMiB);
  EXPECT_EQ(wrong_words(data, 4), 0u);
}

// A single device permanently refuses writes. Memory fills, and the refusal must name the device's
// error.
TEST_F(DeviceFaults, when_the_only_device_is_given_up_the_refusal_says_why) {
  auto context = make("8M");
  Buffer data = make_buffer(*context, 8 * kMiB, "resident");
  ASSERT_TRUE(write_pattern(data, 5).ok());
  FailingIo device(one_.path());
  device.write_error = EIO;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(data.evict().ok());
  }
  EXPECT_EQ(context->stats().degraded_devices, 1u);
  Buffer more = make_buffer(*context, 2 * kMiB, "more");
  auto view = more.acquire(kWrite, 0, 0, Timeout::seconds(10));
  ASSERT_EQ(view.code(), Code::no_capacity) << view.message();
  EXPECT_EQ(view.status().info()->budget, 8 * kMiB);
  EXPECT_SAYS(view, "dram");
  EXPECT_SAYS(view, "8.00 MiB");
  EXPECT_SAYS(view, "Input/output error");
  EXPECT_EQ(wrong_words(data, 5), 0u);
  EXPECT_TRUE(context->set_budget({Kind::dram, 0}, 16 * kMiB).ok());
  EXPECT_TRUE(more.acquire(kWrite, 0, 0, Timeout::seconds(10)).ok())
      << "the setting it names helps";
}

// Writes pause after an error, and all of memory is dirty. The pause ends, so no request is
// refused.
TEST_F(DeviceFaults, who_needs_room_waits_for_the_write_that_is_tried_again) {
  auto context = make("8M", "", true);
  Buffer data = make_buffer(*context, 8 * kMiB, "dirty");
  ASSERT_TRUE(write_pattern(data, 9).ok());
  {
    FailingIo device(one_.path()), other(other_.path());
    device.write_error = EIO;
    other.write_error = EIO;
    ASSERT_EQ(data.evict(0, 2 * kMiB).code(), Code::io_error);
  }
  ASSERT_EQ(context->stats().degraded_devices, 0u);
  Buffer more = make_buffer(*context, 2 * kMiB, "more");
  auto view = more.acquire(kWrite, 0, 0, Timeout::seconds(10));
  EXPECT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(wrong_words(data, 9), 0u);
}

TEST_F(DeviceFaults, a_device_that_refuses_writes_is_left_out_and_the_other_takes_them) {
  auto context = make("8M", "", true);
  Buffer data = make_buffer(*context, 48 * kMiB, "spread");
  FailingIo device(one_.path());
  device.write_error = EIO;
  const Status written = write_pattern(data, 6);
  ASSERT_TRUE(written.ok()) << written.message();
  EXPECT_GT(device.failed(), 0u);
  EXPECT_EQ(context->stats().degraded_devices, 1u);
  EXPECT_EQ(wrong_words(data, 6), 0u);
}

TEST_F(DeviceFaults, a_first_tier_that_refuses_writes_is_passed_over) {
  auto context = make("8M", "; slow=" + other_.path() + ":256M");
  FailingIo device(one_.path());
  device.write_error = EIO;
  Buffer data = make_buffer(*context, 48 * kMiB, "past");
  ASSERT_TRUE(write_pattern(data, 8).ok());
  EXPECT_GT(device.failed(), 0u);
  EXPECT_EQ(wrong_words(data, 8), 0u);
  const Stats stats = context->stats();
  EXPECT_EQ(stats.tier({Kind::block, 0})->bytes_in, 0u);
  EXPECT_GE(stats.tier({Kind::block, 1})->used, 32 * kMiB);
}

TEST_F(DeviceFaults, a_write_error_now_and_then_loses_nothing) {
  auto context = make("8M", "", true);
  Buffer data = make_buffer(*context, 48 * kMiB, "spread");
  FailingIo device(one_.path());
  for (std::uint64_t pass = 0; pass < 2; ++pass) {
    device.good_before = 3;
    device.write_error = ENOSPC;
    std::thread healer([&] {
      while (device.failed() == pass) {
        std::this_thread::yield();
      }
      device.write_error = 0;
    });
    const Status written = write_pattern(data, 7 + pass);
    healer.join();
    ASSERT_TRUE(written.ok()) << written.message();
    ASSERT_EQ(wrong_words(data, 7 + pass), 0u);
  }
  EXPECT_GT(context->stats().io_retries, 0u);
}

TEST_F(DeviceFaults, short_reads_and_writes_of_one_of_two_directories_are_made_whole) {
  for (const std::uint32_t most : {65536u, 4096u * 3, 1000u * 512}) {
    auto context = make("8M", "", true);
    Buffer data = make_buffer(*context, 32 * kMiB, "short");
    FailingIo device(one_.path());
    device.most_read = device.most_written = most;
    ASSERT_TRUE(write_pattern(data, most).ok());
    ASSERT_TRUE(data.evict().ok());  // The slower device gets little, and evict() waits for it too.
    EXPECT_EQ(wrong_words(data, most), 0u);
    EXPECT_GT(device.shortened(), 0u) << most;
    EXPECT_GT(context->stats().io_retries, 0u) << most;
    EXPECT_EQ(context->stats().io_errors, 0u);
  }
}

TEST_F(DeviceFaults, an_adopted_file_that_cannot_be_read_names_the_file_and_heals) {
  const std::string path = other_.path() + "/model.bin";
  std::vector<std::uint64_t> words(4 * kMiB / 8);
  fill(words, 8);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(words.data()), 4 * kMiB);
  auto context = make("8M");
  auto file = context->adopt_file(path.c_str());
  ASSERT_TRUE(file.ok()) << file.message();
  FailingIo device(other_.path());
  device.read_error = EIO;
  auto view = file->acquire(kRead, 0, 0, Timeout::seconds(10));
  ASSERT_EQ(view.code(), Code::io_error) << view.message();
  EXPECT_EQ(view.status().info()->native, EIO);
  EXPECT_SAYS(view, "model.bin");
  device.read_error = 0;
  EXPECT_EQ(wrong_words(*file, 8), 0u);
}

// ---- A device that does not answer --------------------------------------------------------------

TEST_F(DeviceFaults, a_device_that_hangs_costs_a_reader_its_timeout_and_no_more) {
  auto context = make("16M");
  Buffer data = make_buffer(*context, 4 * kMiB, "hanging");
  Buffer other = make_buffer(*context, 2 * kMiB, "other");
  ASSERT_TRUE(write_pattern(data, 9).ok());
  ASSERT_TRUE(data.evict().ok());
  ASSERT_TRUE(write_pattern(other, 10).ok());
  FailingIo device(one_.path());
  device.close_gate();
  auto view = data.acquire(kRead, 0, 0, Timeout::milliseconds(50));
  EXPECT_EQ(view.code(), Code::timed_out) << view.message();
  EXPECT_SAYS(view, "extents");
  EXPECT_EQ(wrong_words(other, 10), 0u) << "a buffer in memory does not wait for the device";
  device.open_gate();
  EXPECT_EQ(wrong_words(data, 9), 0u);
}

TEST_F(DeviceFaults,
       a_cancelled_read_in_flight_ends_at_once_and_its_memory_only_when_the_device_is_done) {
  auto context = make("8M");
  Buffer data = make_buffer(*context, 8 * kMiB, "cancelled");
  ASSERT_TRUE(write_pattern(data, 11).ok());
  ASSERT_TRUE(data.evict().ok());
  FailingIo device(one_.path());
  device.close_gate();
  const Access range = data.range();
  ViewRecord record;
  auto op = context->acquire_async({&range, 1}, {&record, 1});
  ASSERT_TRUE(op.ok()) << op.message();
  ASSERT_TRUE(device.wait_for_held(1));
  ASSERT_TRUE(op->cancel().ok());
  EXPECT_EQ(op->wait(Timeout::seconds(10)).code(), Code::cancelled);
  EXPECT_EQ(record.data, nullptr);
  // The device still uses the frames, so no other buffer may get them yet.
  Buffer next = make_buffer(*context, 8 * kMiB, "next");
  EXPECT_FALSE(next.acquire(kWrite, 0, 0, Timeout::milliseconds(20)).ok());
  device.open_gate();
  ASSERT_TRUE(write_pattern(next, 12).ok());
  EXPECT_EQ(wrong_words(data, 11), 0u);
  EXPECT_EQ(wrong_words(next, 12), 0u);
}

TEST_F(DeviceFaults, a_buffer_freed_under_its_read_ends_the_readers_and_harms_nobody) {
  auto context = make("8M");
  Buffer data = make_buffer(*context, 8 * kMiB, "freed");
  ASSERT_TRUE(write_pattern(data, 13).ok());
  ASSERT_TRUE(data.evict().ok());
  FailingIo device(one_.path());
  device.close_gate();
  const Access range = data.range();
  ViewRecord record;
  auto op = context->acquire_async({&range, 1}, {&record, 1});
  ASSERT_TRUE(op.ok()) << op.message();
  ASSERT_TRUE(device.wait_for_held(1));
  const Handle handle = data.detach();
  ASSERT_TRUE(context->free(handle).ok());
  const Status ended = op->wait(Timeout::seconds(10));
  EXPECT_EQ(ended.code(), Code::stale_handle);
  EXPECT_SAYS(ended, "freed");
  EXPECT_EQ(context->info(handle).code(), Code::stale_handle);
  device.open_gate();
  Buffer next = make_buffer(*context, 24 * kMiB, "next");
  ASSERT_TRUE(write_pattern(next, 14).ok());
  EXPECT_EQ(wrong_words(next, 14), 0u);
  EXPECT_TRUE(eventually([&] { return context->stats().buffers == 1; }));
}

TEST_F(DeviceFaults, a_buffer_freed_under_its_write_gives_its_slot_back_when_the_write_has_ended) {
  auto context = make("16M");
  Buffer data = make_buffer(*context, 8 * kMiB, "freed");
  ASSERT_TRUE(write_pattern(data, 15).ok());
  FailingIo device(one_.path());
  device.close_gate();
  auto evicting = std::async(std::launch::async, [&] { return data.evict(); });
  ASSERT_TRUE(device.wait_for_held(1));
  ASSERT_TRUE(context->free(data.detach()).ok());
  EXPECT_EQ(evicting.get().code(), Code::stale_handle);
  device.open_gate();
  Buffer next = make_buffer(*context, 48 * kMiB, "next");
  ASSERT_TRUE(write_pattern(next, 16).ok());
  EXPECT_EQ(wrong_words(next, 16), 0u);
  next.reset();
  EXPECT_TRUE(eventually([&] { return context->stats().block_used == 0; }));
}

TEST_F(DeviceFaults, closing_while_a_device_hangs_answers_in_time_and_ends_when_it_answers) {
  auto context = make("16M");
  Buffer data = make_buffer(*context, 4 * kMiB, "hanging");
  ASSERT_TRUE(write_pattern(data, 17).ok());
  ASSERT_TRUE(data.evict().ok());
  FailingIo device(one_.path());
  device.close_gate();
  const Access range = data.range();
  ViewRecord record;
  auto op = context->acquire_async({&range, 1}, {&record, 1});
  ASSERT_TRUE(op.ok()) << op.message();
  ASSERT_TRUE(device.wait_for_held(1));
  const Status closed = context->close(true, Timeout::milliseconds(50));
  EXPECT_EQ(closed.code(), Code::timed_out);
  EXPECT_SAYS(closed, "50 ms");
  EXPECT_EQ(op->wait(Timeout::seconds(10)).code(), Code::shut_down);
  EXPECT_EQ(data.acquire(kRead).code(), Code::shut_down);
  data.detach();
  device.open_gate();
  context.reset();
}

}  // namespace
}  // namespace tiermem::test
