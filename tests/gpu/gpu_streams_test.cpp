// Views in the order of the program's streams, on the fake driver or a real one (program.hpp). A
// stream that is held at a gate stands for kernels that run for long. The program writes on the
// device with its own copies, in stream order, from memory that it has page-locked.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gpu/fake_cuda_client.hpp"
#include "gpu/gpu_context.hpp"
#include "gpu/work.hpp"
#include "support/sanitizers.hpp"
#include "support/threads.hpp"
#include "tiermem.h"

namespace tiermem::test {
namespace {

class GpuStreams : public GpuContext {
 protected:
  View for_stream(const Buffer& buffer, std::uint32_t mode, const StreamOrder& order) const {
    auto view = buffer.acquire_on(kGpu, mode, order);
    EXPECT_TRUE(view.ok()) << view.message();
    return view.ok() ? std::move(view).value() : View();
  }
  /// Waits until no stream holds the buffer.
  static void until_free(const Buffer& buffer) {
    while (buffer.evict().code() == Code::busy) {
      std::this_thread::yield();
    }
  }
  static constexpr const char* kCopyOut = "cuMemcpyDtoHAsync";
  static constexpr Timeout kShort = Timeout::milliseconds(50);
};

TEST_F(GpuStreams, a_view_ends_when_its_stream_has_come_there) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  host_puts(buffer, 1);
  {
    const View view = for_stream(buffer, kWrite, work.order());
    work.stop_here();
    work.begin_put(view, 2);
    EXPECT_EQ(context->stats().gpu_pinned, kChunk);
  }  // The release does not wait for the stream.
  EXPECT_EQ(context->stats().gpu_pinned, 0u);
  EXPECT_EQ(buffer.evict().code(), Code::busy);
  EXPECT_EQ(buffer.acquire(kRead, 0, 0, kShort).code(), Code::timed_out);
  work.gate().open();
  EXPECT_TRUE(host_holds(buffer, 2));
}

TEST_F(GpuStreams, what_a_stream_still_uses_is_no_victim) {
  open("0:4M");
  const Program program;
  Work work(program);
  add(kChunk);
  {
    const View view = for_stream(buffers[0], kDiscard, work.order());
    work.stop_here();
    work.begin_put(view, 1);
  }
  for (std::uint64_t i = 2; i < 6; ++i) {  // Through the one chunk that is left.
    program.put(on_gpu(add(kChunk), kDiscard), i);
  }
  const auto both = std::array{buffers[1].range(0, 0, kRead), buffers[2].range(0, 0, kRead)};
  auto on_device = both;
  on_device[0].where = on_device[1].where = kGpu;
  std::array<ViewRecord, 2> views;
  EXPECT_EQ(context->acquire(on_device, kShort, views).code(), Code::no_capacity);
  work.gate().open();
  ASSERT_TRUE(context->acquire(on_device, kSoon, views).ok());
  EXPECT_TRUE(context->release(views).ok());
  EXPECT_TRUE(host_holds(buffers[0], 1));
  for (std::uint64_t i = 2; i < 6; ++i) {
    EXPECT_TRUE(program.holds(on_gpu(buffers[i - 1], kRead), i)) << i;
  }
}

TEST_F(GpuStreams, a_view_may_be_released_after_another_stream_or_now) {
  open();
  const Program program;
  Work first(program);
  Work second(program);
  const Buffer& buffer = add(kChunk);
  View view = for_stream(buffer, kRead, first.order());
  first.stop_here();
  EXPECT_EQ(program.driver().cuStreamSynchronize(second.stream()), cuda::kSuccess);
  ASSERT_TRUE(view.release_after(second.order()).ok());
  EXPECT_FALSE(view);
  EXPECT_TRUE(view.release_after(second.order()).ok()) << "the view was released already";
  until_free(buffer);  // The release does not wait for the first stream.
  view = for_stream(buffer, kRead, first.order());
  ASSERT_TRUE(view.release_after({}).ok());
  EXPECT_EQ(context->stats().gpu_pinned, 0u);
  first.finish();
}

TEST_F(GpuStreams, the_default_stream_is_one) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  {
    const View view = for_stream(buffer, kDiscard, cuda_stream(nullptr));
    ASSERT_EQ(cu().cuLaunchHostFunc(nullptr, Gate::wait, &work.gate()), cuda::kSuccess);
  }
  EXPECT_EQ(buffer.acquire(kRead, 0, 0, kShort).code(), Code::timed_out);
  work.gate().open();
  EXPECT_TRUE(buffer.acquire(kRead, 0, 0, kSoon).ok());
  EXPECT_EQ(program.driver().cuStreamSynchronize(nullptr), cuda::kSuccess);
}

