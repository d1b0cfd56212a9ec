// Adam on a device: a kernel in our own PTX text, so that no toolkit is needed, and the same on the
// host for checks. One thread, in which the device's context is current.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "bench/gpu_device.hpp"

namespace tiermem::bench {

/// The positions of a layer's elements on the device; 4 bytes each.
struct AdamArrays {
  cuda::DevicePointer parameters = 0, gradients = 0, first = 0, second = 0;
  std::uint64_t count = 0;
};

class AdamKernel {
 public:
  static constexpr const char* kName = "tiermem_adam";
  static constexpr float kRate = 1e-3F;

  /// `gpu` must outlive it. Errors: unsupported if the driver loads no kernels; the driver's
  /// errors.
  static Result<std::unique_ptr<AdamKernel>> load(GpuDevice& gpu);
  ~AdamKernel();
  AdamKernel(const AdamKernel&) = delete;
  AdamKernel& operator=(const AdamKernel&) = delete;

  /// One step, in the order of the stream.
  Status launch(const AdamArrays& arrays, cuda::Stream stream) const;

 private:
  explicit AdamKernel(GpuDevice& gpu) : gpu_(gpu) {}

  GpuDevice& gpu_;
  cuda::Module module_ = nullptr;
  cuda::Function function_ = nullptr;
};

/// Checks the elements from `first_element` on after `steps` steps. The error is internal and names
/// the first element that differs from the host's result in any bit.
Status check_adam(std::uint64_t first_element, std::uint64_t steps,
                  std::span<const float> parameters, std::span<const float> first,
                  std::span<const float> second);

}  // namespace tiermem::bench
