// Queries about device memory: some answers come from the tier, and some from the driver.
#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "preload_cuda/program.hpp"

namespace tiermem::test {
namespace {

using CudaAllocation = CudaProgram;

TEST_F(CudaAllocation, what_is_large_is_the_tier_s_and_small_is_the_driver_s) {
  const auto large = filled(2 * kMiB, 1);
  EXPECT_EQ(of_the_driver(), 0u);
  const auto small = filled(2 * kMiB - 1, 2);
  EXPECT_EQ(of_the_driver(), 1u);
  EXPECT_EQ(wrong(large, 2 * kMiB, 1), 0u);
  EXPECT_EQ(wrong(small, 2 * kMiB - 1, 2), 0u);
  freed(small);
  EXPECT_EQ(of_the_driver(), 0u);
  EXPECT_EQ(fake.calls("cuMemFree"), 1u);
  freed(large);
  EXPECT_EQ(fake.calls("cuMemFree"), 1u);
}

TEST_F(CudaAllocation, a_block_is_freed_by_its_first_address_and_once) {
  const auto block = allocated(4 * kMiB);
  EXPECT_EQ(cu.cuMemFree_v2(block + 512), cuda::kInvalidValue);
  EXPECT_EQ(cu.cuMemFree_v2(block), cuda::kSuccess);
  EXPECT_EQ(cu.cuMemFree_v2(block), cuda::kInvalidValue);
  EXPECT_EQ(cu.cuMemFree_v2(0), cuda::kSuccess);
  cuda::DevicePointer none = 0;
  EXPECT_EQ(cu.cuMemAlloc_v2(nullptr, 4 * kMiB), cuda::kInvalidValue);
  EXPECT_EQ(cu.cuMemAlloc_v2(&none, 0), cuda::kInvalidValue);
}

TEST_F(CudaAllocation, a_block_is_one_range) {
  const auto block = allocated(5 * kMiB);
  cuda::DevicePointer begin = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(cu.cuMemGetAddressRange_v2(&begin, &bytes, block + 3 * kMiB), cuda::kSuccess);
  EXPECT_EQ(begin, block);
  EXPECT_EQ(bytes, 6 * kMiB);  // Whole pieces of 2 MiB.
  begin = bytes = 0;
  EXPECT_EQ(cu.cuPointerGetAttribute(&begin, 11, block + 3 * kMiB), cuda::kSuccess);
  EXPECT_EQ(cu.cuPointerGetAttribute(&bytes, 12, block + 3 * kMiB), cuda::kSuccess);
  EXPECT_EQ(begin, block);
  EXPECT_EQ(bytes, 6 * kMiB);
  unsigned type = 0;
  begin = bytes = 0;
  std::array<int, 3> which = {2, 11, 12};
  std::array<void*, 3> values = {&type, &begin, &bytes};
  EXPECT_EQ(cu.cuPointerGetAttributes(3, which.data(), values.data(), block + 3 * kMiB),
            cuda::kSuccess);
  EXPECT_EQ(type, 2u);
  EXPECT_EQ(begin, block);
  EXPECT_EQ(bytes, 6 * kMiB);

  const auto small = allocated(4096);
  EXPECT_EQ(cu.cuMemGetAddressRange_v2(&begin, &bytes, small + 8), cuda::kSuccess);
  EXPECT_EQ(begin, small);
  EXPECT_EQ(bytes, 4096u);
}

TEST_F(CudaAllocation, rows_begin_at_a_pitch) {
  cuda::DevicePointer rows = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(cu.cuMemAllocPitch_v2(&rows, &pitch, 1000, 4096, 4), cuda::kSuccess);
  EXPECT_EQ(pitch, 1024u);
  EXPECT_EQ(of_the_driver(), 0u);
  fill(rows, pitch * 4096, 1);
  EXPECT_EQ(wrong(rows, pitch * 4096, 1), 0u);
  freed(rows);
  EXPECT_EQ(cu.cuMemAllocPitch_v2(&rows, &pitch, 1000, 4096, 3), cuda::kInvalidValue);
  ASSERT_EQ(cu.cuMemAllocPitch_v2(&rows, &pitch, 1000, 16, 4), cuda::kSuccess);
  EXPECT_EQ(of_the_driver(), 1u);
}

TEST_F(CudaAllocation, what_is_free_is_what_can_be_had) {
  const auto first = allocated(2 * kMiB);  // The tier exists from here on.
  const std::uint64_t free = free_bytes();
  EXPECT_EQ(free, kTier - 2 * kMiB);
  const auto block = allocated(20 * kMiB);
  EXPECT_EQ(free_bytes(), free - 20 * kMiB);
  const auto rest = allocated(free_bytes());
  EXPECT_EQ(free_bytes(), 0u);
  freed(rest);
  freed(block);
  EXPECT_EQ(free_bytes(), free) << "the tier's own memory counts as free";
  fake.set_taken(0, kDevice - 10 * kMiB);
  EXPECT_LE(free_bytes(), free);
  freed(first);
}

TEST_F(CudaAllocation, other_devices_and_contexts_are_the_driver_s) {
  cuda::Context other = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&other, 1), cuda::kSuccess);
  ASSERT_EQ(cu.cuCtxSetCurrent(other), cuda::kSuccess);
  const auto elsewhere = filled(4 * kMiB, 1);
  EXPECT_EQ(of_the_driver(), 1u);
  EXPECT_EQ(wrong(elsewhere, 4 * kMiB, 1), 0u);
  freed(elsewhere);