TEST_F(GpuStreams, host_views_may_wait_for_a_stream_too) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  std::array<ViewRecord, 1> view;
  const std::array list{buffer.range(0, 0, kWrite)};
  ASSERT_TRUE(context->acquire(list, kSoon, view, work.order()).ok());
  EXPECT_EQ(view[0].place.kind, Kind::host);
  work.stop_here();
  ASSERT_TRUE(context->release(view, work.order()).ok());
  EXPECT_EQ(context->stats().dram_pinned, 0u);
  EXPECT_EQ(buffer.evict().code(), Code::busy);
  EXPECT_EQ(buffer.acquire_on(kGpu, kRead, 0, 0, kShort).code(), Code::timed_out);
  work.gate().open();
  EXPECT_TRUE(buffer.acquire_on(kGpu, kRead, 0, 0, kSoon).ok());
}

// For any number of blocks, one event is recorded, and the driver gets the same calls as for one
// block.
TEST_F(GpuStreams, many_blocks_cost_one_event_and_no_more_calls_than_one_block) {
  open("0:8M");
  const Program program;
  Work work(program);
  constexpr std::size_t kBlocks = 1000;
  const Buffer& cache = add(kBlocks * 4096, {.extent_bytes = 4096});
  std::vector<Access> list(kBlocks);
  for (std::size_t i = 0; i < kBlocks; ++i) {
    list[i] = cache.range(i * 4096, 4096, kRead);
    list[i].where = kGpu;
  }
  std::vector<ViewRecord> views(kBlocks);
  const auto round = [&](std::size_t n) {
    ASSERT_TRUE(context->acquire({list.data(), n}, kSoon, views, work.order()).ok());
    ASSERT_TRUE(context->release({views.data(), n}, work.order()).ok());
  };
  round(kBlocks);
  FakeCuda& fake = fake_cuda();
  const auto count = reinterpret_cast<std::uint64_t (*)()>(
      ::dlsym(fake_cuda_library(), "tiermem_fake_cuda_calls"));
  ASSERT_NE(count, nullptr);
  // Except the queries of the device's thread until it sees the event.
  const auto calls = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return count() - fake.calls("cuEventQuery");
  };
  const std::uint64_t before = calls();
  const std::uint64_t events = fake.calls("cuEventRecord");
  round(1);
  const std::uint64_t of_one = calls() - before;
  round(kBlocks);
  EXPECT_EQ(calls() - before, 2 * of_one);
  EXPECT_EQ(fake.calls("cuEventRecord"), events + 2);
}

TEST_F(GpuStreams, a_captured_stream_is_refused_and_its_capture_whole) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  View view = for_stream(buffer, kRead, work.order());
  for (const int mode : {0, 1, 2}) {  // Global, thread-local, relaxed.
    ASSERT_EQ(cu().cuStreamBeginCapture_v2(work.stream(), mode), cuda::kSuccess);
    auto refused = buffer.acquire_on(kGpu, kRead, work.order());
    EXPECT_EQ(refused.code(), Code::unsupported);
    EXPECT_NE(std::string(refused.message()).find("captured"), std::string::npos);
    EXPECT_EQ(view.release_after(work.order()).code(), Code::unsupported);
    EXPECT_TRUE(view) << "it is held as before";
    Graph graph = nullptr;
    EXPECT_EQ(cu().cuStreamEndCapture(work.stream(), &graph), cuda::kSuccess) << mode;
    (void)cu().cuGraphDestroy(graph);
  }
  EXPECT_TRUE(view.release_after(work.order()).ok());
}

TEST_F(GpuStreams, a_capture_is_whole_whatever_the_context_moves_meanwhile) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  for (const int mode : {0, 1, 2}) {
    const std::uint64_t value = 7 + static_cast<std::uint64_t>(mode);
    ASSERT_EQ(cu().cuStreamBeginCapture_v2(work.stream(), mode), cuda::kSuccess);
    ASSERT_TRUE(buffer.write(0, &value, sizeof(value)).ok());
    // The only copy moves to the device and back.
    EXPECT_TRUE(buffer.acquire_on(kGpu, kWrite).ok());
    std::uint64_t read = 0;
    ASSERT_TRUE(buffer.read(0, &read, sizeof(read)).ok());
    EXPECT_EQ(read, value);
    Graph graph = nullptr;
    EXPECT_EQ(cu().cuStreamEndCapture(work.stream(), &graph), cuda::kSuccess) << mode;
    (void)cu().cuGraphDestroy(graph);
  }
}

