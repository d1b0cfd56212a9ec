// The fake driver itself: loading, devices, contexts, and counting, failing and slowing down calls
// on request. Its memory and its streams have their own test files.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "fake_cuda_client.hpp"

namespace tiermem::test {
namespace {

using cuda::kSuccess;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

TEST_F(FakeDriver, nothing_works_before_the_driver_is_initialized) {
  fake.reset();
  int count = 0;
  std::size_t bytes = 0;
  cuda::Context made = nullptr;
  EXPECT_EQ(cu.cuDeviceGetCount(&count), cuda::kNotInitialized);
  EXPECT_EQ(cu.cuMemGetInfo_v2(&bytes, &bytes), cuda::kNotInitialized);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRetain(&made, 0), cuda::kNotInitialized);
  EXPECT_EQ(cu.cuInit(1), cuda::kInvalidValue);
  EXPECT_EQ(cu.cuInit(0), kSuccess);
  EXPECT_EQ(cu.cuDeviceGetCount(&count), kSuccess);
  EXPECT_EQ(count, 1);
}

TEST_F(FakeDriver, a_forked_child_of_one_who_initialized_it_is_refused) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::size_t bytes = 0;
    int version = 0;
    const bool refused = cu.cuMemGetInfo_v2(&bytes, &bytes) == cuda::kNotInitialized &&
                         cu.cuCtxSetCurrent(context) == cuda::kNotInitialized &&
                         cu.cuInit(0) == cuda::kNotInitialized &&
                         cu.cuMemcpyHtoD_v2(1, &bytes, 1) == cuda::kNotInitialized;
    ::_exit(refused && cu.cuDriverGetVersion(&version) == kSuccess ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(free_bytes(), 128 * kChunk) << "the parent's driver works on";
}

TEST_F(FakeDriver, a_child_forked_before_may_initialize_it) {
  fake.reset();
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(cu.cuInit(0) == kSuccess ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(FakeDriver, without_devices_it_does_not_start) {
  fake.reset();
  fake.set_devices(0);
  EXPECT_EQ(cu.cuInit(0), cuda::kNoDevice);
}

TEST_F(FakeDriver, its_devices_are_told_apart) {
  fake.set_devices(2);
  fake.set_capacity(64 * kChunk);
  int count = 0;
  cuda::Device device = -1;
  EXPECT_EQ(cu.cuDeviceGetCount(&count), kSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cu.cuDeviceGet(&device, 2), cuda::kInvalidDevice);
  cuda::Uuid uuids[2];
  char ids[2][32] = {};
  for (int i = 0; i < 2; ++i) {
    char name[64] = {};
    std::size_t total = 0;
    ASSERT_EQ(cu.cuDeviceGet(&device, i), kSuccess);
    EXPECT_EQ(cu.cuDeviceGetName(name, sizeof(name), device), kSuccess);
    EXPECT_STREQ(name, "tiermem fake GPU");
    EXPECT_EQ(cu.cuDeviceGetUuid_v2(&uuids[i], device), kSuccess);
    EXPECT_EQ(cu.cuDeviceGetPCIBusId(ids[i], sizeof(ids[i]), device), kSuccess);
    EXPECT_EQ(cu.cuDeviceTotalMem_v2(&total, device), kSuccess);
    EXPECT_EQ(total, 64 * kChunk);
  }
  EXPECT_NE(memcmp(&uuids[0], &uuids[1], sizeof(uuids[0])), 0);
  EXPECT_STREQ(ids[0], "0000:01:00.0");
  EXPECT_STREQ(ids[1], "0000:02:00.0");
}

TEST_F(FakeDriver, attributes_are_those_of_a_large_gpu_until_set) {
  const auto value_of = [&](int attribute) {
    int value = -1;
    EXPECT_EQ(cu.cuDeviceGetAttribute(&value, attribute, 0), kSuccess);
    return value;
  };
  EXPECT_EQ(value_of(cuda::kCapabilityMajor), 9);
  EXPECT_EQ(value_of(cuda::kCapabilityMinor), 0);
  EXPECT_EQ(value_of(cuda::kUnifiedAddressing), 1);
  EXPECT_EQ(value_of(cuda::kVirtualMemory), 1);
  EXPECT_EQ(value_of(cuda::kHostRegister), 1);
  EXPECT_EQ(value_of(cuda::kAsyncEngines), 2);
  EXPECT_EQ(value_of(cuda::kIntegrated), 0);
  fake.set_attribute(cuda::kVirtualMemory, 0);
  EXPECT_EQ(value_of(cuda::kVirtualMemory), 0);
}

TEST_F(FakeDriver, errors_have_names) {
  const char* text = nullptr;
  EXPECT_EQ(cu.cuGetErrorName(cuda::kOutOfMemory, &text), kSuccess);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(cu.cuGetErrorString(cuda::kOutOfMemory, &text), kSuccess);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cu.cuGetErrorName(12345, &text), cuda::kInvalidValue);
  EXPECT_EQ(text, nullptr);
}

TEST_F(FakeDriver, a_function_is_found_by_its_name_and_version) {
  const auto ask = [&](const char* name, int version, void*& function, int& status) {
    function = &status;
    status = -1;
    return cu.cuGetProcAddress_v2(name, &function, version, 0, &status);
  };
  void* function = nullptr;
  int status = 0;
  EXPECT_EQ(ask("cuMemCreate", 10020, function, status), kSuccess);
  EXPECT_NE(function, nullptr);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ask("cuMemCreat", 10020, function, status), cuda::kNotFound);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(ask("cuMemCreate", 10010, function, status), cuda::kNotFound);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(status, 2);
  EXPECT_EQ(ask("cuMemCreate", 13000, function, status), cuda::kInvalidValue);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(ask("cuMemAlloc_v2", 12000, function, status), cuda::kNotFound);

  fake.hide("cuMemCreate");
  EXPECT_EQ(ask("cuMemCreate", 10020, function, status), cuda::kNotFound);
  EXPECT_EQ(cu.cuGetProcAddress("cuMemMap", &function, 12000, 0), kSuccess);
}

TEST_F(FakeDriver, a_function_that_changed_is_found_in_the_version_asked_for) {
  EXPECT_NE(cu.cuMemcpyBatchAsync, nullptr);
  EXPECT_EQ(cu.cuMemcpyBatchAsync_v2, nullptr);
  fake.set_driver_version(13000);
  const client::Table newer;
  EXPECT_EQ(newer.cuMemcpyBatchAsync, cu.cuMemcpyBatchAsync);
  EXPECT_NE(newer.cuMemcpyBatchAsync_v2, nullptr);
  fake.set_driver_version(12000);
  const client::Table older;
  EXPECT_EQ(older.cuMemcpyBatchAsync, nullptr);
  int version = 0;
  EXPECT_EQ(cu.cuDriverGetVersion(&version), kSuccess);
  EXPECT_EQ(version, 12000);
}

TEST_F(FakeDriver, every_thread_has_a_current_context_of_its_own) {
  std::size_t bytes = 0;
  cuda::Context current = context;
  EXPECT_EQ(elsewhere([&] { return cu.cuMemGetInfo_v2(&bytes, &bytes); }), cuda::kInvalidContext);
  EXPECT_EQ(elsewhere([&] { return cu.cuCtxGetCurrent(&current); }), kSuccess);
  EXPECT_EQ(current, nullptr);
  EXPECT_EQ(elsewhere([&] {
              (void)cu.cuCtxSetCurrent(context);
              return cu.cuMemGetInfo_v2(&bytes, &bytes);
            }),
            kSuccess);
  EXPECT_EQ(cu.cuCtxSetCurrent(nullptr), kSuccess);
  EXPECT_EQ(cu.cuMemGetInfo_v2(&bytes, &bytes), cuda::kInvalidContext);
  void* at = nullptr;
  cuda::Stream made = nullptr;
  EXPECT_EQ(cu.cuMemHostAlloc(&at, 1, 0), cuda::kInvalidContext);
  EXPECT_EQ(cu.cuStreamCreate(&made, 0), cuda::kInvalidContext);
  EXPECT_EQ(cu.cuCtxSetCurrent(reinterpret_cast<cuda::Context>(16)), cuda::kInvalidContext);
}

TEST_F(FakeDriver, current_contexts_are_a_stack) {
  fake.set_devices(2);
  cuda::Context second = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&second, 1), kSuccess);
  ASSERT_NE(second, context);
  cuda::Device device = -1;
  EXPECT_EQ(cu.cuCtxPushCurrent_v2(second), kSuccess);
  EXPECT_EQ(cu.cuCtxGetDevice(&device), kSuccess);
  EXPECT_EQ(device, 1);
  cuda::Context popped = nullptr;
  EXPECT_EQ(cu.cuCtxPopCurrent_v2(&popped), kSuccess);
  EXPECT_EQ(popped, second);
  EXPECT_EQ(cu.cuCtxGetDevice(&device), kSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cu.cuCtxPopCurrent_v2(&popped), kSuccess);
  EXPECT_EQ(cu.cuCtxPopCurrent_v2(&popped), cuda::kInvalidContext);
}

