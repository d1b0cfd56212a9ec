// The fake driver's streams and events: the order of work, which work waits for which, and which
// work ends when a device is lost.
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "fake_cuda_client.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::test {
namespace {

using cuda::kNotReady;
using cuda::kSuccess;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

using FakeStreams = FakeDriver;

TEST_F(FakeStreams, a_copy_of_locked_memory_does_not_wait) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream();
  unsigned char* const host = locked(kChunk);
  std::memset(host, 1, kChunk);
  fake.hold_work(true);
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, kChunk, own), kSuccess);
  EXPECT_EQ(cu.cuStreamQuery(own), kNotReady);
  fake.hold_work(false);
  EXPECT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  EXPECT_EQ(cu.cuStreamQuery(own), kSuccess);
  EXPECT_EQ(byte_at(at + kChunk - 1), 1);
}

TEST_F(FakeStreams, a_copy_of_pageable_memory_blocks_its_caller) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream();
  for (const bool in : {true, false}) {
    std::vector<unsigned char> host(4096, 3);
    fake.hold_work(true);
    std::future<cuda::Result> copy = std::async(std::launch::async, [&] {
      (void)cu.cuCtxSetCurrent(context);
      return in ? cu.cuMemcpyHtoDAsync_v2(at, host.data(), host.size(), own)
                : cu.cuMemcpyDtoHAsync_v2(host.data(), at, host.size(), own);
    });
    EXPECT_EQ(copy.wait_for(30ms), std::future_status::timeout);
    fake.hold_work(false);
    EXPECT_EQ(copy.get(), kSuccess);
    EXPECT_EQ(cu.cuStreamQuery(own), kSuccess) << "done when the call returns";
  }
  EXPECT_EQ(fake.pageable_bytes(), 8192u);
}

TEST_F(FakeStreams, a_stream_works_in_order) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream();
  unsigned char* const host = locked(100);
  for (unsigned char i = 0; i < 100; ++i) {
    ASSERT_EQ(cu.cuMemsetD8Async(at, i, 1, own), kSuccess);
    ASSERT_EQ(cu.cuMemcpyDtoHAsync_v2(host + i, at, 1, own), kSuccess);
  }
  ASSERT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  for (unsigned char i = 0; i < 100; ++i) {
    EXPECT_EQ(host[i], i);
  }
}

TEST_F(FakeStreams, an_event_is_done_when_what_came_before_it_is) {
  const cuda::Stream own = stream();
  const cuda::Event mark = event();
  EXPECT_EQ(cu.cuEventQuery(mark), kSuccess) << "never recorded";
  EXPECT_EQ(cu.cuEventSynchronize(mark), kSuccess);
  Gate& gate = new_gate();
  ASSERT_EQ(cu.cuLaunchHostFunc(own, Gate::wait, &gate), kSuccess);
  ASSERT_EQ(cu.cuEventRecord(mark, own), kSuccess);
  EXPECT_EQ(cu.cuEventQuery(mark), kNotReady);
  std::future<cuda::Result> waiter = std::async(std::launch::async, [&] {
    (void)cu.cuCtxSetCurrent(context);
    return cu.cuEventSynchronize(mark);
  });
  EXPECT_EQ(waiter.wait_for(20ms), std::future_status::timeout);
  gate.open();
  EXPECT_EQ(waiter.get(), kSuccess);
  EXPECT_EQ(cu.cuEventQuery(mark), kSuccess);
}

TEST_F(FakeStreams, a_stream_waits_for_another_s_event) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream first = stream();
  const cuda::Stream second = stream();
  const cuda::Event mark = event();
  Gate& gate = new_gate();
  ASSERT_EQ(cu.cuLaunchHostFunc(first, Gate::wait, &gate), kSuccess);
  ASSERT_EQ(cu.cuMemsetD8Async(at, 1, 1, first), kSuccess);
  ASSERT_EQ(cu.cuEventRecord(mark, first), kSuccess);
  ASSERT_EQ(cu.cuStreamWaitEvent(second, mark, 0), kSuccess);
  ASSERT_EQ(cu.cuMemsetD8Async(at, 2, 1, second), kSuccess);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(cu.cuStreamQuery(second), kNotReady);
  // The event is recorded again on another stream. A stream that already waits for it still waits
  // for the old record.
  ASSERT_EQ(cu.cuEventRecord(mark, stream()), kSuccess);
  EXPECT_EQ(cu.cuEventSynchronize(mark), kSuccess);
  EXPECT_EQ(cu.cuStreamQuery(second), kNotReady);
  gate.open();
  ASSERT_EQ(cu.cuStreamSynchronize(second), kSuccess);
  EXPECT_EQ(byte_at(at), 2);
}