TEST_F(GpuStreams, a_view_that_goes_during_a_capture_stays_held) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  {
    const View view = for_stream(buffer, kRead, work.order());
    ASSERT_EQ(cu().cuStreamBeginCapture_v2(work.stream(), 1), cuda::kSuccess);
  }
  Graph graph = nullptr;
  EXPECT_EQ(cu().cuStreamEndCapture(work.stream(), &graph), cuda::kSuccess);
  (void)cu().cuGraphDestroy(graph);
  EXPECT_EQ(context->stats().gpu_pinned, kChunk);
  EXPECT_EQ(context->close().code(), Code::busy);
}

TEST_F(GpuStreams, streams_of_other_devices_are_refused) {
  fake_cuda().set_devices(2);
  open("0:8M");
  const Buffer& buffer = add(kChunk);
  {
    const Program theirs(1);
    Work work(theirs);
    const auto refused = buffer.acquire_on(kGpu, kRead, work.order());
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    EXPECT_NE(std::string(refused.message()).find("primary context"), std::string::npos)
        << refused.message();
    View view = on_gpu(buffer, kRead);
    EXPECT_EQ(view.release_after(work.order()).code(), Code::invalid_argument);
    EXPECT_TRUE(view);
  }
}

TEST_F(GpuStreams, each_device_has_streams_of_its_own) {
  fake_cuda().set_devices(2);
  open("0:8M,1:8M");
  const Buffer& buffer = add(kChunk);
  for (const std::uint16_t device : {0, 1}) {
    const Program program(device);
    Work work(program);
    {
      auto view = buffer.acquire_on({Kind::gpu, device}, kWrite, work.order());
      ASSERT_TRUE(view.ok()) << view.message();
      work.stop_here();
      work.begin_put(*view, device);
    }
    EXPECT_EQ(buffer.acquire(kRead, 0, 0, kShort).code(), Code::timed_out);
    work.gate().open();
    EXPECT_TRUE(host_holds(buffer, device));
  }
}

// Like the threads of PyTorch's backward pass, which have no context.
TEST_F(GpuStreams, a_thread_needs_no_context_and_gets_none) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  std::thread([&] {
    cuda::Context current = nullptr;
    { const View view = for_stream(buffer, kRead, work.order()); }
    EXPECT_EQ(program.driver().cuCtxGetCurrent(&current), cuda::kSuccess);
    EXPECT_EQ(current, nullptr);
  }).join();
  until_free(buffer);
}

TEST_F(GpuStreams, an_event_that_is_refused_releases_nothing) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  View view = for_stream(buffer, kRead, work.order());
  fake_cuda().fail_nth("cuEventRecord", 1, cuda::kOutOfMemory);
  const Status refused = view.release_after(work.order());
  EXPECT_EQ(refused.code(), Code::no_capacity) << refused.message();
  EXPECT_TRUE(view);
  EXPECT_EQ(context->stats().gpu_pinned, kChunk);
  EXPECT_TRUE(view.release_after(work.order()).ok());
}

TEST_F(GpuStreams, what_is_held_of_a_list_is_released) {
  open();
  const Program program;
  Work work(program);
  std::array list{add(kChunk).range(), add(kChunk).range()};
  list[0].where = list[1].where = kGpu;
  std::array<ViewRecord, 2> views;
  ASSERT_TRUE(context->acquire(list, kSoon, views, work.order()).ok());
  ASSERT_TRUE(context->release({views.data(), 1}, work.order()).ok());
  EXPECT_EQ(context->release(views, work.order()).code(), Code::invalid_argument);
  EXPECT_EQ(context->release(views, work.order()).code(), Code::invalid_argument);
  until_free(buffers[0]);
  until_free(buffers[1]);
}

TEST_F(GpuStreams, closing_waits_for_the_streams) {
  open();
  const Program program;
  Work work(program);
  add(kChunk);
  {
    const View view = for_stream(buffers[0], kDiscard, work.order());
    work.stop_here();
    work.begin_put(view, 1);
  }
  buffers.clear();
  EXPECT_EQ(context->close(false, kShort).code(), Code::timed_out);
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    work.gate().open();
  });
  // Returns only after the stream has finished, because the device still writes this memory.
  context.reset();
  EXPECT_EQ(cu().cuStreamQuery(work.stream()), cuda::kSuccess);
  opens.join();
}