TEST_F(FakeDriver, a_primary_context_lasts_until_its_last_release) {
  cuda::Context again = nullptr;
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&again, 0), kSuccess);
  EXPECT_EQ(again, context);
  const cuda::Stream own = stream();
  const cuda::Event mark = event();
  unsigned flags = 0;
  int active = 0;
  EXPECT_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), kSuccess);
  EXPECT_EQ(cu.cuDevicePrimaryCtxGetState(0, &flags, &active), kSuccess);
  EXPECT_EQ(active, 1);
  EXPECT_EQ(cu.cuStreamSynchronize(own), kSuccess);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), kSuccess);
  EXPECT_EQ(cu.cuDevicePrimaryCtxGetState(0, &flags, &active), kSuccess);
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), cuda::kInvalidContext);

  std::size_t bytes = 0;
  EXPECT_EQ(cu.cuMemGetInfo_v2(&bytes, &bytes), cuda::kContextIsDestroyed);
  EXPECT_EQ(cu.cuStreamSynchronize(own), cuda::kContextIsDestroyed);
  EXPECT_EQ(cu.cuCtxSetCurrent(context), cuda::kContextIsDestroyed);
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&again, 0), kSuccess);
  ASSERT_EQ(cu.cuCtxSetCurrent(again), kSuccess);
  EXPECT_EQ(cu.cuMemGetInfo_v2(&bytes, &bytes), kSuccess);
  EXPECT_EQ(cu.cuStreamSynchronize(own), cuda::kInvalidHandle);
  EXPECT_EQ(cu.cuEventQuery(mark), cuda::kInvalidHandle);
}

