// The GPU work of a program beside tiermem. Its context is current in its thread, and it reads and
// writes device memory on a stream of its own. It uses the fake driver, where tests cannot touch
// device memory in any other way. TIERMEM_GPU_TEST_DRIVER can name a real driver instead; a test
// that steers the fake, or reads its counts, is then skipped at that point (scripts/gpu-suite).
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "os/cuda_driver.hpp"
#include "support/fake_cuda/control.hpp"
#include "support/pattern.hpp"
#include "support/places.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {

inline const char* test_driver() {
  const char* const named = std::getenv("TIERMEM_GPU_TEST_DRIVER");
  return named != nullptr && *named != '\0' ? named : fake_cuda_path();
}

/// Returns null if the driver is a real one.
inline FakeCuda* find_fake_cuda() {
  static FakeCuda* const fake = []() -> FakeCuda* {
    if (fake_cuda_is_disguised()) {
      return nullptr;
    }
    void* const library = ::dlopen(test_driver(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << ::dlerror();
    void* const function = library == nullptr ? nullptr : ::dlsym(library, kFakeCudaSymbol);
    return function == nullptr ? nullptr : reinterpret_cast<FakeCudaFunction>(function)();
  }();
  return fake;
}

/// Call this only in the test's own thread. With a real driver the test ends as skipped.
inline FakeCuda& fake_cuda() {
  if (FakeCuda* const fake = find_fake_cuda(); fake != nullptr) {
    return *fake;
  }
  static constexpr const char* kWhy = "steers the fake driver, or counts on it";
  [] { GTEST_SKIP() << kWhy; }();
  // This exception means that the result is already known: the test unwinds and does not fail.
  throw ::testing::AssertionException(
      ::testing::TestPartResult(::testing::TestPartResult::kSkip, __FILE__, __LINE__, kWhy));
}

/// For one thread.
class Program {
 public:
  explicit Program(int device = 0) : driver_(*CudaDriver::load(test_driver())), device_(device) {
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
  cuda::Stream stream() const { return stream_; }

  std::vector<std::uint64_t> words(const View& view) const {
    return words(view.data(), view.size());
  }
  std::vector<std::uint64_t> words(const void* at, std::uint64_t bytes) const {
    std::vector<std::uint64_t> words(bytes / 8);
    EXPECT_EQ(driver_.cuMemcpyDtoHAsync(words.data(), address(at), bytes, stream_), cuda::kSuccess);
    EXPECT_EQ(driver_.cuStreamSynchronize(stream_), cuda::kSuccess);
    return words;
  }
  void put(const View& view, std::uint64_t seed) const { put(view.data(), view.size(), seed); }
  void put(const void* at, std::uint64_t bytes, std::uint64_t seed) const {
    std::vector<std::uint64_t> words(bytes / 8);
    fill(words, seed);
    EXPECT_EQ(driver_.cuMemcpyHtoDAsync(address(at), words.data(), bytes, stream_), cuda::kSuccess);
    EXPECT_EQ(driver_.cuStreamSynchronize(stream_), cuda::kSuccess);
  }
  bool holds(const View& view, std::uint64_t seed) const { return wrong(words(view), seed) == 0; }
  bool holds(const void* at, std::uint64_t bytes, std::uint64_t seed) const {
    return wrong(words(at, bytes), seed) == 0;
  }
  std::uint64_t free_bytes() const {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(driver_.cuMemGetInfo(&free, &total), cuda::kSuccess);
    return free;
  }

 private:
  static cuda::DevicePointer address(const void* at) {
    return reinterpret_cast<cuda::DevicePointer>(at);
  }

  CudaDriver driver_;
  const int device_;
  cuda::Stream stream_ = nullptr;
};

}  // namespace tiermem::test
