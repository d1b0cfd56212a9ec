// A GPU is lost while it holds buffers, on the fake driver: which buffers stay, which errors the
// others give, and which requests continue.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gpu_context.hpp"

namespace tiermem::test {
namespace {

class GpuLoss : public GpuContext {
 protected:
  void TearDown() override {
    buffers.clear();
    context.reset();
    if (FakeCuda* const fake = find_fake_cuda(); fake != nullptr) {
      fake->reset();  // Nothing can be returned to a lost device.
    }
  }
};

TEST_F(GpuLoss, a_lost_device_takes_only_what_was_there_alone) {
  open();
  const Program program;
  host_puts(add(kChunk), 1);
  on_gpu(buffers[0], kRead).release();  // Shared: the host has the bytes too.
  program.put(on_gpu(add(kChunk, {.label = "activations"}), kDiscard), 2);
  host_puts(add(kChunk), 3);
  on_gpu(add(kChunk), kRead).release();  // Zeros that were never written.
  program.put(on_gpu(add(kChunk), kDiscard), 5);
  ASSERT_TRUE(buffers[4].evict().ok());
  on_gpu(buffers[4], kRead).release();  // From its slot.
  fake_cuda().lose_device(0);
  EXPECT_TRUE(host_holds(buffers[0], 1));
  EXPECT_TRUE(host_holds(buffers[2], 3));
  // The request that finds the loss, and a later one.
  for (const char* words : {"gpu 0", "gpu 0: it is lost"}) {
    const auto refused = buffers[2].acquire_on(kGpu, kRead, 0, 0, Timeout::seconds(2));
    EXPECT_EQ(refused.code(), Code::unavailable) << refused.message();
    EXPECT_NE(std::string(refused.message()).find(words), std::string::npos) << refused.message();
  }
  const auto gone = buffers[1].acquire(kRead, 0, 0, Timeout::seconds(2));
  EXPECT_EQ(gone.code(), Code::lost) << gone.message();
  for (const char* word : {"activations", "gpu 0", "CUDA_ERROR_DEVICE_UNAVAILABLE"}) {
    EXPECT_NE(std::string(gone.message()).find(word), std::string::npos) << gone.message();
  }
  EXPECT_EQ(buffers[1].info()->lost, kChunk);
  EXPECT_TRUE(host_holds(buffers[4], 5));
  auto zeros = buffers[3].acquire(kRead, 0, 0, kSoon);
  ASSERT_TRUE(zeros.ok()) << zeros.message();
  EXPECT_EQ(zeros->as<std::uint64_t>()[77], 0u);
  zeros->release();
  EXPECT_EQ(context->stats().gpu_pinned, 0u);
  for (const std::uint64_t i : {1, 2}) {
    host_puts(buffers[i], 6);
    EXPECT_TRUE(host_holds(buffers[i], 6));
  }
}

TEST_F(GpuLoss, what_is_held_on_a_lost_device_is_let_go_when_it_is_released) {
  open();
  const Program program;
  host_puts(add(kChunk), 1);
  View reads = on_gpu(buffers[0], kRead);
  add(kChunk);
  View writes = on_gpu(buffers[1], kDiscard);
  fake_cuda().lose_device(0);
  EXPECT_FALSE(add(kChunk).acquire_on(kGpu, kRead, 0, 0, kSoon).ok());
  EXPECT_TRUE(host_holds(buffers[0], 1));  // The host could read it before the loss too.
  EXPECT_EQ(buffers[1].acquire(kRead, 0, 0, kSoon).code(), Code::lost);  // The only copy is gone.
  reads.release();
  writes.release();
  EXPECT_TRUE(eventually([&] { return buffers[1].info()->lost == kChunk; }));
  EXPECT_EQ(buffers[1].acquire(kRead, 0, 0, kSoon).code(), Code::lost);
  host_puts(buffers[0], 2);  // The only copy now.
  EXPECT_TRUE(host_holds(buffers[0], 2));
  EXPECT_TRUE(eventually([&] { return context->stats().gpu_pinned == 0; }));
}

TEST_F(GpuLoss, the_other_device_goes_on) {
  fake_cuda().set_devices(2);
  open("0:8M,1:8M");
  constexpr Place kOther{Kind::gpu, 1};
  host_puts(add(kChunk), 1);
  on_gpu(buffers[0], kRead).release();
  fake_cuda().lose_device(0);
  EXPECT_EQ(add(kChunk).acquire_on(kGpu, kRead, 0, 0, kSoon).code(), Code::unavailable);
  {
    auto view = buffers[0].acquire_on(kOther, kRead, 0, 0, kSoon);
    ASSERT_TRUE(view.ok()) << view.message();
    EXPECT_TRUE(Program(1).holds(*view, 1));
  }
  for (std::uint64_t i = 0; i < 8; ++i) {  // More than the other device holds.
    auto view = add(kChunk).acquire_on(kOther, kDiscard, 0, 0, kSoon);
    ASSERT_TRUE(view.ok()) << view.message();
    Program(1).put(*view, 10 + i);
  }
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(host_holds(buffers[2 + i], 10 + i));
  }
  EXPECT_TRUE(context->set_budget(kGpu, kChunk, kSoon).ok());
}

// Requests may wait for bytes on the device when it is lost.
TEST_F(GpuLoss, who_waits_for_a_device_that_is_lost_is_told) {
  fake_cuda().reset();
  open("0:4M");
  const Program program;
  std::vector<View> held;
  held.push_back(on_gpu(add(kChunk), kDiscard));
  held.push_back(on_gpu(add(kChunk), kDiscard));
  add(kChunk);
  add(kChunk);
  std::thread for_room([&] {
    const auto refused = buffers[2].acquire_on(kGpu, kRead, 0, 0, kSoon);
    EXPECT_EQ(refused.code(), Code::unavailable) << refused.message();
  });
  std::thread for_bytes([&] {
    const auto refused = buffers[0].acquire(kRead, 0, 0, kSoon);
    EXPECT_EQ(refused.code(), Code::lost) << refused.message();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fake_cuda().lose_device(0);
  // This request finds the loss; lost devices are not polled for.
  EXPECT_FALSE(buffers[3].acquire_on(kGpu, kRead, 0, 0, Timeout::milliseconds(100)).ok());
  held.clear();
  for_room.join();
  for_bytes.join();
}

}  // namespace
}  // namespace tiermem::test
