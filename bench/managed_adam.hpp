// Adam on managed memory (cuMemAllocManaged), which the driver moves: the peer of
// gpu_oversubscribe. It gets all available hints: each layer is prefetched to the device before its
// step and back to the host after it, on separate streams. Device memory above the budget is
// occupied, so that the driver has no more of it than tiermem. One thread, in which the device's
// context is current.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/adam_kernel.hpp"

namespace tiermem::bench {

class ManagedAdam {
 public:
  struct Options {
    std::uint64_t layers = 0;
    std::uint64_t elements = 0;      ///< Elements per layer.
    std::uint64_t device_bytes = 0;  ///< Device memory that the driver may use.
  };

  /// `gpu` and `kernel` must outlive it. Errors: unsupported without managed memory; the driver's.
  static Result<std::unique_ptr<ManagedAdam>> create(GpuDevice& gpu, const AdamKernel& kernel,
                                                     const Options& options);
  ~ManagedAdam();
  ManagedAdam(const ManagedAdam&) = delete;
  ManagedAdam& operator=(const ManagedAdam&) = delete;

  /// Runs all layers once, and returns when they are done.
  Status step();
  /// Checks all elements on the host.
  Status check() const;

 private:
  ManagedAdam(GpuDevice& gpu, const AdamKernel& kernel, const Options& options)
      : gpu_(gpu), kernel_(kernel), options_(options) {}
  Status begin();
  Status take_the_rest();
  Status move(std::uint64_t layer, cuda::Device to, cuda::Stream stream);
  /// Makes further work of `second` wait for the current work of `first`.
  Status order(cuda::Stream first, cuda::Stream second, std::size_t event);
  std::uint64_t layer_bytes() const { return options_.elements * sizeof(float); }

  GpuDevice& gpu_;
  const AdamKernel& kernel_;
  const Options options_;
  std::array<cuda::DevicePointer, 4> arrays_{};  // Parameters, gradients, both moments.
  cuda::Stream compute_ = nullptr;
  std::vector<cuda::Event> events_;           // Two for each layer.
  std::vector<cuda::DevicePointer> ballast_;  // Occupied device memory.
  std::uint64_t steps_ = 0;
};

}  // namespace tiermem::bench
