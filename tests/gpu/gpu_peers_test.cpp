// Bytes between two devices: directly if the devices reach each other, and otherwise through the
// host's memory. Also what happens when a device refuses or is lost.
#include <chrono>
#include <string>

#include "gpu/gpu_context.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kChunk = 2 * kMiB;
constexpr Place kOther{Kind::gpu, 1};

class GpuPeers : public GpuContext {
 protected:
  void open_two(const std::string& more = "", bool peers = true) {
    fake_cuda().set_devices(2);
    fake_cuda().set_peers(peers);
    open("0:8M,1:8M", more);
  }
  static View on_other(const Buffer& buffer, std::uint32_t mode) {
    auto view = buffer.acquire_on(kOther, mode, 0, 0, kSoon);
    EXPECT_TRUE(view.ok()) << view.message();
    return view.ok() ? std::move(view).value() : View();
  }
  /// Returns a buffer with its only copy on the second device.
  Buffer& on_second_only(std::uint64_t bytes, std::uint64_t seed,
                         const BufferOptions& options = {}) {
    Buffer& buffer = add(bytes, options);
    const View view = on_other(buffer, kDiscard);
    Program(1).put(view, seed);
    return buffer;
  }
  static std::uint64_t out_of_devices() { return fake_cuda().calls("cuMemcpyDtoHAsync"); }
};

TEST_F(GpuPeers, what_is_on_one_device_comes_straight_to_the_other) {
  open_two();
  Buffer& buffer = on_second_only(kChunk, 7);
  const std::uint64_t out = out_of_devices();
  const std::uint64_t dram = context->stats().dram_used;
  const View here = on_gpu(buffer, kRead);
  EXPECT_EQ(fake_cuda().peer_bytes(), kChunk);
  EXPECT_EQ(out_of_devices(), out) << "it went through the host";
  EXPECT_EQ(context->stats().dram_used, dram);
  EXPECT_TRUE(Program(0).holds(here, 7));
  const View there = on_other(buffer, kRead);
  EXPECT_TRUE(Program(1).holds(there, 7)) << "and it is still where it was";
}

TEST_F(GpuPeers, a_writer_has_the_only_copy_and_it_goes_back_the_same_way) {
  open_two();
  Buffer& buffer = on_second_only(kChunk, 7);
  for (std::uint64_t i = 0; i < 4; ++i) {
    Program(0).put(on_gpu(buffer, kWrite), 10 + i);
    const View there = on_other(buffer, kWrite);
    EXPECT_TRUE(Program(1).holds(there, 10 + i));
  }
  EXPECT_EQ(fake_cuda().peer_bytes(), 8 * kChunk);
  EXPECT_TRUE(host_holds(buffer, 13));
}

TEST_F(GpuPeers, devices_that_do_not_reach_each_other_go_through_the_host) {
  open_two("", false);
  Buffer& buffer = on_second_only(kChunk, 7);
  const View here = on_gpu(buffer, kRead);
  EXPECT_EQ(fake_cuda().calls("cuMemcpyPeerAsync"), 0U);
  EXPECT_TRUE(Program(0).holds(here, 7));
}

TEST_F(GpuPeers, a_copy_that_the_driver_refuses_goes_through_the_host) {
  open_two();
  Buffer& buffer = on_second_only(kChunk, 7);
  fake_cuda().fail_nth("cuMemcpyPeerAsync", 1, cuda::kPeerAccessUnsupported);
  {
    const View here = on_gpu(buffer, kRead);
    EXPECT_TRUE(Program(0).holds(here, 7));
  }
  EXPECT_EQ(fake_cuda().peer_bytes(), 0U);
  EXPECT_EQ(fake_cuda().calls("cuMemcpyPeerAsync"), 1U);
}

TEST_F(GpuPeers, small_and_large_extents_come_straight) {
  open_two();
  for (const std::uint64_t bytes : {64 * kMiB / 1024, kChunk, 4 * kMiB}) {
    const std::uint64_t before = fake_cuda().peer_bytes();
    Buffer& buffer = on_second_only(bytes, bytes);
    const View here = on_gpu(buffer, kRead);
    EXPECT_TRUE(Program(0).holds(here, bytes)) << bytes;
    EXPECT_EQ(fake_cuda().peer_bytes() - before, bytes);
  }
}

TEST_F(GpuPeers, a_stream_waits_for_the_copy_by_itself) {
  open_two();
  Buffer& buffer = on_second_only(kChunk, 7);
  const Program program(0);
  cuda::Stream stream = nullptr;
  ASSERT_EQ(program.driver().cuStreamCreate(&stream, cuda::kStreamNonBlocking), cuda::kSuccess);
  fake_cuda().slow_copies(0, std::chrono::milliseconds(50));
  std::vector<std::uint64_t> seen(kChunk / 8);
  {
    auto view = buffer.acquire_on(kGpu, kRead, 0, 0, kSoon, cuda_stream(stream));
    ASSERT_TRUE(view.ok()) << view.message();
    ASSERT_EQ(program.driver().cuMemcpyDtoHAsync(
                  seen.data(), reinterpret_cast<cuda::DevicePointer>(view->data()), kChunk, stream),
              cuda::kSuccess);
  }
  ASSERT_EQ(program.driver().cuStreamSynchronize(stream), cuda::kSuccess);
  EXPECT_EQ(wrong(seen, 7), 0U);
  EXPECT_EQ(fake_cuda().peer_bytes(), kChunk);
  ASSERT_EQ(program.driver().cuStreamDestroy(stream), cuda::kSuccess);
}

// Only the bytes on the lost device are lost. The device that reads from it is not blamed.
TEST_F(GpuPeers, a_source_that_is_lost_takes_nothing_of_the_other_with_it) {
  open_two();
  {
    const View view = on_gpu(add(kChunk), kDiscard);
    Program(0).put(view, 3);
  }
  const Buffer& gone = on_second_only(kChunk, 7);
  fake_cuda().lose_device(1);
  EXPECT_EQ(gone.acquire_on(kGpu, kRead, 0, 0, kSoon).code(), Code::lost);
  const View here = on_gpu(buffers[0], kWrite);
  EXPECT_TRUE(Program(0).holds(here, 3));
}

}  // namespace
}  // namespace tiermem::test
