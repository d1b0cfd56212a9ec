// The peer's own memory, streams and events.
#include "bench/managed_adam.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "bench/adam.hpp"

namespace tiermem::bench {

Result<std::unique_ptr<ManagedAdam>> ManagedAdam::create(GpuDevice& gpu, const AdamKernel& kernel,
                                                         const Options& options) {
  const CudaDriver& driver = gpu.driver();
  if (driver.cuMemAllocManaged == nullptr || driver.cuMemAdvise == nullptr ||
      driver.cuMemPrefetchAsync == nullptr || driver.cuMemFree == nullptr ||
      driver.cuMemAlloc == nullptr) {
    return fail(Code::unsupported, "the driver has no managed memory");
  }
  std::unique_ptr<ManagedAdam> made(new ManagedAdam(gpu, kernel, options));
  Status begun = made->begin();
  if (!begun.ok()) {
    return begun;
  }
  return made;
}

Status ManagedAdam::begin() {
  const CudaDriver& driver = gpu_.driver();
  const std::uint64_t bytes = options_.layers * layer_bytes();
  Status status;
  for (cuda::DevicePointer& array : arrays_) {
    status = gpu_.check(driver.cuMemAllocManaged(&array, bytes, cuda::kAttachGlobal),
                        "cuMemAllocManaged");
    // The memory is the host's unless it is prefetched, and the device may access it anywhere.
    if (status.ok()) {
      status = gpu_.check(
          driver.cuMemAdvise(array, bytes, cuda::kSetPreferredLocation, cuda::kProcessor),
          "cuMemAdvise");
    }
    if (status.ok()) {
      status = gpu_.check(driver.cuMemAdvise(array, bytes, cuda::kSetAccessedBy, 0), "cuMemAdvise");
    }
    if (!status.ok()) {
      return status;
    }
  }
  const std::uint64_t elements = options_.layers * options_.elements;
  auto* const parameters = reinterpret_cast<float*>(arrays_[0]);
  auto* const gradients = reinterpret_cast<float*>(arrays_[1]);
  for (std::uint64_t i = 0; i < elements; ++i) {
    parameters[i] = first_parameter(i);
    gradients[i] = gradient_of(i);
  }
  std::fill_n(reinterpret_cast<float*>(arrays_[2]), elements, 0.0F);
  std::fill_n(reinterpret_cast<float*>(arrays_[3]), elements, 0.0F);
  status = gpu_.check(driver.cuStreamCreate(&compute_, cuda::kStreamNonBlocking), "cuStreamCreate");
  for (std::uint64_t i = 0; i < 2 * options_.layers && status.ok(); ++i) {
    cuda::Event event = nullptr;
    status = gpu_.check(driver.cuEventCreate(&event, cuda::kEventDisableTiming), "cuEventCreate");
    if (status.ok()) {
      events_.push_back(event);
    }
  }
  return status.ok() ? take_the_rest() : std::move(status);
}

// In pieces, because the driver returns no more at once if its memory is fragmented.
Status ManagedAdam::take_the_rest() {
  constexpr std::uint64_t kLeast = std::uint64_t{16} << 20;
  for (std::uint64_t piece = std::uint64_t{64} << 30; piece >= kLeast;) {
    const auto free = gpu_.free_bytes();
    if (!free.ok()) {
      return free.status().clone();
    }
    const std::uint64_t rest = *free - std::min(*free, options_.device_bytes);
    cuda::DevicePointer taken = 0;
    piece = std::min(piece, rest);
    if (piece >= kLeast && gpu_.driver().cuMemAlloc(&taken, piece) == cuda::kSuccess) {
      ballast_.push_back(taken);
    } else {
      piece /= 2;
    }
  }
  return {};
}

ManagedAdam::~ManagedAdam() {
  const CudaDriver& driver = gpu_.driver();
  for (const cuda::DevicePointer array : arrays_) {
    if (array != 0) {
      (void)driver.cuMemFree(array);
    }
  }
  for (const cuda::DevicePointer taken : ballast_) {
    (void)driver.cuMemFree(taken);
  }
  for (const cuda::Event event : events_) {
    (void)driver.cuEventDestroy(event);
  }
  if (compute_ != nullptr) {
    (void)driver.cuStreamDestroy(compute_);
  }
}

Status ManagedAdam::move(std::uint64_t layer, cuda::Device to, cuda::Stream stream) {
  Status status;
  for (std::size_t i = 0; i < arrays_.size() && status.ok(); ++i) {
    status = gpu_.check(gpu_.driver().cuMemPrefetchAsync(arrays_[i] + layer * layer_bytes(),
                                                         layer_bytes(), to, stream),
                        "cuMemPrefetchAsync");
  }
  return status;
}

Status ManagedAdam::order(cuda::Stream first, cuda::Stream second, std::size_t event) {
  Status status = gpu_.check(gpu_.driver().cuEventRecord(events_[event], first), "cuEventRecord");
  return status.ok() ? gpu_.check(gpu_.driver().cuStreamWaitEvent(second, events_[event], 0),
                                  "cuStreamWaitEvent")
                     : std::move(status);
}

Status ManagedAdam::step() {
  Status status = move(0, 0, gpu_.in());
  for (std::uint64_t layer = 0; layer < options_.layers && status.ok(); ++layer) {
    status = order(gpu_.in(), compute_, 2 * layer);
    if (status.ok() && layer + 1 < options_.layers) {
      status = move(layer + 1, 0, gpu_.in());
    }
    const std::uint64_t at = layer * layer_bytes();
    if (status.ok()) {
      status = kernel_.launch(
          {arrays_[0] + at, arrays_[1] + at, arrays_[2] + at, arrays_[3] + at, options_.elements},
          compute_);
    }
    if (status.ok()) {
      status = order(compute_, gpu_.out(), 2 * layer + 1);
    }
    if (status.ok()) {
      status = move(layer, cuda::kProcessor, gpu_.out());
    }
  }
  for (const cuda::Stream stream : {gpu_.in(), compute_, gpu_.out()}) {
    Status done = gpu_.wait(stream);
    status = status.ok() ? std::move(done) : std::move(status);
  }
  ++steps_;
  return status;
}

Status ManagedAdam::check() const {
  const auto all = [&](std::size_t array) {
    return std::span(reinterpret_cast<const float*>(arrays_[array]),
                     options_.layers * options_.elements);
  };
  return check_adam(0, steps_, all(0), all(2), all(3));
}

}  // namespace tiermem::bench