TEST_F(FakeDriver, the_nth_call_fails_and_does_nothing) {
  fake.fail_nth("cuMemCreate", 2, cuda::kOutOfMemory, 2);
  fake.fail_nth("cuMemCreate", 5, cuda::kDeviceUnavailable);
  const cuda::AllocationProperties properties = on(0);
  std::vector<cuda::Result> results;
  for (int i = 0; i < 6; ++i) {
    cuda::MemoryHandle handle = 0;
    results.push_back(cu.cuMemCreate(&handle, kChunk, &properties, 0));
  }
  EXPECT_EQ(results, (std::vector<cuda::Result>{0, 2, 2, 0, 46, 0}));
  EXPECT_EQ(fake.live().handles, 3u);
  EXPECT_EQ(fake.calls("cuMemCreate"), 6u);
  EXPECT_EQ(fake.calls("cuMemRelease"), 0u);

  fake.fail_nth("cuStreamCreate", 1, cuda::kOutOfMemory, FakeCuda::kForever);
  cuda::Stream made = nullptr;
  EXPECT_EQ(cu.cuStreamCreate(&made, 0), cuda::kOutOfMemory);
  EXPECT_EQ(cu.cuStreamCreate(&made, 0), cuda::kOutOfMemory);
  fake.forgive();
  EXPECT_EQ(cu.cuStreamCreate(&made, 0), kSuccess);
}