TEST_F(GpuStreams, a_lost_device_lets_go_of_what_was_released) {
  fake_cuda().reset();
  open();
  const Program program;
  add(kChunk);
  host_puts(buffers[0], 1);
  cuda::Stream stream = nullptr;
  Gate gate;
  ASSERT_EQ(program.driver().cuStreamCreate(&stream, cuda::kStreamNonBlocking), cuda::kSuccess);
  {
    const View view = for_stream(buffers[0], kRead, cuda_stream(stream));
    ASSERT_EQ(cu().cuLaunchHostFunc(stream, Gate::wait, &gate), cuda::kSuccess);
  }
  fake_cuda().lose_device(0);
  EXPECT_TRUE(host_holds(buffers[0], 1));
  until_free(buffers[0]);
  EXPECT_FALSE(buffers[0].acquire_on(kGpu, kRead, cuda_stream(stream)).ok());
  gate.open();
  buffers.clear();
  context.reset();
  fake_cuda().reset();
}

// The last copy, from host to device, is left to the stream. Later work of the stream runs after
// it.
TEST_F(GpuStreams, an_acquire_does_not_wait_for_the_last_copy) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  for (const std::uint32_t mode : {kRead, kWrite}) {
    (void)on_gpu(buffer, kRead);  // So that its frame on the device has memory.
    host_puts(buffer, 1);
    fake_cuda().hold_work(true);
    auto view = buffer.acquire_on(kGpu, mode, 0, 0, kSoon, work.order());
    ASSERT_TRUE(view.ok()) << view.message();
    EXPECT_EQ(buffer.acquire_on(kGpu, mode, 0, 0, kShort).code(), Code::timed_out)
        << "in the host's order it is not there";
    work.begin_get(*view);
    if (mode == kWrite) {
      work.begin_put(*view, 2);
    }
    EXPECT_TRUE(view->release_after(work.order()).ok());
    fake_cuda().hold_work(false);
    EXPECT_TRUE(work.got(1));
    EXPECT_TRUE(host_holds(buffer, mode == kWrite ? 2 : 1));
  }
}

TEST_F(GpuStreams, several_streams_and_the_host_may_want_the_same_copy) {
  open();
  const Program program;
  Work first(program);
  Work second(program);
  const Buffer& buffer = add(kChunk);
  (void)on_gpu(buffer, kRead);
  host_puts(buffer, 1);
  fake_cuda().hold_work(true);
  View one = for_stream(buffer, kRead, first.order());
  View two = for_stream(buffer, kWrite, second.order());
  first.begin_get(one);
  second.begin_get(two);
  bool host_saw = false;
  std::thread host([&] {
    const Program its;
    host_saw = its.holds(on_gpu(buffer, kRead), 1);
  });
  fake_cuda().hold_work(false);
  EXPECT_TRUE(first.got(1));
  EXPECT_TRUE(second.got(1));
  host.join();
  EXPECT_TRUE(host_saw);
}

// Bytes from the disk are verified before any view shows them.
TEST_F(GpuStreams, what_comes_from_the_disk_is_there_for_the_stream) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  host_puts(buffer, 1);
  for (std::uint64_t round = 1; round < 4; ++round) {
    ASSERT_TRUE(buffer.evict().ok());
    View view = for_stream(buffer, kWrite, work.order());
    work.begin_get(view);
    EXPECT_TRUE(work.got(round));
    work.begin_put(view, round + 1);
    view.release();
    EXPECT_TRUE(host_holds(buffer, round + 1));
  }
}

// The device is broken, and the copy that a stream waited for is never made.
TEST_F(GpuStreams, a_last_copy_that_fails_loses_only_what_the_stream_wrote) {
  for (const std::uint32_t mode : {kRead, kWrite}) {
    open();
    const Program program;
    const Buffer& buffer = add(kChunk);
    (void)on_gpu(buffer, kRead);
    host_puts(buffer, 1);
    fake_cuda().hold_work(true);
    {
      Work work(program);
      View view = for_stream(buffer, mode, work.order());
      fake_cuda().fail_nth(FakeCuda::kWork, 1, cuda::kIllegalAddress);
      fake_cuda().hold_work(false);
      EXPECT_EQ(buffer.acquire_on(kGpu, kRead, 0, 0, kSoon).code(), Code::unavailable);
      EXPECT_FALSE(view.release_after(work.order()).ok()) << "its stream is broken";
      ASSERT_TRUE(view.release_after({}).ok());
    }
    if (mode == kRead) {
      EXPECT_TRUE(host_holds(buffer, 1));
    } else {
      EXPECT_EQ(buffer.acquire(kRead, 0, 0, kSoon).code(), Code::lost);
    }
    fake_cuda().forgive();
    host_puts(buffer, 3);
    EXPECT_TRUE(host_holds(buffer, 3));
    buffers.clear();
    context.reset();
    fake_cuda().reset();
  }
}

