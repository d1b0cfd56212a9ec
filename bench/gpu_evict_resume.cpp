// A large set leaves the device for DRAM, its device memory goes back to the driver, and the set
// returns to the same addresses. An engine does that to lend its GPU. The peer is the link, out and
// in.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/gpu.hpp"
#include "bench/gpu_device.hpp"
#include "bench/random_bytes.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kPiece = 4 * kMiB;  // Bytes written and checked at once.
constexpr Place kGpu{Kind::gpu, 0};

/// Blocks of device memory. Each piece begins with its number and continues with random bytes.
class Set {
 public:
  static Result<std::unique_ptr<Set>> create(GpuDevice& gpu, std::uint64_t bytes) {
    auto context = Context::create(fmt::format("dram={}; gpu=0:{}; gpu_driver={}; nvme=off",
                                               bytes + bytes / 8 + 96 * kMiB, bytes + 4 * kMiB,
                                               gpu.library()));
    if (!context.ok()) {
      return std::move(context).status();
    }
    std::unique_ptr<Set> set(new Set(gpu, std::move(*context)));
    for (std::uint64_t left = bytes; left != 0;) {
      const std::uint64_t block = std::min(left, kGiB);
      auto made = set->context_->malloc_at(kGpu, block);
      if (!made.ok()) {
        return std::move(made).status();
      }
      for (std::uint64_t at = 0; at < block; at += kPiece) {
        set->pieces_.push_back(reinterpret_cast<cuda::DevicePointer>(*made) + at);
      }
      left -= block;
    }
    Status written = set->write();
    return written.ok() ? Result<std::unique_ptr<Set>>(std::move(set)) : std::move(written);
  }

  Result<Sample> trip() {
    return timed(2 * bytes(), [&] {
      const double start = now_seconds();
      Status status = context_->gpu_pause(nullptr);
      const double out = now_seconds();
      if (status.ok() && context_->stats().gpu_used != 0) {
        status = fail(Code::internal, "the set is out, and the device's memory is held");
      }
      if (status.ok()) {
        status = context_->gpu_resume(nullptr);
      }
      rates_out_.push_back(rate(out - start));
      rates_back_.push_back(rate(now_seconds() - out));
      return status;
    });
  }

  std::string text() const {
    return fmt::format("gpu_evict_resume: {}, out {:.3g} GB/s, back {:.3g} GB/s",
                       human_bytes(bytes()), median(rates_out_), median(rates_back_));
  }

  /// Checks with the driver, without tiermem.
  Status check() {
    std::vector<std::byte> got(kPiece);
    for (std::uint64_t i = 0; i < pieces_.size(); ++i) {
      Status status = gpu_.check(
          gpu_.driver().cuMemcpyDtoHAsync(got.data(), pieces_[i], kPiece, gpu_.out()), "reading");
      if (status.ok()) {
        status = gpu_.wait(gpu_.out());
      }
      std::memcpy(bytes_.data(), &i, sizeof(i));
      if (status.ok() && got != bytes_) {
        status = fail(Code::internal, "piece {} of the set is not what was written", i);
      }
      if (!status.ok()) {
        return status;
      }
    }
    return {};
  }

 private:
  Set(GpuDevice& gpu, std::unique_ptr<Context> context)
      : gpu_(gpu), context_(std::move(context)), bytes_(kPiece) {
    fill_random(bytes_.data(), kPiece, 1);
  }
  std::uint64_t bytes() const { return pieces_.size() * kPiece; }
  double rate(double seconds) const { return static_cast<double>(bytes()) / seconds / 1e9; }

  Status write() {
    for (std::uint64_t i = 0; i < pieces_.size(); ++i) {
      std::memcpy(bytes_.data(), &i, sizeof(i));
      Status status = gpu_.check(
          gpu_.driver().cuMemcpyHtoDAsync(pieces_[i], bytes_.data(), kPiece, gpu_.in()), "writing");
      if (status.ok()) {
        status = gpu_.wait(gpu_.in());
      }
      if (!status.ok()) {
        return status;
      }
    }
    return {};
  }

  GpuDevice& gpu_;
  std::unique_ptr<Context> context_;
  std::vector<std::byte> bytes_;
  std::vector<cuda::DevicePointer> pieces_;
  std::vector<double> rates_out_, rates_back_;
};

}  // namespace

Status gpu_evict_resume(Session& session) {
  session.tell("gpu_evict_resume");
  auto gpu = GpuDevice::open();
  if (!gpu.ok()) {
    return std::move(gpu).status();
  }
  auto bytes = (*gpu)->choose_bytes(session, {.of_device = 2, .of_host = 3, .most = 32 * kGiB});
  if (!bytes.ok()) {
    return std::move(bytes).status();
  }
  auto link = LinkPeer::create(**gpu, std::min(*bytes / 2, kGiB));
  if (!link.ok()) {
    return std::move(link).status();
  }
  session.tell("gpu_evict_resume: writing the set");
  auto set = Set::create(**gpu, *bytes);
  if (!set.ok()) {
    return std::move(set).status();
  }
  Status status = session.compare(
      "gpu_evict_resume", "GB/s", Better::higher, bars::kGpuEvictResume,
      [&] { return (*set)->trip(); },
      {"two copies",
       fmt::format("one cuMemcpyDtoHAsync and then one cuMemcpyHtoDAsync of {}, page-locked",
                   human_bytes((*link)->bytes())),
       [&] { return (*link)->out_and_in(); }});
  if (!status.ok()) {
    return status;
  }
  session.note((*set)->text());
  return (*set)->check();
}

}  // namespace tiermem::bench
