// What a program does with a GPU beside tiermem: it has the context current in its thread, and
// reads and writes device memory on a stream of its own. On the fake driver, whose device memory no
// test can touch otherwise.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "os/cuda_driver.hpp"
#include "support/fake_cuda/control.hpp"
#include "support/pattern.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {

inline FakeCuda& fake_cuda() {
  static FakeCuda* const fake = [] {
    void* const library = ::dlopen(TIERMEM_FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << ::dlerror();
    return reinterpret_cast<FakeCudaFunction>(::dlsym(library, kFakeCudaSymbol))();
  }();
  return *fake;
}

/// One thread's.
class Program {
 public:
  explicit Program(int device = 0)
      : driver_(*CudaDriver::load(TIERMEM_FAKE_CUDA_LIBRARY)), device_(device) {
    cuda::Context context = nullptr;
    EXPECT_TRUE(driver_.start().ok());
    EXPECT_EQ(driver_.cuDevicePrimaryCtxRetain(&context, device_), cuda::kSuccess);
    EXPECT_EQ(driver_.cuCtxSetCurrent(context), cuda::kSuccess);
    EXPECT_EQ(driver_.cuStreamCreate(&stream_, cuda::kStreamNonBlocking), cuda::kSuccess);
  }
  ~Program() {
    (void)driver_.cuStreamDestroy(stream_);
    (void)driver_.cuCtxSetCurrent(nullptr);
    (void)driver_.cuDevicePrimaryCtxRelease(device_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const CudaDriver& driver() const { return driver_; }

  std::vector<std::uint64_t> words(const View& view) const {
    std::vector<std::uint64_t> words(view.size() / 8);
    EXPECT_EQ(driver_.cuMemcpyDtoHAsync(words.data(), address(view), view.size(), stream_),
              cuda::kSuccess);
    EXPECT_EQ(driver_.cuStreamSynchronize(stream_), cuda::kSuccess);
    return words;
  }
  void put(const View& view, std::uint64_t seed) const {
    std::vector<std::uint64_t> words(view.size() / 8);
    fill(words, seed);
    EXPECT_EQ(driver_.cuMemcpyHtoDAsync(address(view), words.data(), view.size(), stream_),
              cuda::kSuccess);
    EXPECT_EQ(driver_.cuStreamSynchronize(stream_), cuda::kSuccess);
  }
  bool holds(const View& view, std::uint64_t seed) const { return wrong(words(view), seed) == 0; }

 private:
  static cuda::DevicePointer address(const View& view) {
    return reinterpret_cast<cuda::DevicePointer>(view.data());
  }

  CudaDriver driver_;
  const int device_;
  cuda::Stream stream_ = nullptr;
};

}  // namespace tiermem::test
