// A large set leaves the device for DRAM, whose memory goes back to the driver, and comes back:
// what an engine does that gives its GPU to another for a while. Beside the link, out and in.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/gpu.hpp"
#include "bench/gpu_set.hpp"
#include "os/host_facts.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kLeast = 4096;  // The budget while the set is out: no block fits.

class Trip {
 public:
  Trip(GpuSet& set, std::uint64_t bytes) : set_(set), bytes_(bytes) {}

  Result<Sample> run() {
    Status ready = set_.write_on_device(set_.all());
    if (!ready.ok()) {
      return ready;
    }
    return timed(2 * bytes_, [&] {
      const double start = now_seconds();
      Status status = set_.context().migrate(to_dram_, GpuSet::kDram);
      if (status.ok()) {
        status = set_.context().set_budget(GpuSet::kGpu, kLeast, Timeout::seconds(60));
      }
      const double out = now_seconds();
      if (status.ok() && set_.context().stats().gpu_used != 0) {
        status = fail(Code::internal, "the set is out, and the device's memory is held");
      }
      if (status.ok()) {
        status = set_.context().set_budget(GpuSet::kGpu, set_.budget(), Timeout::seconds(60));
      }
      if (status.ok()) {
        status = set_.bring(to_device_);
      }
      rates_out_.push_back(rate(out - start));
      rates_back_.push_back(rate(now_seconds() - out));
      return status;
    });
  }

  std::string text() const {
    return fmt::format("gpu_evict_resume: {}, out {:.3g} GB/s, back {:.3g} GB/s",
                       human_bytes(bytes_), median(rates_out_), median(rates_back_));
  }

 private:
  double rate(double seconds) const { return static_cast<double>(bytes_) / seconds / 1e9; }

  GpuSet& set_;
  const std::uint64_t bytes_;
  const std::vector<Access> to_dram_ = set_.list(set_.all(), GpuSet::kDram);
  const std::vector<Access> to_device_ = set_.list(set_.all(), GpuSet::kGpu);
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
  auto set = GpuSet::create(**gpu, {.bytes = *bytes});
  if (!set.ok()) {
    return std::move(set).status();
  }
  Trip trip(**set, *bytes);
  Status status = session.compare(
      "gpu_evict_resume", "GB/s", Better::higher, bars::kGpuEvictResume, [&] { return trip.run(); },
      {"two copies",
       fmt::format("one cuMemcpyDtoHAsync and then one cuMemcpyHtoDAsync of {}, page-locked",
                   human_bytes((*link)->bytes())),
       [&] { return (*link)->out_and_in(); }});
  if (!status.ok()) {
    return status;
  }
  session.note(trip.text());
  // What is on the device now went out to DRAM and came back: both copies are in it.
  return (*set)->check_on_device();
}

}  // namespace tiermem::bench