TEST_F(FakeDriver, a_slow_call_lets_others_pass) {
  fake.slow_call("cuCtxGetDevice", 200ms);
  const auto begin = steady_clock::now();
  std::future<cuda::Result> slow = std::async(std::launch::async, [&] {
    cuda::Device device = 0;
    return cu.cuCtxGetDevice(&device);
  });
  while (fake.calls("cuCtxGetDevice") == 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(free_bytes(), 128 * kChunk);
  EXPECT_EQ(slow.wait_for(0ms), std::future_status::timeout);
  EXPECT_EQ(slow.get(), cuda::kInvalidContext);
  EXPECT_GE(steady_clock::now() - begin, 200ms);
}

TEST_F(FakeDriver, all_that_lives_is_counted) {
  const cuda::DevicePointer at = mapped();
  const cuda::MemoryHandle handle = chunk(2 * kChunk);
  const cuda::DevicePointer plain = allocated(100);
  const cuda::Stream own = stream();
  const cuda::Event mark = event();
  std::vector<unsigned char> bytes(5000);
  unsigned char* const host = locked(1);
  ASSERT_EQ(cu.cuMemHostRegister_v2(bytes.data(), bytes.size(), 0), kSuccess);
  FakeCudaLive live = fake.live();
  EXPECT_GE(live.locked_bytes, 3 * 4096u);
  live.locked_bytes = 0;
  const FakeCudaLive expected{.contexts = 1,
                              .streams = 1,
                              .events = 1,
                              .handles = 1,
                              .reservations = 1,
                              .mappings = 1,
                              .allocations = 1,
                              .device_bytes = 3 * kChunk + 100,
                              .host_allocations = 1,
                              .registrations = 1,
                              .locked_bytes = 0};
  EXPECT_EQ(live, expected);

  EXPECT_EQ(cu.cuMemHostUnregister(bytes.data()), kSuccess);
  EXPECT_EQ(cu.cuMemFreeHost(host), kSuccess);
  EXPECT_EQ(cu.cuEventDestroy_v2(mark), kSuccess);
  EXPECT_EQ(cu.cuStreamDestroy_v2(own), kSuccess);
  EXPECT_EQ(cu.cuMemFree_v2(plain), kSuccess);
  EXPECT_EQ(cu.cuMemRelease(handle), kSuccess);
  EXPECT_EQ(cu.cuMemUnmap(at, kChunk), kSuccess);
  EXPECT_EQ(cu.cuMemAddressFree(at, kChunk), kSuccess);
  EXPECT_EQ(cu.cuDevicePrimaryCtxRelease_v2(0), kSuccess);
  EXPECT_EQ(fake.live(), FakeCudaLive{});
}

TEST_F(FakeDriver, reset_forgets_everything) {
  (void)mapped();
  const cuda::Stream own = stream();
  unsigned char* const host = locked(1);
  ASSERT_EQ(cu.cuMemsetD8Async(allocated(1), 1, 1, own), kSuccess);
  ASSERT_NE(host, nullptr);
  fake.set_devices(3);
  fake.set_taken(0, kChunk);
  fake.fail_nth("cuInit", 1, cuda::kUnknown);
  fake.reset();
  EXPECT_EQ(fake.live(), FakeCudaLive{});
  EXPECT_EQ(fake.calls("cuMemCreate"), 0u);
  EXPECT_EQ(cu.cuInit(0), kSuccess);
  int count = 0;
  EXPECT_EQ(cu.cuDeviceGetCount(&count), kSuccess);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(cu.cuStreamQuery(own), cuda::kInvalidContext);
  ASSERT_EQ(cu.cuDevicePrimaryCtxRetain(&context, 0), kSuccess);
  ASSERT_EQ(cu.cuCtxSetCurrent(context), kSuccess);
  EXPECT_EQ(cu.cuStreamQuery(own), cuda::kInvalidHandle);
  EXPECT_EQ(free_bytes(), 128 * kChunk);
}

TEST_F(FakeDriver, what_it_has_no_model_of_is_there_and_refused) {
  void* found = nullptr;
  ASSERT_EQ(cu.cuGetProcAddress_v2("cuGetExportTable", &found, 12000, 0, nullptr), kSuccess);
  EXPECT_EQ(found, ::dlsym(fake_cuda_library(), "cuGetExportTable"));
  EXPECT_EQ(reinterpret_cast<cuda::Result (*)()>(found)(), cuda::kNotSupported);
  EXPECT_EQ(fake.calls("cuGetExportTable"), 1U);
}

}  // namespace
}  // namespace tiermem::test
