// A stream of the program, and the work that tests give it.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <span>

#include "gpu/fake_cuda_client.hpp"
#include "gpu/program.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {

/// All driver functions that the tests use.
inline const client::Table& cu() {
  static const client::Table table(::dlopen(test_driver(), RTLD_NOW | RTLD_LOCAL));
  return table;
}

/// A stream of the program, and the memory from which it writes to the device.
class Work {
 public:
  explicit Work(const Program& program, std::uint64_t bytes = kChunk) : driver_(program.driver()) {
    void* at = nullptr;
    EXPECT_EQ(driver_.cuStreamCreate(&stream_, cuda::kStreamNonBlocking), cuda::kSuccess);
    EXPECT_EQ(cu().cuMemHostAlloc(&at, 2 * bytes, 0), cuda::kSuccess);
    words_ = {static_cast<std::uint64_t*>(at), bytes / 8};
    got_ = {words_.data() + bytes / 8, bytes / 8};
  }
  ~Work() {
    finish();
    (void)cu().cuMemFreeHost(words_.data());
    (void)driver_.cuStreamDestroy(stream_);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  cuda::Stream stream() const { return stream_; }
  StreamOrder order() const { return cuda_stream(stream_); }
  /// Work given to the stream after this call waits until finish() or the gate opens.
  void stop_here() {
    EXPECT_EQ(cu().cuLaunchHostFunc(stream_, Gate::wait, &gate()), cuda::kSuccess);
  }
  Gate& gate() { return gates_.empty() ? gates_.emplace_back() : gates_.back(); }
  /// Begins to write. The source memory is in use until finish().
  void begin_put(const View& view, std::uint64_t seed) {
    begin_put(view.data(), view.size(), seed);
  }
  void begin_put(void* at, std::uint64_t bytes, std::uint64_t seed) {
    fill(words_, seed);
    EXPECT_EQ(driver_.cuMemcpyHtoDAsync(reinterpret_cast<cuda::DevicePointer>(at), words_.data(),
                                        bytes, stream_),
              cuda::kSuccess);
  }
  /// Begins to read the bytes of the view.
  void begin_get(const View& view) {
    EXPECT_EQ(
        driver_.cuMemcpyDtoHAsync(got_.data(), reinterpret_cast<cuda::DevicePointer>(view.data()),
                                  view.size(), stream_),
        cuda::kSuccess);
  }
  bool got(std::uint64_t seed) {
    finish();
    return wrong(got_, seed) == 0;
  }
  void finish() {
    for (Gate& gate : gates_) {
      gate.open();
    }
    (void)driver_.cuStreamSynchronize(stream_);
    gates_.clear();
  }

 private:
  const CudaDriver driver_;
  cuda::Stream stream_ = nullptr;
  std::span<std::uint64_t> words_, got_;  // Page-locked.
  std::deque<Gate> gates_;
};

}  // namespace tiermem::test
