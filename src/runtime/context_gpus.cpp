// The GPUs of a new context: the driver, a tier for each device, and the direct path between these
// and the block tier, if it was requested.
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "os/cufile.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {

// Called before the process loads anything of the library.
Status Context::Impl::check_direct_path() const {
  if (config.block.empty()) {
    return fail(Code::invalid_argument,
                "gpu_direct=direct: there is no block tier; accepted without one: auto, staged");
  }
  const CuFileFacts facts = ask_cufile({config.gpu_cufile, config.gpu_driver});
  if (facts.path != CuFileFacts::Path::direct) {
    return fail(Code::unavailable,
                "gpu_direct=direct: no path past the host: {:.180}; accepted: auto, staged",
                facts.detail);
  }
  log_info("gpu_direct: {}; for buffers without checksums", facts.detail);
  return {};
}

Status Context::Impl::open_direct_path(std::span<BlockFile* const> devices) {
  if (gpus_.empty() || config.gpu_direct != GpuDirect::direct) {
    return {};
  }
  const auto refused = [](const Status& why) {
    return fail(why.code(), "gpu_direct=direct: {:.200}; accepted: auto, staged", why.message());
  };
  const auto driver = CuFileDriver::load(config.gpu_cufile);
  if (!driver.ok()) {
    return refused(driver.status());
  }
  auto path = CuFilePath::create(*driver, *blocks_.front(), devices, gpus_);
  if (!path.ok()) {
    return refused(path.status());
  }
  direct_ = std::move(path).value();
  return {};
}

// Opens the devices in the order in which they were named: the first is space 1.
Status Context::Impl::open_gpus() {
  if (config.gpus.empty()) {
    return {};
  }
  if (config.gpu_direct == GpuDirect::direct) {
    if (Status status = check_direct_path(); !status.ok()) {
      return status;
    }
  }
  auto driver = CudaDriver::load(config.gpu_driver.c_str());
  if (!driver.ok()) {
    return fail(driver.code(), "gpu: {}", driver.message());
  }
  const Result<unsigned> count = driver->start();
  if (!count.ok()) {
    const ErrorInfo* const info = count.status().info();
    return fail_native(count.code(), info != nullptr ? info->native : 0, "gpu: {}",
                       count.message());
  }
  for (const GpuDevice& device : config.gpus) {
    if (device.index >= *count) {
      return fail(Code::unavailable,
                  "gpu {}: the driver knows {} of them, from 0 on; see `tiermem topo`",
                  device.index, *count);
    }
    auto lane = CudaLane::open(*driver, device.index);
    if (!lane.ok()) {
      return std::move(lane).status();
    }
    auto gpu = GpuTier::create(std::move(lane).value(), device.bytes);
    if (!gpu.ok()) {
      return std::move(gpu).status();
    }
    gpus_.push_back(std::move(gpu).value());
    residency.gpu_of_space[gpus_.size()] = static_cast<std::uint16_t>(device.index);
    residency.device_space[gpus_.size()] = gpus_.back().get();
  }
  for (const std::unique_ptr<GpuTier>& gpu : gpus_) {
    for (const std::unique_ptr<GpuTier>& other : gpus_) {
      if (gpu != other) {
        gpu->befriend(*other);
      }
    }
  }
  return {};
}

}  // namespace tiermem