// The device copies the extent to the host while a stream writes it, in either order: nothing orders
// the two. That copy must not count as the extent's bytes.
TEST_F(GpuStreams, what_a_stream_writes_during_a_copy_to_the_host_is_not_lost) {
  open();
  const Program program;
  Work work(program);
  const Buffer& buffer = add(kChunk);
  const auto write = [&](std::uint64_t seed) {
    const View view = for_stream(buffer, kWrite, work.order());
    work.begin_put(view, seed);
  };
  for (std::uint64_t seed = 2; seed < 40; seed += 2) {
    write(seed);
    work.finish();
    fake_cuda().hold_work(true);
    const std::uint64_t before = fake_cuda().calls(kCopyOut);
    std::thread evicts([&] { until_free(buffer); });
    EXPECT_TRUE(comes_true([&] { return fake_cuda().calls(kCopyOut) > before; }));
    write(seed + 1);
    fake_cuda().hold_work(false);
    evicts.join();
    EXPECT_TRUE(host_holds(buffer, seed + 1));
  }
}

TEST_F(GpuStreams, threads_that_never_wait_for_their_streams_lose_no_write) {
  open("0:6M", "workers=3");
  constexpr std::uint64_t kThreads = 3, kBuffers = 8, kRounds = kThreadSanitizer ? 20 : 150;
  for (std::uint64_t i = 0; i < kThreads * kBuffers; ++i) {
    host_puts(add(i % 2 == 0 ? kMiB : 65536), i * 1000);
  }
  fake_cuda().slow_copies(0.05, std::chrono::microseconds(20));
  std::atomic<std::uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Program program;
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      // Each buffer has its own stream, so bytes that are still being written are read later in the
      // same stream.
      std::deque<Work> works;
      std::vector<std::uint64_t> seeds(kBuffers);
      for (std::uint64_t i = 0; i < kBuffers; ++i) {
        seeds[i] = (t * kBuffers + i) * 1000;
        works.emplace_back(program, kMiB);
      }
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        const std::uint64_t i = random() % kBuffers;
        const Buffer& buffer = buffers[t * kBuffers + i];
        if (random() % 4 == 0) {
          bad += host_holds(buffer, seeds[i]) ? 0 : 1;
          continue;
        }
        works[i].finish();  // The next line writes this memory.
        const View view =
            for_stream(buffer, random() % 2 == 0 ? kWrite : kDiscard, works[i].order());
        works[i].begin_put(view, ++seeds[i]);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(bad, 0u);
}

TEST(GpuStreamsCApi, a_stream_is_named_in_c) {
  const std::string spec = std::string("dram=16M; nvme=off; gpu=0:8M; gpu_driver=") + test_driver();
  tm_context* context = nullptr;
  ASSERT_EQ(tm_context_create(spec.c_str(), nullptr, &context), TM_OK);
  tm_buffer buffer = 0;
  ASSERT_EQ(tm_alloc(context, kMiB, nullptr, &buffer), TM_OK);
  tm_access access = {};
  access.buffer = buffer;
  access.mode = TM_DISCARD;
  access.where = {TM_GPU, 0};
  tm_view view = {};
  {
    const Program program;
    Work work(program);
    const tm_stream stream = {TM_STREAM_CUDA, 0, work.stream()};
    ASSERT_EQ(tm_acquire(context, &access, 1, stream, -1, &view), TM_OK);
    work.stop_here();
    work.begin_put(view.data, view.length, 7);
    ASSERT_EQ(tm_release(context, &view, 1, stream), TM_OK);
    EXPECT_EQ(tm_release(context, &view, 1, stream), TM_INVALID_ARGUMENT);
    work.gate().open();
    tm_op op = 0;
    access.mode = TM_READ;
    ASSERT_EQ(tm_acquire_async(context, &access, 1, stream, &view, &op), TM_OK);
    ASSERT_EQ(tm_op_wait(context, &op, 1, -1), TM_OK);
    ASSERT_EQ(tm_release(context, &view, 1, stream), TM_OK);
    std::vector<std::uint64_t> words(kMiB / 8);
    ASSERT_EQ(tm_read(context, buffer, 0, words.data(), kMiB, -1), TM_OK);
    EXPECT_EQ(wrong(words, 7), 0u);
    const tm_stream unknown = {TM_STREAM_CUDA, 5, work.stream()};
    EXPECT_EQ(tm_acquire(context, &access, 1, unknown, -1, &view), TM_INVALID_ARGUMENT);
  }
  ASSERT_EQ(tm_free(context, buffer), TM_OK);
  ASSERT_EQ(tm_context_destroy(context, 0, -1), TM_OK);
}

}  // namespace
}  // namespace tiermem::test
