// Small copies that wait at the same time are started together: with one driver call for many, if
// the driver has one (CUDA 12.8), and with one event. The fake driver counts calls, and each
// block's bytes are checked.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "gpu/gpu_context.hpp"
#include "gpu/work.hpp"

namespace tiermem::test {
namespace {

class GpuBatches : public GpuContext {
 protected:
  static constexpr std::chrono::milliseconds kLong{5};
  static constexpr std::uint64_t kBlock = 64 << 10, kBlocks = 96;

  void make_blocks() {
    open("0:16M", "dram=64M");
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      host_puts(add(kBlock), i);
    }
  }
  std::vector<Access> list(std::uint32_t mode) const {
    std::vector<Access> all;
    for (const Buffer& buffer : buffers) {
      all.push_back(buffer.range(0, 0, mode));
      all.back().where = kGpu;
    }
    return all;
  }
  /// Brings all blocks to the device with one request, and releases them.
  Status bring(std::uint32_t mode = kRead) {
    const std::vector<Access> all = list(mode);
    std::vector<ViewRecord> views(all.size());
    Status acquired = context->acquire(all, kSoon, views);
    return acquired.ok() ? context->release(views) : std::move(acquired);
  }
  struct Counted {
    std::uint64_t singles, batches, events;
  };
  Counted count(const char* single) const {
    const FakeCuda& fake = fake_cuda();
    return {fake.calls(single), fake.calls("cuMemcpyBatchAsync"), fake.calls("cuEventRecord")};
  }
  /// Brings all blocks to the device, while each copy's call takes long. Returns the calls for it.
  /// Brings them after a request that failed: other copies of its batch may end with the same error
  /// after its answer, and fail a request that waits for them, too.
  Status bring_again() {
    Status brought = bring();
    for (int tries = 0; tries < 100 && brought.code() == Code::io_error; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      brought = bring();
    }
    return brought;
  }
  Counted count_to_bring(std::chrono::microseconds slow = kLong) {
    fake_cuda().slow_call("cuMemcpyHtoDAsync", slow);
    const Counted before = count("cuMemcpyHtoDAsync");
    const Status brought = bring();
    EXPECT_TRUE(brought.ok()) << brought.message();
    const Counted after = count("cuMemcpyHtoDAsync");
    fake_cuda().slow_call("cuMemcpyHtoDAsync", {});
    return {after.singles - before.singles, after.batches - before.batches,
            after.events - before.events};
  }
  bool device_has(Work& work, std::uint64_t seed) const {
    bool right = true;
    for (std::uint64_t i = 0; i < buffers.size(); ++i) {
      work.begin_get(on_gpu(buffers[i], kRead));
      right = work.got(seed + i) && right;
    }
    return right;
  }
};

TEST_F(GpuBatches, blocks_that_come_together_cost_a_call_and_an_event_for_many) {
  make_blocks();
  const Program program;
  Work work(program, kBlock);
  const Counted calls = count_to_bring();
  EXPECT_GE(calls.batches, 1u);
  EXPECT_LE(calls.singles, kBlocks / 4);
  EXPECT_LE(calls.events, kBlocks / 4);
  EXPECT_EQ(context->stats().gpu_bytes_in, kBlocks * kBlock);
  EXPECT_TRUE(device_has(work, 0));
}

TEST_F(GpuBatches, extents_of_2_mib_come_together_too) {
  constexpr std::uint64_t kCount = 8;
  open("0:32M", "dram=64M");
  for (std::uint64_t i = 0; i < kCount; ++i) {
    host_puts(add(kChunk), i);
  }
  const Program program;
  const Counted calls = count_to_bring();
  EXPECT_GE(calls.batches, 1u);
  EXPECT_LE(calls.singles, kCount / 2);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(program.holds(on_gpu(buffers[i], kRead), i)) << i;
  }
}

TEST_F(GpuBatches, blocks_that_leave_together_do_so_too) {
  make_blocks();
  const Program program;
  Work work(program, kBlock);
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    const View view = on_gpu(buffers[i], kWrite);
    work.begin_put(view, 500 + i);
    work.finish();
  }
  fake_cuda().slow_call("cuMemcpyDtoHAsync", kLong);
  const Counted before = count("cuMemcpyDtoHAsync");
  std::vector<Access> all = list(kRead);
  for (Access& each : all) {
    each.where = {};
  }
  std::vector<ViewRecord> views(all.size());
  ASSERT_TRUE(context->acquire(all, kSoon, views).ok());
  const Counted after = count("cuMemcpyDtoHAsync");
  fake_cuda().slow_call("cuMemcpyDtoHAsync", {});
  EXPECT_LE(after.singles - before.singles, kBlocks / 4);
  EXPECT_LE(after.events - before.events, kBlocks / 4);
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    EXPECT_EQ(wrong({static_cast<const std::uint64_t*>(views[i].data), kBlock / 8}, 500 + i), 0u);
  }
  ASSERT_TRUE(context->release(views).ok());
}