TEST_F(FakeStreams, the_legacy_stream_orders_with_blocking_ones_only) {
  const cuda::Stream blocking = stream(0);
  const cuda::Stream other = stream(0);
  const cuda::Stream free = stream();
  const cuda::DevicePointer at = mapped();
  Gate& gate = new_gate();
  ASSERT_EQ(cu.cuLaunchHostFunc(blocking, Gate::wait, &gate), kSuccess);
  ASSERT_EQ(cu.cuMemsetD8Async(at, 1, 1, nullptr), kSuccess);
  ASSERT_EQ(cu.cuMemsetD8Async(at, 2, 1, other), kSuccess);
  ASSERT_EQ(cu.cuMemsetD8Async(at + 1, 3, 1, free), kSuccess);
  EXPECT_EQ(cu.cuStreamSynchronize(free), kSuccess) << "it waits for no other stream";
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(cu.cuStreamQuery(nullptr), kNotReady) << "after the blocking stream";
  EXPECT_EQ(cu.cuStreamQuery(cuda::legacy_stream()), kNotReady);
  EXPECT_EQ(cu.cuStreamQuery(other), kNotReady) << "after the legacy stream";
  gate.open();
  EXPECT_EQ(cu.cuStreamSynchronize(other), kSuccess);
  EXPECT_EQ(cu.cuStreamQuery(blocking), kSuccess);
  EXPECT_EQ(byte_at(at), 2);
}

TEST_F(FakeStreams, the_legacy_stream_does_not_wait_for_others) {
  const cuda::Stream free = stream();
  Gate& gate = new_gate();
  ASSERT_EQ(cu.cuLaunchHostFunc(free, Gate::wait, &gate), kSuccess);
  EXPECT_EQ(byte_at(mapped()), 0xA5);
  EXPECT_EQ(cu.cuStreamQuery(free), kNotReady);
  gate.open();
}

TEST_F(FakeStreams, the_last_release_of_a_context_waits_for_its_work) {
  Gate& gate = new_gate();
  ASSERT_EQ(cu.cuLaunchHostFunc(stream(), Gate::wait, &gate), kSuccess);
  std::future<cuda::Result> released =
      std::async(std::launch::async, [&] { return cu.cuDevicePrimaryCtxRelease_v2(0); });
  EXPECT_EQ(released.wait_for(20ms), std::future_status::timeout);
  gate.open();
  EXPECT_EQ(released.get(), kSuccess);
}

TEST_F(FakeStreams, what_is_destroyed_while_at_work_finishes_it) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream(0);
  const cuda::Event mark = event();
  Gate& gate = new_gate();
  ASSERT_EQ(cu.cuLaunchHostFunc(own, Gate::wait, &gate), kSuccess);
  ASSERT_EQ(cu.cuMemsetD8Async(at, 9, 1, own), kSuccess);
  ASSERT_EQ(cu.cuEventRecord(mark, own), kSuccess);
  EXPECT_EQ(cu.cuStreamDestroy_v2(own), kSuccess);
  EXPECT_EQ(cu.cuEventDestroy_v2(mark), kSuccess);
  EXPECT_EQ(cu.cuStreamDestroy_v2(own), cuda::kInvalidHandle);
  EXPECT_EQ(cu.cuEventQuery(mark), cuda::kInvalidHandle);
  EXPECT_EQ(fake.live().streams + fake.live().events, 0u);
  std::future<unsigned char> read = std::async(std::launch::async, [&] {
    (void)cu.cuCtxSetCurrent(context);
    return byte_at(at);
  });
  EXPECT_EQ(read.wait_for(20ms), std::future_status::timeout) << "legacy waits for it, too";
  gate.open();
  EXPECT_EQ(read.get(), 9);
}

