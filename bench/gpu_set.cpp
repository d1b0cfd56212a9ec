// Creates the buffers, and writes and checks them on either side.
#include "bench/gpu_set.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "bench/random_bytes.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

cuda::DevicePointer device_address(const ViewRecord& view) {
  return reinterpret_cast<cuda::DevicePointer>(view.data);
}

}  // namespace

Result<std::unique_ptr<GpuSet>> GpuSet::create(GpuDevice& gpu, const Options& options) {
  std::unique_ptr<GpuSet> set(new GpuSet(gpu));
  set->block_ = options.block;
  set->scratch_.resize(options.block);
  set->copied_.resize(options.block);
  // Beside the buffers there is room for staging (64 MiB, at most a quarter) and a reserve, so that
  // no buffer has to leave for another.
  const std::uint64_t dram = options.bytes + options.bytes / 8 + 96 * kMiB;
  set->budget_ = options.bytes + 4 * kMiB;
  const std::string nvme = options.directory.empty()
                               ? "off"
                               : fmt::format("{}:{}", options.directory, 2 * options.bytes + kMiB);
  auto context = Context::create(fmt::format(
      "dram={}; gpu=0:{}; gpu_driver={}; nvme={}; checksum={}; gpu_direct={}", dram, set->budget_,
      gpu.library(), nvme, options.checksum ? "on" : "off", options.direct ? "direct" : "staged"));
  if (!context.ok()) {
    return std::move(context).status();
  }
  set->context_ = std::move(*context);
  const std::uint64_t count = options.bytes / options.block;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto buffer = set->context_->alloc(options.block, {.extent_bytes = options.block});
    if (!buffer.ok()) {
      return std::move(buffer).status();
    }
    set->buffers_.push_back(std::move(*buffer));
    set->stamps_.push_back(++set->last_stamp_);
    Status filled = set->fill(i);
    if (!filled.ok()) {
      return filled;
    }
  }
  return set;
}

Status GpuSet::fill(std::size_t index) {
  auto view = buffers_[index].acquire(kDiscard);
  if (!view.ok()) {
    return std::move(view).status();
  }
  expect(index);
  std::memcpy(view->data(), scratch_.data(), block_);
  return {};
}

void GpuSet::expect(std::size_t index) {
  fill_random(scratch_.data(), block_, index + 1);
  std::memcpy(scratch_.data(), &stamps_[index], sizeof(stamps_[index]));
}

std::vector<Access> GpuSet::list(Range range, Place where, std::uint32_t mode) const {
  std::vector<Access> accesses;
  for (std::size_t i = range.first; i < range.first + range.count; ++i) {
    accesses.push_back(buffers_[i].range(0, 0, mode));
    accesses.back().where = where;
  }
  return accesses;
}

Status GpuSet::bring(const std::vector<Access>& list) {
  std::vector<ViewRecord> views(list.size());
  Status acquired = context_->acquire(list, Timeout::forever(), views);
  return acquired.ok() ? context_->release(views) : std::move(acquired);
}

Status GpuSet::write_in_dram(Range range) {
  const std::vector<Access> accesses = list(range, kDram, kWrite);
  std::vector<ViewRecord> views(accesses.size());
  Status acquired = context_->acquire(accesses, Timeout::forever(), views);
  if (!acquired.ok()) {
    return acquired;
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    stamps_[range.first + i] = ++last_stamp_;
    std::memcpy(views[i].data, &last_stamp_, sizeof(last_stamp_));
  }
  return context_->release(views);
}

Status GpuSet::write_on_device(Range range) {
  const std::vector<Access> accesses = list(range, kGpu, kWrite);
  std::vector<ViewRecord> views(accesses.size());
  Status status = context_->acquire(accesses, Timeout::forever(), views);
  if (!status.ok()) {
    return status;
  }
  for (std::size_t i = 0; i < views.size() && status.ok(); ++i) {
    std::uint64_t& stamp = stamps_[range.first + i];
    stamp = ++last_stamp_;
    status = gpu_.check(
        gpu_.driver().cuMemcpyHtoDAsync(device_address(views[i]), &stamp, sizeof(stamp), gpu_.in()),
        "writing a word on the device");
  }
  Status written = gpu_.wait(gpu_.in());
  Status released = context_->release(views);
  return !status.ok()    ? std::move(status)
         : !written.ok() ? std::move(written)
                         : std::move(released);
}

Status GpuSet::check_in_dram() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    auto view = buffers_[i].acquire(kRead);
    if (!view.ok()) {
      return std::move(view).status();
    }
    expect(i);
    Status same = compare(i, view->data(), "DRAM");
    if (!same.ok()) {
      return same;
    }
  }
  return {};
}

Status GpuSet::check_on_device() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    auto view = buffers_[i].acquire_on(kGpu, kRead);
    if (!view.ok()) {
      return std::move(view).status();
    }
    const auto at = reinterpret_cast<cuda::DevicePointer>(view->data());
    Status status =
        gpu_.check(gpu_.driver().cuMemcpyDtoHAsync(copied_.data(), at, block_, gpu_.out()),
                   "reading what is on the device");
    if (status.ok()) {
      status = gpu_.wait(gpu_.out());
    }
    expect(i);
    if (status.ok()) {
      status = compare(i, copied_.data(), "the device");
    }
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status GpuSet::compare(std::size_t index, const std::byte* data, const char* where) const {
  return std::memcmp(data, scratch_.data(), block_) == 0
             ? Status()
             : fail(Code::internal, "block {} has wrong bytes on {}", index, where);
}

}  // namespace tiermem::bench
