// The fake driver's memory in the order of streams, and its answers about peers and other contexts.
#include <array>

#include "fake_cuda_client.hpp"

namespace tiermem::test {
namespace {

using cuda::kInvalidValue;
using cuda::kSuccess;

using FakeOrderedMemory = FakeDriver;

TEST_F(FakeOrderedMemory, what_is_freed_stays_until_its_stream_comes_there) {
  const cuda::Stream work = stream();
  cuda::DevicePointer at = 0;
  ASSERT_EQ(cu.cuMemAllocAsync(&at, kChunk, work), kSuccess);
  Gate& gate = new_gate();
  ASSERT_EQ(cu.cuLaunchHostFunc(work, Gate::wait, &gate), kSuccess);
  ASSERT_EQ(cu.cuMemFreeAsync(at, work), kSuccess);
  EXPECT_EQ(fake.live().allocations, 1u);
  gate.open();
  ASSERT_EQ(cu.cuStreamSynchronize(work), kSuccess);
  EXPECT_EQ(fake.live().allocations, 0u);
  EXPECT_EQ(cu.cuMemFreeAsync(at, work), kInvalidValue);
  EXPECT_EQ(cu.cuMemAllocAsync(&at, 0, work), kInvalidValue);
}

TEST_F(FakeOrderedMemory,
       per_thread_streams_are_found_by_their_flag_and_apart_from_the_legacy_one) {
  void* function = nullptr;
  ASSERT_EQ(cu.cuGetProcAddress_v2("cuMemFreeAsync", &function, 12000, 2, nullptr), kSuccess);
  const auto free = reinterpret_cast<decltype(cu.cuMemFreeAsync)>(function);
  EXPECT_NE(free, cu.cuMemFreeAsync);
  const cuda::DevicePointer at = allocated(kChunk);
  Gate& gate = new_gate();
  ASSERT_EQ(cu.cuLaunchHostFunc(cuda::per_thread_stream(), Gate::wait, &gate), kSuccess);
  ASSERT_EQ(free(at, nullptr), kSuccess);
  // The per-thread stream of another thread is independent.
  EXPECT_EQ(elsewhere([&] {
              EXPECT_EQ(cu.cuCtxSetCurrent(context), kSuccess);
              return cu.cuStreamSynchronize(cuda::per_thread_stream());
            }),
            kSuccess);
  EXPECT_EQ(fake.live().allocations, 1u);
  gate.open();
  ASSERT_EQ(cu.cuStreamSynchronize(cuda::per_thread_stream()), kSuccess);
  EXPECT_EQ(fake.live().allocations, 0u);
}

TEST_F(FakeOrderedMemory, a_captured_allocation_has_an_address_and_no_memory) {
  const cuda::Stream work = stream();
  const std::uint64_t before = fake.live().device_bytes;
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(work, 0), kSuccess);
  cuda::DevicePointer at = 0;
  EXPECT_EQ(cu.cuMemAllocAsync(&at, kChunk, work), kSuccess);
  EXPECT_NE(at, 0u);
  EXPECT_EQ(cu.cuMemFreeAsync(at, work), kSuccess);
  EXPECT_EQ(fake.live().device_bytes, before);
  Graph graph = nullptr;
  EXPECT_EQ(cu.cuStreamEndCapture(work, &graph), kSuccess);
}

TEST_F(FakeOrderedMemory, a_pitch_is_of_512_bytes) {
  cuda::DevicePointer at = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(cu.cuMemAllocPitch_v2(&at, &pitch, 513, 10, 8), kSuccess);
  EXPECT_EQ(pitch, 1024u);
  EXPECT_EQ(cu.cuMemAllocPitch_v2(&at, &pitch, 513, 10, 2), kInvalidValue);
}

TEST_F(FakeOrderedMemory, an_allocation_tells_its_range_and_has_a_handle) {
  const cuda::DevicePointer at = allocated(3000);
  cuda::DevicePointer begin = 0;
  std::size_t bytes = 0;
  std::array<int, 2> which = {11, 12};
  std::array<void*, 2> values = {&begin, &bytes};
  ASSERT_EQ(cu.cuPointerGetAttributes(2, which.data(), values.data(), at + 9), kSuccess);
  EXPECT_EQ(begin, at);
  EXPECT_EQ(bytes, 3000u);
  std::array<std::byte, 64> handle{};
  EXPECT_EQ(cu.cuIpcGetMemHandle(handle.data(), at), kSuccess);
  EXPECT_EQ(cu.cuIpcGetMemHandle(handle.data(), mapped()), kInvalidValue);
}

TEST_F(FakeOrderedMemory, contexts_of_one_s_own_are_apart_from_the_primary) {
  cuda::Context own = nullptr;
  ASSERT_EQ(cu.cuCtxCreate_v2(&own, 0, 0), kSuccess);
  cuda::Context current = nullptr;
  EXPECT_EQ(cu.cuCtxGetCurrent(&current), kSuccess);
  EXPECT_EQ(current, own);
  EXPECT_NE(own, context);
  const cuda::DevicePointer at = allocated(16);
  EXPECT_EQ(cu.cuMemFree_v2(at), kSuccess);
  EXPECT_EQ(cu.cuCtxDestroy_v2(own), kSuccess);
  EXPECT_EQ(cu.cuCtxGetCurrent(&current), kSuccess);
  EXPECT_EQ(current, context);
  EXPECT_EQ(cu.cuCtxSetCurrent(own), cuda::kContextIsDestroyed);
  EXPECT_EQ(cu.cuCtxDestroy_v2(context), cuda::kInvalidContext);
}

TEST_F(FakeOrderedMemory, devices_are_peers) {
  fake.set_devices(2);
  int can = 0;
  EXPECT_EQ(cu.cuDeviceCanAccessPeer(&can, 0, 1), kSuccess);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(cu.cuDeviceCanAccessPeer(&can, 0, 0), kSuccess);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(cu.cuDeviceCanAccessPeer(&can, 0, 2), cuda::kInvalidDevice);
  cuda::Context other = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&other, 1), kSuccess);
  EXPECT_EQ(cu.cuCtxEnablePeerAccess(other, 0), kSuccess);
  EXPECT_EQ(cu.cuCtxEnablePeerAccess(other, 1), kInvalidValue);
}

}  // namespace
}  // namespace tiermem::test