TEST_F(FakeStreams, a_host_function_may_call_nothing) {
  struct Seen {
    const client::Table& cu;
    cuda::Context context;
    cuda::Result result = kSuccess;
  } seen{cu, context};
  const cuda::Stream own = stream();
  ASSERT_EQ(cu.cuLaunchHostFunc(
                own,
                [](void* data) {
                  auto& to = *static_cast<Seen*>(data);
                  to.result = to.cu.cuCtxSetCurrent(to.context);
                },
                &seen),
            kSuccess);
  ASSERT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  EXPECT_EQ(seen.result, cuda::kNotPermitted);
}

TEST_F(FakeStreams, giving_host_memory_back_waits_for_all_that_runs) {
  for (const int way : {0, 1, 2}) {
    unsigned char* const host = locked(4096);
    std::vector<unsigned char> own_memory(4096);
    ASSERT_EQ(cu.cuMemHostRegister_v2(own_memory.data(), own_memory.size(), 0), kSuccess);
    const cuda::DevicePointer at = allocated(1);
    Gate& gate = new_gate();
    ASSERT_EQ(cu.cuLaunchHostFunc(stream(), Gate::wait, &gate), kSuccess);
    std::future<cuda::Result> done = std::async(std::launch::async, [&] {
      (void)cu.cuCtxSetCurrent(context);
      return way == 0   ? cu.cuMemFreeHost(host)
             : way == 1 ? cu.cuMemHostUnregister(own_memory.data())
                        : cu.cuMemFree_v2(at);
    });
    EXPECT_EQ(done.wait_for(20ms), std::future_status::timeout);
    (void)mapped();  // These calls do not wait.
    EXPECT_NE(locked(1), nullptr);
    gate.open();
    EXPECT_EQ(done.get(), kSuccess);
    if (way != 1) {
      EXPECT_EQ(cu.cuMemHostUnregister(own_memory.data()), kSuccess);
    }
  }
}

TEST_F(FakeStreams, a_stream_belongs_to_one_context) {
  fake.set_devices(2);
  cuda::Context second = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&second, 1), kSuccess);
  const cuda::Stream firsts = stream();
  const cuda::Event mark = event();
  unsigned char* const host = locked(1);
  const cuda::DevicePointer at = mapped();
  ASSERT_EQ(cu.cuCtxSetCurrent(second), kSuccess);
  EXPECT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, 1, firsts), cuda::kInvalidHandle);
  EXPECT_EQ(cu.cuEventRecord(mark, stream()), cuda::kInvalidHandle);
  EXPECT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, 1, reinterpret_cast<cuda::Stream>(8)),
            cuda::kInvalidHandle);
}

TEST_F(FakeStreams, device_memory_is_copied_and_set) {
  const cuda::DevicePointer at = mapped();
  const cuda::DevicePointer to = allocated(100);
  const cuda::Stream own = stream();
  ASSERT_EQ(cu.cuMemsetD8_v2(at, 4, 50), kSuccess);
  ASSERT_EQ(cu.cuMemcpyDtoD_v2(to, at, 50), kSuccess);
  ASSERT_EQ(cu.cuMemcpyDtoDAsync_v2(to + 50, to, 25, own), kSuccess);
  ASSERT_EQ(cu.cuMemcpyAsync(to + 75, at, 25, own), kSuccess);
  ASSERT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  std::vector<unsigned char> back(100);
  ASSERT_EQ(cu.cuMemcpyAsync(reinterpret_cast<std::uintptr_t>(back.data()), to, 100, own),
            kSuccess);
  EXPECT_EQ(back, std::vector<unsigned char>(100, 4));
  EXPECT_EQ(fake.copied_bytes(), 50u + 25 + 25 + 100);
}

