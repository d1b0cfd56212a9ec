// Device memory in the order of a stream.
#include "preload_cuda/program.hpp"

namespace tiermem::test {
namespace {

using CudaOrder = CudaProgram;

TEST_F(CudaOrder, a_block_lives_from_its_stream_s_allocation_to_its_end) {
  const cuda::Stream work = stream();
  cuda::DevicePointer block = 0;
  ASSERT_EQ(cu.cuMemAllocAsync(&block, 40 * kMiB, work), cuda::kSuccess);
  EXPECT_EQ(fake.calls("cuMemAllocAsync"), 0u);
  Gate& gate = new_gate();
  hold(gate, work);
  ASSERT_EQ(cu.cuMemsetD8Async(block, 7, 40 * kMiB, work), cuda::kSuccess);
  ASSERT_EQ(cu.cuMemFreeAsync(block, work), cuda::kSuccess);
  EXPECT_EQ(fake.calls("cuMemFreeAsync"), 0u);
  EXPECT_EQ(cu.cuMemFreeAsync(block, work), cuda::kInvalidValue);
  // Until the stream reaches it, no other block gets the memory.
  cuda::DevicePointer next = 0;
  EXPECT_EQ(cu.cuMemAlloc_v2(&next, 40 * kMiB), cuda::kOutOfMemory);
  gate.open();
  ASSERT_EQ(cu.cuStreamSynchronize(work), cuda::kSuccess);
  int tries = 0;
  while (cu.cuMemAlloc_v2(&next, 40 * kMiB) != cuda::kSuccess && ++tries < 1000) {
  }
  ASSERT_NE(next, 0u);
  fill(next, 40 * kMiB, 1);
  EXPECT_EQ(wrong(next, 40 * kMiB, 1), 0u);
}

TEST_F(CudaOrder, default_streams_have_an_order_too) {
  for (const bool per_thread : {false, true}) {
    cuda::DevicePointer block = 0;
    const auto allocate = per_thread ? cu.cuMemAllocAsync_ptsz : cu.cuMemAllocAsync;
    const auto free = per_thread ? cu.cuMemFreeAsync_ptsz : cu.cuMemFreeAsync;
    ASSERT_EQ(allocate(&block, 4 * kMiB, nullptr), cuda::kSuccess);
    fill(block, 4 * kMiB, 1);
    EXPECT_EQ(wrong(block, 4 * kMiB, 1), 0u);
    EXPECT_EQ(free(block, nullptr), cuda::kSuccess);
    cuda::DevicePointer small = 0;
    ASSERT_EQ(allocate(&small, 4096, nullptr), cuda::kSuccess);
    EXPECT_EQ(free(small, nullptr), cuda::kSuccess);
  }
  EXPECT_EQ(fake.calls("cuMemAllocAsync"), 2u);
  EXPECT_EQ(fake.calls("cuMemFreeAsync"), 2u);
}

TEST_F(CudaOrder, memory_of_either_call_is_freed_by_both) {
  const cuda::Stream work = stream();
  cuda::DevicePointer block = 0;
  ASSERT_EQ(cu.cuMemAllocAsync(&block, 4 * kMiB, work), cuda::kSuccess);
  freed(block);
  EXPECT_EQ(cu.cuMemFreeAsync(allocated(4 * kMiB), work), cuda::kSuccess);
  EXPECT_EQ(cu.cuMemFreeAsync(allocated(4 * kMiB) + 512, work), cuda::kInvalidValue);
}

TEST_F(CudaOrder, what_is_captured_is_the_graph_s) {
  freed(allocated(4 * kMiB));
  const cuda::Stream work = stream();
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(work, 1), cuda::kSuccess);
  cuda::DevicePointer block = 0;
  EXPECT_EQ(cu.cuMemAllocAsync(&block, 4 * kMiB, work), cuda::kSuccess);
  EXPECT_EQ(fake.calls("cuMemAllocAsync"), 1u);
  EXPECT_EQ(cu.cuMemFreeAsync(block, work), cuda::kSuccess);
  EXPECT_EQ(fake.calls("cuMemFreeAsync"), 1u);
  Graph graph = nullptr;
  EXPECT_EQ(cu.cuStreamEndCapture(work, &graph), cuda::kSuccess) << "the capture is whole";
}

TEST_F(CudaOrder, a_capture_of_another_stream_outlives_an_allocation) {
  const auto block = allocated(4 * kMiB);
  const cuda::Stream work = stream();
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(work, 0), cuda::kSuccess);
  const auto more = allocated(4 * kMiB);
  Graph graph = nullptr;
  EXPECT_EQ(cu.cuStreamEndCapture(work, &graph), cuda::kSuccess);
  // Freeing would have to wait for the device; the driver also refuses its own blocks.
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(work, 0), cuda::kSuccess);
  EXPECT_EQ(cu.cuMemFree_v2(block), cuda::kCaptureUnsupported);
  (void)cu.cuStreamEndCapture(work, &graph);
  freed(block);
  freed(more);
}

}  // namespace
}  // namespace tiermem::test
