// A CUDA program on the fake driver, run under the preload library. The first device's primary
// context is current, and the driver's copies write and compare bytes. The program knows tiermem
// only through the weak functions of tiermem_preload.h. Each test is a process.
//
// The device has 96 MiB, of which the tier may use 64 (TIERMEM_GPU in tests/CMakeLists.txt).
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "preload/words.hpp"
#include "preload_cuda/driver.hpp"
#include "support/fake_cuda/control.hpp"
#include "support/gate.hpp"
#include "tiermem_preload.h"

namespace tiermem::test {

class CudaProgram : public testing::Test {
 protected:
  static constexpr std::uint64_t kDevice = 96 * kMiB;
  static constexpr std::uint64_t kTier = 64 * kMiB;
  // Values of tm_status.
  enum : int { kInvalidArgument = 1, kNoCapacity = 3, kBusy = 4, kUnsupported = 7, kUnavailable };

  CudaProgram()
      : library(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)),
        fake(*reinterpret_cast<FakeCudaFunction>(::dlsym(library, kFakeCudaSymbol))()),
        cu(driver::find(library)) {
    fake.set_capacity(kDevice);
    fake.set_devices(2);
    EXPECT_EQ(cu.cuInit(0), cuda::kSuccess);
    EXPECT_EQ(cu.cuDevicePrimaryCtxRetain(&context, 0), cuda::kSuccess);
    EXPECT_EQ(cu.cuCtxSetCurrent(context), cuda::kSuccess);
  }
  ~CudaProgram() override {
    for (Gate& each : gates_) {
      each.open();
    }
  }

  Gate& new_gate() { return gates_.emplace_back(); }
  /// Makes the stream wait for the gate from here on.
  void hold(Gate& gate, cuda::Stream stream) const {
    EXPECT_EQ(cu.cuLaunchHostFunc(stream, Gate::wait, &gate), cuda::kSuccess);
  }

  cuda::DevicePointer allocated(std::uint64_t bytes) const {
    cuda::DevicePointer at = 0;
    EXPECT_EQ(cu.cuMemAlloc_v2(&at, bytes), cuda::kSuccess) << bytes;
    return at;
  }
  /// Allocates a block in the set of that name, with the words of a seed.
  cuda::DevicePointer filled(std::uint64_t bytes, std::uint64_t seed,
                             const char* tag = nullptr) const {
    EXPECT_EQ(tiermem_gpu_tag(tag), 0) << tiermem_gpu_error();
    const cuda::DevicePointer at = allocated(bytes);
    EXPECT_EQ(tiermem_gpu_tag(nullptr), 0);
    fill(at, bytes, seed);
    return at;
  }
  void fill(cuda::DevicePointer at, std::uint64_t bytes, std::uint64_t seed) const {
    std::vector<std::byte> host(bytes);
    put_words(host.data(), bytes, seed);
    EXPECT_EQ(cu.cuMemcpyHtoD_v2(at, host.data(), bytes), cuda::kSuccess);
  }
  std::uint64_t wrong(cuda::DevicePointer at, std::uint64_t bytes, std::uint64_t seed) const {
    std::vector<std::byte> host(bytes);
    EXPECT_EQ(cu.cuMemcpyDtoH_v2(host.data(), at, bytes), cuda::kSuccess);
    return wrong_words(host.data(), bytes, seed);
  }
  void freed(cuda::DevicePointer at) const { EXPECT_EQ(cu.cuMemFree_v2(at), cuda::kSuccess); }

  cuda::Stream stream(unsigned flags = cuda::kStreamNonBlocking) const {
    cuda::Stream made = nullptr;
    EXPECT_EQ(cu.cuStreamCreate(&made, flags), cuda::kSuccess);
    return made;
  }
  std::uint64_t free_bytes() const {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cu.cuMemGetInfo_v2(&free, &total), cuda::kSuccess);
    return free;
  }
  /// Bytes allocated from the driver, including the tier's.
  std::uint64_t taken() const { return fake.live().device_bytes; }
  /// The part of these that the program got from the driver itself.
  std::uint64_t of_the_driver() const { return fake.live().allocations; }

  void* library;
  FakeCuda& fake;
  driver::Table cu;
  cuda::Context context = nullptr;

 private:
  std::deque<Gate> gates_;
};

}  // namespace tiermem::test