  cuda::Context own = nullptr;
  ASSERT_EQ(cu.cuCtxCreate_v2(&own, 0, 0), cuda::kSuccess);
  const auto block = filled(4 * kMiB, 2);
  EXPECT_EQ(of_the_driver(), 1u);
  freed(block);
  ASSERT_EQ(cu.cuCtxDestroy_v2(own), cuda::kSuccess);

  ASSERT_EQ(cu.cuCtxSetCurrent(context), cuda::kSuccess);
  freed(filled(4 * kMiB, 3));
  EXPECT_EQ(of_the_driver(), 0u);
  EXPECT_EQ(fake.calls("cuMemAlloc"), 2u);
}

TEST_F(CudaAllocation, a_thread_without_a_context_is_told_so) {
  const auto block = allocated(4 * kMiB);
  const auto result = std::async(std::launch::async, [&] {
                        cuda::DevicePointer at = 0;
                        return cu.cuMemAlloc_v2(&at, 4 * kMiB);
                      }).get();
  EXPECT_EQ(result, cuda::kInvalidContext);
  // A destructor in such a thread also frees the block.
  EXPECT_EQ(std::async(std::launch::async, [&] { return cu.cuMemFree_v2(block); }).get(),
            cuda::kSuccess);
}

// The stream writes to the block when the gate opens. If the block were freed earlier, the write
// would hit the next block at its address.
TEST_F(CudaAllocation, freeing_waits_for_what_runs) {
  constexpr std::uint64_t kBytes = 4 * kMiB;
  const auto block = allocated(kBytes);
  const cuda::Stream work = stream();
  Gate& gate = new_gate();
  hold(gate, work);
  ASSERT_EQ(cu.cuMemsetD8Async(block, 7, kBytes, work), cuda::kSuccess);
  std::atomic<bool> opened{false};
  auto freeing = std::async(std::launch::async, [&] {
    EXPECT_EQ(cu.cuMemFree_v2(block), cuda::kSuccess);
    return opened.load();
  });
  while (fake.calls("cuCtxSynchronize") == 0) {
    std::this_thread::yield();
  }
  opened = true;
  gate.open();
  EXPECT_TRUE(freeing.get());
}

