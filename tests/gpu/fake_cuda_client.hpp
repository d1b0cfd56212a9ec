// A client of the fake driver, for the tests of the fake itself: all functions, found by
// cuGetProcAddress as a client finds them, and a fixture in which the first device's context is
// current.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "os/cuda_types.hpp"
#include "support/fake_cuda/control.hpp"
#include "support/fake_cuda/entry_points.hpp"
#include "support/gate.hpp"
#include "support/places.hpp"

namespace tiermem::test {

inline void* fake_cuda_library() {
  static void* const library = ::dlopen(fake_cuda_path(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << ::dlerror();
  return library;
}

namespace client {
using namespace cuda;  // NOLINT: the list of functions is written for that namespace.
using cuda::Context;   // Not tiermem's Context.
using cuda::Result;
using cuda::Stream;

/// The functions by their ABI names; null if this version of the driver does not have the function.
struct Table {
#define TIERMEM_FAKE_CUDA_MEMBER(since, name, abi_name, parameters) \
  Result(*abi_name) parameters = nullptr;
  TIERMEM_FAKE_CUDA_CALLS(TIERMEM_FAKE_CUDA_MEMBER)
#undef TIERMEM_FAKE_CUDA_MEMBER

  explicit Table(void* library = fake_cuda_library()) {
    const auto get =
        reinterpret_cast<decltype(cuGetProcAddress_v2)>(::dlsym(library, "cuGetProcAddress_v2"));
    void* function = nullptr;
#define TIERMEM_FAKE_CUDA_LOOK_UP(since, name, abi_name, parameters)         \
  (void)get(#name, &function, since, 0, nullptr); /* Null when not found. */ \
  abi_name = reinterpret_cast<decltype(abi_name)>(function);
    TIERMEM_FAKE_CUDA_CALLS(TIERMEM_FAKE_CUDA_LOOK_UP)
#undef TIERMEM_FAKE_CUDA_LOOK_UP
  }
};
}  // namespace client

class FakeDriver : public testing::Test {
 protected:
  static constexpr std::uint64_t kChunk = std::uint64_t{2} << 20;

  FakeDriver()
      : fake(*reinterpret_cast<FakeCudaFunction>(::dlsym(fake_cuda_library(), kFakeCudaSymbol))()) {
    fake.reset();
    EXPECT_EQ(cu.cuInit(0), cuda::kSuccess);
    EXPECT_EQ(cu.cuDevicePrimaryCtxRetain(&context, 0), cuda::kSuccess);
    EXPECT_EQ(cu.cuCtxSetCurrent(context), cuda::kSuccess);
  }
  ~FakeDriver() override {
    for (Gate& each : gates_) {
      each.open();
    }
    fake.reset();
  }

  /// The gate lives until no stream can wait at it.
  Gate& new_gate() { return gates_.emplace_back(); }

  cuda::Stream stream(unsigned flags = cuda::kStreamNonBlocking) const {
    cuda::Stream made = nullptr;
    EXPECT_EQ(cu.cuStreamCreate(&made, flags), cuda::kSuccess);
    return made;
  }
  cuda::Event event() const {
    cuda::Event made = nullptr;
    EXPECT_EQ(cu.cuEventCreate(&made, cuda::kEventDisableTiming), cuda::kSuccess);
    return made;
  }
  static cuda::AllocationProperties on(int device) {
    cuda::AllocationProperties properties;
    properties.location.id = device;
    return properties;
  }
  cuda::MemoryHandle chunk(std::uint64_t bytes = kChunk, int device = 0) const {
    cuda::MemoryHandle handle = 0;
    const cuda::AllocationProperties properties = on(device);
    EXPECT_EQ(cu.cuMemCreate(&handle, bytes, &properties, 0), cuda::kSuccess);
    return handle;
  }
  cuda::DevicePointer addresses(std::uint64_t bytes = kChunk) const {
    cuda::DevicePointer at = 0;
    EXPECT_EQ(cu.cuMemAddressReserve(&at, bytes, 0, 0, 0), cuda::kSuccess);
    return at;
  }
  cuda::Result allow(cuda::DevicePointer at, std::uint64_t bytes,
                     int access = cuda::kAccessReadWrite, int device = 0) const {
    const cuda::AccessDescription description{{cuda::kLocationDevice, device}, access};
    return cu.cuMemSetAccess(at, bytes, &description, 1);
  }
  /// Returns a chunk mapped at its own address; the first device may use it.
  cuda::DevicePointer mapped(std::uint64_t bytes = kChunk) const {
    const cuda::DevicePointer at = addresses(bytes);
    const cuda::MemoryHandle handle = chunk(bytes);
    EXPECT_EQ(cu.cuMemMap(at, bytes, 0, handle, 0), cuda::kSuccess);
    EXPECT_EQ(cu.cuMemRelease(handle), cuda::kSuccess);
    EXPECT_EQ(allow(at, bytes), cuda::kSuccess);
    return at;
  }
  cuda::DevicePointer allocated(std::uint64_t bytes) const {
    cuda::DevicePointer at = 0;
    EXPECT_EQ(cu.cuMemAlloc_v2(&at, bytes), cuda::kSuccess);
    return at;
  }
  unsigned char* locked(std::uint64_t bytes) const {
    void* at = nullptr;
    EXPECT_EQ(cu.cuMemHostAlloc(&at, bytes, 0), cuda::kSuccess);
    return static_cast<unsigned char*>(at);
  }
  unsigned char byte_at(cuda::DevicePointer at) const {
    unsigned char value = 0;
    EXPECT_EQ(cu.cuMemcpyDtoH_v2(&value, at, 1), cuda::kSuccess);
    return value;
  }
  std::uint64_t free_bytes() const {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cu.cuMemGetInfo_v2(&free, &total), cuda::kSuccess);
    return free;
  }
  /// Runs `body` on a new thread, which has no context unless `body` sets one.
  template <typename Body>
  static auto elsewhere(Body body) {
    return std::async(std::launch::async, std::move(body)).get();
  }

  FakeCuda& fake;
  client::Table cu;
  cuda::Context context = nullptr;

 private:
  std::deque<Gate> gates_;
};

}  // namespace tiermem::test