TEST_F(GpuBatches, a_driver_without_the_call_has_one_event_for_many_all_the_same) {
  fake_cuda().hide("cuMemcpyBatchAsync");
  make_blocks();
  const Program program;
  Work work(program, kBlock);
  const Counted calls = count_to_bring(std::chrono::microseconds(500));
  EXPECT_EQ(calls.batches, 0u);
  EXPECT_EQ(calls.singles, kBlocks);
  EXPECT_LE(calls.events, kBlocks / 4);
  EXPECT_TRUE(device_has(work, 0));
}

TEST_F(GpuBatches, an_older_driver_is_asked_for_none) {
  fake_cuda().set_driver_version(12000);
  make_blocks();
  const Program program;
  Work work(program, kBlock);
  ASSERT_TRUE(bring().ok());
  EXPECT_EQ(fake_cuda().calls("cuMemcpyBatchAsync"), 0u);
  EXPECT_TRUE(device_has(work, 0));
}

TEST_F(GpuBatches, what_is_refused_together_goes_one_by_one) {
  make_blocks();
  const Program program;
  Work work(program, kBlock);
  fake_cuda().fail_nth("cuMemcpyBatchAsync", 1, cuda::kInvalidValue, FakeCuda::kForever);
  fake_cuda().slow_call("cuMemcpyHtoDAsync", std::chrono::microseconds(500));
  ASSERT_TRUE(bring().ok());
  fake_cuda().slow_call("cuMemcpyHtoDAsync", {});
  EXPECT_GE(fake_cuda().calls("cuMemcpyBatchAsync"), 1u);
  EXPECT_TRUE(device_has(work, 0));
}

// One copy of many fails. Its own request gets the error, and the bytes of other requests are
// right.
TEST_F(GpuBatches, one_that_is_refused_takes_no_other_with_it) {
  fake_cuda().hide("cuMemcpyBatchAsync");
  make_blocks();
  const Program program;
  Work work(program, kBlock);
  fake_cuda().slow_call("cuMemcpyHtoDAsync", std::chrono::microseconds(500));
  fake_cuda().fail_nth("cuMemcpyHtoDAsync", 20, cuda::kInvalidValue);
  EXPECT_EQ(bring().code(), Code::io_error);
  fake_cuda().slow_call("cuMemcpyHtoDAsync", {});
  ASSERT_TRUE(bring_again().ok());
  EXPECT_TRUE(device_has(work, 0));
}

TEST_F(GpuBatches, an_event_that_is_refused_ends_all_of_them_and_they_come_again) {
  make_blocks();
  const Program program;
  Work work(program, kBlock);
  fake_cuda().slow_call("cuMemcpyHtoDAsync", kLong);
  fake_cuda().fail_nth("cuEventRecord", 2, cuda::kInvalidValue);
  EXPECT_EQ(bring().code(), Code::io_error);
  fake_cuda().slow_call("cuMemcpyHtoDAsync", {});
  ASSERT_TRUE(bring_again().ok());
  EXPECT_TRUE(device_has(work, 0));
}

// A stream waits for the event of its block's batch, and then sees the bytes.
TEST_F(GpuBatches, streams_wait_for_blocks_that_come_together) {
  make_blocks();
  const Program program;
  Work work(program, kBlock);
  fake_cuda().slow_copies(0, std::chrono::milliseconds(1));
  const std::vector<Access> all = list(kRead);
  std::vector<ViewRecord> views(all.size());
  ASSERT_TRUE(context->acquire(all, kSoon, views, work.order()).ok());
  std::vector<std::uint64_t> got(kBlocks * kBlock / 8);
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(program.driver().cuMemcpyDtoHAsync(
                  got.data() + i * kBlock / 8, reinterpret_cast<cuda::DevicePointer>(views[i].data),
                  kBlock, work.stream()),
              cuda::kSuccess);
  }
  ASSERT_TRUE(context->release(views, work.order()).ok());
  work.finish();
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    EXPECT_EQ(wrong({got.data() + i * kBlock / 8, kBlock / 8}, i), 0u) << i;
  }
}

}  // namespace
}  // namespace tiermem::test