TEST_F(CudaAllocation, a_broken_context_is_told_of_and_its_memory_is_freed) {
  const auto block = allocated(4 * kMiB);
  fake.fail_nth(FakeCuda::kWork, 1, cuda::kIllegalAddress);
  EXPECT_EQ(cu.cuMemsetD8_v2(block, 1, 16), cuda::kIllegalAddress);
  EXPECT_EQ(cu.cuMemFree_v2(block), cuda::kIllegalAddress);
  cuda::DevicePointer at = 0;
  EXPECT_EQ(cu.cuMemGetAddressRange_v2(&at, nullptr, block), cuda::kIllegalAddress)
      << "the driver's answer: the block does not exist any more";
  EXPECT_NE(cu.cuMemAlloc_v2(&at, 4 * kMiB), cuda::kSuccess);
}

TEST_F(CudaAllocation, a_driver_without_memory_is_out_of_memory) {
  const auto first = allocated(2 * kMiB);
  for (const std::uint64_t nth : {1, 2, 3}) {
    // Always fails: the tier retries when the driver has less memory.
    fake.fail_nth("cuMemCreate", nth, cuda::kOutOfMemory, FakeCuda::kForever);
    cuda::DevicePointer at = 0;
    EXPECT_EQ(cu.cuMemAlloc_v2(&at, (nth + 1) * 10 * kMiB), cuda::kOutOfMemory);
    fake.forgive();
  }
  std::uint64_t wrong_ones = 0;
  cuda::DevicePointer at = 0;
  for (int tries = 0; tries < 500 && at == 0; ++tries) {  // The tier asks again after a while.
    wrong_ones += cu.cuMemAlloc_v2(&at, 40 * kMiB) == cuda::kSuccess ? 0 : 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(wrong_ones != 0 ? 20 : 0));
  }
  ASSERT_NE(at, 0u);
  fill(at, 40 * kMiB, 1);
  EXPECT_EQ(wrong(at, 40 * kMiB, 1), 0u);
  freed(first);
}

TEST_F(CudaAllocation, memory_of_the_tier_is_not_shared) {
  const auto block = allocated(4 * kMiB);
  const auto small = allocated(4096);
  std::array<std::byte, 64> handle{};
  EXPECT_EQ(cu.cuIpcGetMemHandle(handle.data(), block), cuda::kNotSupported);
  EXPECT_EQ(cu.cuIpcGetMemHandle(handle.data(), small), cuda::kSuccess);
  int can = 1;
  EXPECT_EQ(cu.cuDeviceCanAccessPeer(&can, 1, 0), cuda::kSuccess);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(cu.cuDeviceCanAccessPeer(&can, 0, 1), cuda::kSuccess);
  EXPECT_EQ(can, 1) << "the other's memory is the driver's";
  cuda::Context other = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&other, 1), cuda::kSuccess);
  EXPECT_EQ(cu.cuCtxEnablePeerAccess(other, 0), cuda::kSuccess);
  ASSERT_EQ(cu.cuCtxSetCurrent(other), cuda::kSuccess);
  EXPECT_EQ(cu.cuCtxEnablePeerAccess(context, 0), 217);
  cuda::Context current = nullptr;
  EXPECT_EQ(cu.cuCtxGetCurrent(&current), cuda::kSuccess);
  EXPECT_EQ(current, other);
}

TEST_F(CudaAllocation, many_threads_allocate_and_free) {
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> wrong_ones{0};
  for (std::uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_EQ(cu.cuCtxSetCurrent(context), cuda::kSuccess);
      for (std::uint64_t i = 0; i < 20; ++i) {
        const std::uint64_t bytes = (2 + 2 * ((t + i) % 3)) * kMiB - 8 * (i % 2);
        const auto at = filled(bytes, t * 100 + i, i % 2 == 0 ? "even" : nullptr);
        wrong_ones += wrong(at, bytes, t * 100 + i);
        freed(at);
      }
    });
  }
  for (std::thread& each : threads) {
    each.join();
  }
  EXPECT_EQ(wrong_ones, 0u);
  EXPECT_EQ(free_bytes(), kTier);
}

}  // namespace
}  // namespace tiermem::test
