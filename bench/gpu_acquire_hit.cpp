// Blocks of a KV cache that are already on the device: 1,000 of them are acquired in one list and
// released. Driver calls are detected in two ways: the tests' driver counts its calls, and with any
// driver the device's thread would have to wake up.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/gpu.hpp"
#include "bench/gpu_set.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kBlocks = 1000;
constexpr std::uint64_t kLargest = 64 << 10, kSmallest = 4 << 10;
constexpr unsigned kRounds = 1001;

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// How often the threads that talk to devices gave up their processor voluntarily: each wait for
/// the next order counts as one.
double driver_thread_waits() {
  double waits = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    if (first_line(task.path() / "comm") != "tiermem-gpu") {
      continue;
    }
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      double count = 0;
      if (word == "voluntary_ctxt_switches:" && status >> count) {
        waits += count;
      }
    }
  }
  return waits;
}

}  // namespace

Status gpu_acquire_hit(Session& session) {
  session.tell("gpu_acquire_hit");
  auto gpu = GpuDevice::open();
  if (!gpu.ok()) {
    return std::move(gpu).status();
  }
  const auto room = (*gpu)->choose_bytes(session, {});
  if (!room.ok()) {
    return room.status().clone();
  }
  const std::uint64_t block = std::clamp(std::bit_floor(*room / kBlocks), kSmallest, kLargest);
  auto set = GpuSet::create(**gpu, {.bytes = kBlocks * block, .block = block});
  if (!set.ok()) {
    return std::move(set).status();
  }
  const std::vector<Access> list = (*set)->list((*set)->all(), GpuSet::kGpu);
  Context& context = (*set)->context();
  Status status = (*set)->write_on_device((*set)->all());
  if (status.ok()) {
    status = (*set)->check_on_device();
  }
  std::vector<ViewRecord> views(list.size());
  std::vector<double> times;
  const auto calls = (*gpu)->calls();
  const double waits = driver_thread_waits();
  for (unsigned round = 0; round < kRounds && status.ok(); ++round) {
    const double start = now_seconds();
    status = context.acquire(list, Timeout::forever(), views);
    if (status.ok()) {
      status = context.release(views);
    }
    times.push_back((now_seconds() - start) * 1e6);
  }
  if (!status.ok()) {
    return status;
  }
  Row row;
  row.name = "gpu_acquire_hit";
  row.unit = "us";
  row.extra["driver_thread_waits"] = driver_thread_waits() - waits;
  std::string note =
      fmt::format("gpu_acquire_hit: {} times the driver's thread was woken in {} lists",
                  row.extra["driver_thread_waits"], kRounds);
  if (calls.has_value()) {
    row.extra["driver_calls"] = static_cast<double>(*(*gpu)->calls() - *calls);
    note += fmt::format(", {} calls of the driver", row.extra["driver_calls"]);
  }
  session.note(std::move(note));
  row.extra["block_bytes"] = static_cast<double>(block);
  row.extra["rounds"] = kRounds;
  row.value = median(std::move(times));
  row.value_bar = bars::kGpuHitUs;
  session.add(std::move(row));
  return (*set)->check_on_device();
}

}  // namespace tiermem::bench
