// The files that are registered with cuFile, and the threads that make its calls.
#include "tier/cufile_path.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/log.hpp"
#include "base/own_thread.hpp"

namespace tiermem {

CuFilePath::CuFilePath(const CuFileDriver& driver, const BlockTier& block)
    : driver_(driver), block_(block) {}

Result<std::unique_ptr<CuFilePath>> CuFilePath::create(
    const CuFileDriver& driver, const BlockTier& block, std::span<BlockFile* const> devices,
    std::span<const std::unique_ptr<GpuTier>> gpus) {
  std::unique_ptr<CuFilePath> path(new CuFilePath(driver, block));
  for (const std::unique_ptr<GpuTier>& gpu : gpus) {
    path->gpus_.push_back(gpu.get());
  }
  Status refusal;
  for (const BlockFile* const device : devices) {
    if (Status status = path->add(*device); !status.ok()) {
      log_warn("gpu_direct: {}; what is there goes through the host", status.message());
      refusal = std::move(status);
    }
  }
  if (std::none_of(path->files_.begin(), path->files_.end(),
                   [](const File& file) { return file.handle != nullptr; })) {
    return refusal;
  }
  try {
    while (path->threads_.size() < kThreads) {
      path->threads_.push_back(own_thread("tiermem-direct", [raw = path.get()] { raw->work(); }));
    }
  } catch (const std::system_error&) {
    if (path->threads_.empty()) {
      return fail(
          Code::unavailable,
          "gpu_direct: no thread can be created (RLIMIT_NPROC or pids.max); raise the limit");
    }
  }
  return path;
}

CuFilePath::~CuFilePath() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  asked_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  for (const File& file : files_) {
    if (file.handle != nullptr) {
      driver_.remove(file.handle);
    }
    close_kept(file.descriptor);
  }
}

// The library opens the file again by its name; both descriptors stay open.
Status CuFilePath::add(const BlockFile& device) {
  File& file = files_.emplace_back();
  if (!device.facts().direct) {
    return fail(Code::unavailable, "{}: no direct I/O: {}", device.facts().name,
                device.facts().reason);
  }
  return device.with_name([&](int descriptor) -> Status {
    file.descriptor = descriptor;
    Result<cufile::Handle> handle = driver_.add(descriptor);
    if (!handle.ok()) {
      return fail(Code::unavailable, "{}: {}", device.facts().name, handle.message());
    }
    file.handle = *handle;
    return {};
  });
}

GpuTier* CuFilePath::gpu_of(const Memory& memory) const {
  const auto gpu = std::find(gpus_.begin(), gpus_.end(), &memory);
  return gpu == gpus_.end() ? nullptr : *gpu;
}

bool CuFilePath::reaches(const Memory& memory, SlotId slot) const {
  const GpuTier* const gpu = gpu_of(memory);
  return gpu != nullptr && !gpu->lost() && files_[block_.device_of(slot)].handle != nullptr;
}

void CuFilePath::fetch(Memory& memory, FrameId to, SlotId from, std::uint64_t bytes,
                       Completion& end) {
  give({false, gpu_of(memory), to, from, bytes, &end});
}

void CuFilePath::store(SlotId to, Memory& memory, FrameId from, std::uint64_t bytes,
                       Completion& end) {
  give({true, gpu_of(memory), from, to, bytes, &end});
}

void CuFilePath::give(const Order& order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(order);
  }
  asked_.notify_one();
}

void CuFilePath::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    asked_.wait(lock, [this] { return stop_ || !orders_.empty(); });
    if (orders_.empty()) {
      return;
    }
    const Order order = orders_.front();
    orders_.pop_front();
    lock.unlock();
    Status status = run(order);
    if (!status.ok() && !told_.exchange(true)) {
      log_warn("gpu_direct: {}; such bytes go through the host, and the path is tried again later",
               status.message());
    }
    order.end->status = std::move(status);
    order.end->ended(*order.end);
    lock.lock();
  }
}

Status CuFilePath::run(const Order& order) const {
  const cufile::Handle file = files_[block_.device_of(order.slot)].handle;
  const std::uint64_t offset = block_.device_offset(order.slot);
  const auto at = reinterpret_cast<cuda::DevicePointer>(order.gpu->bytes_at(order.frame, nullptr));
  return order.gpu->lane().here([&] {
    return order.write ? driver_.write(file, offset, at, order.bytes)
                       : driver_.read(file, offset, at, order.bytes);
  });
}

}  // namespace tiermem
