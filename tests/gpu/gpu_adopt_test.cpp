// Device memory of the program, or of another library, is copied into a buffer on the device. If
// this is not possible it is refused, and nothing is left behind.
#include <string>
#include <vector>

#include "gpu/gpu_context.hpp"
#include "gpu/work.hpp"

namespace tiermem::test {
namespace {

class GpuAdopt : public GpuContext {
 protected:
  static constexpr std::uint64_t kBytes = 12 * kMiB + 4096;
  static constexpr Timeout kShort = Timeout::seconds(2);

  /// Allocates memory of the program's own, with bytes.
  cuda::DevicePointer own(const Program& program, std::uint64_t bytes, std::uint64_t seed) {
    cuda::DevicePointer at = 0;
    EXPECT_EQ(cu().cuMemAlloc_v2(&at, bytes), cuda::kSuccess);
    program.put(pointer(at), bytes, seed);
    return at;
  }
  static void* pointer(cuda::DevicePointer at) {
    return reinterpret_cast<void*>(at);  // NOLINT: a number to the host.
  }
  Status refusal_of(Place gpu, const void* memory, std::uint64_t bytes,
                    const StreamOrder& order = {}, const BufferOptions& options = {}) const {
    return context->adopt_device(gpu, memory, bytes, order, kShort, options).status().clone();
  }
  std::uint64_t live_buffers() const { return context->stats().buffers; }
};

// The memory exceeds the tier's share of the device.
TEST_F(GpuAdopt, memory_of_the_programs_becomes_a_buffers_in_the_order_of_a_stream) {
  open("0:8M", "dram=64M");
  const Program program;
  Work work(program);
  const cuda::DevicePointer at = own(program, kBytes, 1);
  std::vector<std::uint64_t> words(kBytes / 8);
  fill(words, 7);
  // Bytes written by the stream before the call are adopted.
  ASSERT_EQ(cu().cuMemcpyHtoDAsync_v2(at, words.data(), kBytes, work.stream()), cuda::kSuccess);
  auto made =
      context->adopt_device(kGpu, pointer(at), kBytes, work.order(), kSoon, {.label = "weights"});
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_EQ(made->size(), kBytes);
  const Buffer& buffer = buffers.emplace_back(std::move(*made));
  // Bytes written after the call are not.
  ASSERT_EQ(cu().cuMemsetD8Async(at, 0, kBytes, work.stream()), cuda::kSuccess);
  EXPECT_TRUE(host_holds(buffer, 7));
  EXPECT_GE(context->stats().gpu_bytes_out, kBytes - 8 * kMiB);
  ASSERT_EQ(cu().cuMemFree_v2(at), cuda::kSuccess);
  EXPECT_TRUE(host_holds(buffer, 7));
}

TEST_F(GpuAdopt, in_host_order_the_copies_have_ended) {
  open("0:8M", "dram=64M");
  const Program program;
  const cuda::DevicePointer at = own(program, kBytes, 3);
  auto made = context->adopt_device(kGpu, pointer(at), kBytes);
  ASSERT_TRUE(made.ok()) << made.message();
  const Buffer& buffer = buffers.emplace_back(std::move(*made));
  program.put(pointer(at), kBytes, 4);
  EXPECT_TRUE(host_holds(buffer, 3));
  ASSERT_EQ(cu().cuMemFree_v2(at), cuda::kSuccess);
}

TEST_F(GpuAdopt, small_extents_come_many_at_once) {
  open("0:2M", "dram=64M");
  const Program program;
  Work work(program);
  const cuda::DevicePointer at = own(program, 4 * kMiB, 5);
  auto made = context->adopt_device(kGpu, pointer(at), 4 * kMiB, work.order(), kSoon,
                                    {.extent_bytes = 64 << 10});
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_TRUE(host_holds(buffers.emplace_back(std::move(*made)), 5));
  ASSERT_EQ(cu().cuMemFree_v2(at), cuda::kSuccess);
}

TEST_F(GpuAdopt, what_is_not_that_devices_memory_is_refused) {
  fake_cuda().set_devices(2);
  open("0:8M", "dram=64M");
  const Program program;
  std::vector<std::uint64_t> host(512);
  const cuda::DevicePointer at = own(program, kMiB, 1);
  EXPECT_EQ(refusal_of(kGpu, nullptr, 4096).code(), Code::invalid_argument);
  EXPECT_EQ(refusal_of(kGpu, pointer(at), 0).code(), Code::invalid_argument);
  const Status hosts = refusal_of(kGpu, host.data(), 4096);
  EXPECT_EQ(hosts.code(), Code::invalid_argument);
  EXPECT_NE(std::string(hosts.message()).find("not memory of gpu 0"), std::string::npos)
      << hosts.message();
  EXPECT_EQ(refusal_of(kGpu, pointer(at), 64 * kMiB).code(), Code::invalid_argument)
      << "its end is not there";
  void* locked = nullptr;
  ASSERT_EQ(cu().cuMemHostAlloc(&locked, 4096, 0), cuda::kSuccess);
  EXPECT_EQ(refusal_of(kGpu, locked, 4096).code(), Code::invalid_argument);
  ASSERT_EQ(cu().cuMemFreeHost(locked), cuda::kSuccess);
  EXPECT_EQ(refusal_of({Kind::gpu, 1}, pointer(at), 4096).code(), Code::unavailable);
  EXPECT_EQ(refusal_of({Kind::dram, 0}, pointer(at), 4096).code(), Code::unavailable);
  EXPECT_EQ(refusal_of(kGpu, pointer(at), 4096, {}, {.flags = kMapped}).code(), Code::unsupported);
  EXPECT_EQ(refusal_of(kGpu, pointer(at), 4096, {}, {.extent_bytes = 3}).code(),
            Code::invalid_argument);
  {
    const Program second(1);
    const cuda::DevicePointer elsewhere = own(second, kMiB, 2);
    EXPECT_EQ(refusal_of(kGpu, pointer(elsewhere), 4096).code(), Code::invalid_argument);
    ASSERT_EQ(cu().cuMemFree_v2(elsewhere), cuda::kSuccess);
  }
  EXPECT_EQ(live_buffers(), 0u);
  const Program again;
  ASSERT_EQ(cu().cuMemFree_v2(at), cuda::kSuccess);
}

TEST_F(GpuAdopt, a_captured_stream_is_refused_and_its_capture_stays_whole) {
  open("0:8M", "dram=64M");
  const Program program;
  Work work(program);
  const cuda::DevicePointer at = own(program, kMiB, 1);
  ASSERT_EQ(cu().cuStreamBeginCapture_v2(work.stream(), 0), cuda::kSuccess);
  EXPECT_EQ(refusal_of(kGpu, pointer(at), kMiB, work.order()).code(), Code::unsupported);
  Graph graph = nullptr;
  EXPECT_EQ(cu().cuStreamEndCapture(work.stream(), &graph), cuda::kSuccess);
  (void)cu().cuGraphDestroy(graph);
  EXPECT_EQ(live_buffers(), 0u);
  ASSERT_EQ(cu().cuMemFree_v2(at), cuda::kSuccess);
}

// All of the device's budget is held by views that may be released.
TEST_F(GpuAdopt, where_all_is_held_it_waits_so_long_and_nothing_is_left_behind) {
  open("0:4M", "dram=64M");
  const Program program;
  Work work(program);
  const cuda::DevicePointer at = own(program, 4 * kChunk, 9);
  auto held = context->alloc(kChunk);
  auto rest = context->alloc(kChunk);
  ASSERT_TRUE(held.ok() && rest.ok());
  const View view = on_gpu(*held, kDiscard);
  {
    // One chunk is free, so the pieces pass through it one after another.
    auto made = context->adopt_device(kGpu, pointer(at), 4 * kChunk, work.order(), kSoon);
    ASSERT_TRUE(made.ok()) << made.message();
    EXPECT_TRUE(host_holds(*made, 9));
  }
  const View more = on_gpu(*rest, kDiscard);
  const Timeout little = Timeout::milliseconds(200);
  const auto late = context->adopt_device(kGpu, pointer(at), 4 * kChunk, work.order(), little);
  EXPECT_EQ(late.code(), Code::no_capacity) << late.message();
  EXPECT_TRUE(eventually([&] { return live_buffers() == 2; }));
  ASSERT_EQ(cu().cuMemFree_v2(at), cuda::kSuccess);
}

// The device's memory is exhausted halfway, and DRAM has no room for the copied bytes.
TEST_F(GpuAdopt, out_of_memory_in_the_middle_leaves_nothing_behind) {
  context = make_context(std::string("dram=8M; nvme=off; gpu=0:8M; gpu_staging=2M; gpu_driver=") +
                         test_driver());
  ASSERT_NE(context, nullptr);
  const Program program;
  Work work(program);
  const cuda::DevicePointer at = own(program, 40 * kMiB, 9);
  EXPECT_EQ(refusal_of(kGpu, pointer(at), 40 * kMiB, work.order()).code(), Code::no_capacity);
  EXPECT_TRUE(eventually([&] { return live_buffers() == 0; }));
  EXPECT_TRUE(eventually([&] { return context->stats().gpu_pinned == 0; }));
  // The room is free again for other buffers.
  const Buffer& other = add(4 * kMiB);
  program.put(on_gpu(other, kDiscard), 3);
  EXPECT_TRUE(host_holds(other, 3));
  ASSERT_EQ(cu().cuMemFree_v2(at), cuda::kSuccess);
}

TEST_F(GpuAdopt, a_copy_that_is_refused_is_told_and_leaves_nothing_behind) {
  open("0:8M", "dram=64M");
  const Program program;
  Work work(program);
  const cuda::DevicePointer at = own(program, kBytes, 1);
  fake_cuda().fail_nth("cuMemcpyDtoDAsync", 2, cuda::kInvalidValue);
  EXPECT_EQ(refusal_of(kGpu, pointer(at), kBytes, work.order()).code(), Code::io_error);
  fake_cuda().fail_nth("cuMemcpyDtoDAsync", 2, cuda::kInvalidValue);
  EXPECT_EQ(refusal_of(kGpu, pointer(at), kBytes).code(), Code::io_error);
  EXPECT_TRUE(eventually([&] { return live_buffers() == 0; }));
  EXPECT_TRUE(eventually([&] { return context->stats().gpu_pinned == 0; }));
  auto made = context->adopt_device(kGpu, pointer(at), kBytes, work.order());
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_TRUE(host_holds(*made, 1));
  ASSERT_EQ(cu().cuMemFree_v2(at), cuda::kSuccess);
}

TEST_F(GpuAdopt, of_a_lost_device_nothing_is_adopted) {
  open("0:8M", "dram=64M");
  const Program program;
  const cuda::DevicePointer at = own(program, kMiB, 1);
  fake_cuda().lose_device(0);
  const Code code = refusal_of(kGpu, pointer(at), kMiB).code();
  EXPECT_TRUE(code == Code::unavailable || code == Code::invalid_argument);
  EXPECT_EQ(live_buffers(), 0u);
  (void)cu().cuMemFree_v2(at);
}

}  // namespace
}  // namespace tiermem::test