TEST_F(FakeStreams, a_batch_copies_both_ways) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream();
  unsigned char* const host = locked(4096);
  host[0] = 5;
  ASSERT_EQ(cu.cuMemsetD8_v2(at + 100, 6, 1), kSuccess);
  const auto host_at = reinterpret_cast<std::uintptr_t>(host);
  std::array<cuda::DevicePointer, 2> to = {at, host_at + 1};
  std::array<cuda::DevicePointer, 2> from = {host_at, at + 100};
  std::array<std::size_t, 2> bytes = {1, 1};
  std::array<std::size_t, 1> first = {0};
  std::size_t failed = 0;
  cuda::BatchAttributes attributes;
  attributes.source_order = 0;
  const auto copy = [&](cuda::Stream where) {
    return cu.cuMemcpyBatchAsync(to.data(), from.data(), bytes.data(), 2, &attributes, first.data(),
                                 1, &failed, where);
  };
  EXPECT_EQ(copy(own), cuda::kInvalidValue) << "no order";
  EXPECT_EQ(failed, ~std::size_t{0});
  attributes.source_order = 1;
  EXPECT_EQ(copy(nullptr), cuda::kInvalidValue) << "not on the legacy stream";
  ASSERT_EQ(copy(own), kSuccess);
  ASSERT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  EXPECT_EQ(byte_at(at), 5);
  EXPECT_EQ(host[1], 6);
  bytes[1] = 5000;  // The range exceeds the locked memory.
  EXPECT_EQ(copy(own), cuda::kInvalidValue);
  EXPECT_EQ(failed, 1u);
}

TEST_F(FakeStreams, copies_take_the_time_they_are_told) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream();
  unsigned char* const host = locked(kChunk);
  const auto begin = steady_clock::now();
  fake.slow_copies(0, 30ms);
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, 1, own), kSuccess);
  EXPECT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  EXPECT_GE(steady_clock::now() - begin, 30ms);
  fake.slow_copies(50, 0ms);  // 105 ms.
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, kChunk, own), kSuccess);
  EXPECT_EQ(cu.cuStreamQuery(own), kNotReady);
  EXPECT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  EXPECT_GE(steady_clock::now() - begin, 130ms);
}

TEST_F(FakeStreams, work_that_fails_breaks_the_context) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream();
  unsigned char* const host = locked(3);
  host[0] = host[1] = host[2] = 1;
  fake.fail_nth(FakeCuda::kWork, 2, cuda::kEccUncorrectable);
  fake.hold_work(true);
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(at + i, host + i, 1, own), kSuccess);
  }
  fake.hold_work(false);
  EXPECT_EQ(cu.cuStreamSynchronize(own), cuda::kEccUncorrectable);
  EXPECT_EQ(cu.cuCtxSynchronize(), cuda::kEccUncorrectable);
  EXPECT_EQ(fake.copied_bytes(), 1u);
}

TEST_F(FakeStreams, a_lost_device_ends_what_runs_and_refuses_the_rest) {
  fake.set_devices(2);
  cuda::Context second = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&second, 1), kSuccess);
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream();
  unsigned char* const host = locked(1);
  fake.slow_copies(0, 1h);
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, 1, own), kSuccess);
  ASSERT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, 1, own), kSuccess);
  std::future<cuda::Result> waiter = std::async(std::launch::async, [&] {
    (void)cu.cuCtxSetCurrent(context);
    return cu.cuStreamSynchronize(own);
  });
  EXPECT_EQ(waiter.wait_for(20ms), std::future_status::timeout);
  fake.lose_device(0);
  EXPECT_EQ(waiter.get(), cuda::kDeviceUnavailable);
  std::size_t bytes = 0;
  cuda::MemoryHandle handle = 0;
  const cuda::AllocationProperties first_device = on(0);
  EXPECT_EQ(cu.cuMemGetInfo_v2(&bytes, &bytes), cuda::kDeviceUnavailable);
  EXPECT_EQ(cu.cuMemcpyHtoDAsync_v2(at, host, 1, own), cuda::kDeviceUnavailable);
  EXPECT_EQ(cu.cuMemUnmap(at, kChunk), cuda::kDeviceUnavailable);
  EXPECT_EQ(fake.live().mappings, 0u);
  ASSERT_EQ(cu.cuCtxSetCurrent(second), kSuccess);
  EXPECT_EQ(cu.cuMemGetInfo_v2(&bytes, &bytes), kSuccess) << "the other is there";
  EXPECT_EQ(cu.cuStreamQuery(own), cuda::kDeviceUnavailable) << "the stream is the first's";
  EXPECT_EQ(cu.cuMemCreate(&handle, kChunk, &first_device, 0), cuda::kDeviceUnavailable);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), kSuccess);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRetain(&context, 0), cuda::kDeviceUnavailable);
}

TEST_F(FakeStreams, reset_does_not_wait_for_what_has_not_begun) {
  const cuda::DevicePointer at = mapped();
  fake.slow_copies(0, 1h);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cu.cuMemsetD8Async(at, 1, 1, stream()), kSuccess);
  }
  fake.hold_work(true);
  ASSERT_EQ(cu.cuMemsetD8Async(at, 1, 1, nullptr), kSuccess);
  fake.reset();
  EXPECT_EQ(fake.live(), FakeCudaLive{});
}

// Each thread copies bytes in and out on a stream of its own, while another creates and destroys
// streams and events. Every byte returns.
TEST_F(FakeStreams, many_threads_at_once) {
  const int rounds = kThreadSanitizer || kAddressSanitizer ? 50 : 300;
  constexpr std::size_t kBytes = 4096;
  const cuda::DevicePointer at = mapped();
  const auto worker = [&](unsigned number) {
    (void)cu.cuCtxSetCurrent(context);
    const cuda::Stream own = stream(number % 2 == 0 ? 0 : cuda::kStreamNonBlocking);
    const cuda::Event mark = event();
    unsigned char* const host = locked(2 * kBytes);
    const cuda::DevicePointer mine = at + number * kBytes;
    int wrong = 0;
    for (int i = 0; i < rounds; ++i) {
      std::iota(host, host + kBytes, static_cast<unsigned char>(i + static_cast<int>(number)));
      wrong += cu.cuMemcpyHtoDAsync_v2(mine, host, kBytes, own);
      wrong += cu.cuMemcpyDtoHAsync_v2(host + kBytes, mine, kBytes, own);
      wrong += cu.cuEventRecord(mark, own);
      while (cu.cuEventQuery(mark) == kNotReady) {
        std::this_thread::yield();
      }
      wrong += std::memcmp(host, host + kBytes, kBytes) != 0 ? 1 : 0;
    }
    return wrong;
  };
  std::vector<std::future<int>> workers;
  for (unsigned i = 0; i < 4; ++i) {
    workers.push_back(std::async(std::launch::async, worker, i));
  }
  for (int i = 0; i < rounds; ++i) {
    const cuda::Stream passing = stream(0);
    const cuda::Event mark = event();
    EXPECT_EQ(cu.cuMemsetD8Async(at + 5 * kBytes, 1, 1, passing), kSuccess);
    EXPECT_EQ(cu.cuEventRecord(mark, passing), kSuccess);
    EXPECT_EQ(cu.cuStreamDestroy_v2(passing), kSuccess);
    EXPECT_EQ(cu.cuEventSynchronize(mark), kSuccess);
    EXPECT_EQ(cu.cuEventDestroy_v2(mark), kSuccess);
  }
  for (std::future<int>& each : workers) {
    EXPECT_EQ(each.get(), 0);
  }
  EXPECT_EQ(fake.live().streams, 4u);
}

TEST_F(FakeDriver, events_tell_the_time_between_them) {
  cuda::Event first = nullptr;
  cuda::Event last = nullptr;
  ASSERT_EQ(cu.cuEventCreate(&first, 0), kSuccess);
  ASSERT_EQ(cu.cuEventCreate(&last, 0), kSuccess);
  float ms = -1;
  EXPECT_EQ(cu.cuEventElapsedTime(&ms, first, last), cuda::kInvalidHandle) << "never recorded";
  const cuda::Stream copies = stream();
  const cuda::DevicePointer at = allocated(kChunk);
  ASSERT_EQ(cu.cuEventRecord(first, copies), kSuccess);
  fake.slow_copies(0, 20ms);
  ASSERT_EQ(cu.cuMemsetD8Async(at, 1, kChunk, copies), kSuccess);
  ASSERT_EQ(cu.cuEventRecord(last, copies), kSuccess);
  EXPECT_EQ(cu.cuEventElapsedTime(&ms, first, last), cuda::kNotReady);
  ASSERT_EQ(cu.cuStreamSynchronize(copies), kSuccess);
  EXPECT_EQ(cu.cuEventElapsedTime(&ms, first, last), kSuccess);
  EXPECT_GE(ms, 20);
  EXPECT_EQ(cu.cuEventElapsedTime(&ms, first, event()), cuda::kInvalidHandle) << "without a clock";
}

}  // namespace
}  // namespace tiermem::test
