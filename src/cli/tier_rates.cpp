// Memory: a copy loop and a pointer chase. Devices: passes over a slice through the port.
#include "cli/tier_rates.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/results.hpp"
#include "os/block_file.hpp"
#include "os/host_memory.hpp"
#include "os/waitable_io_port.hpp"

namespace tiermem::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kTransfer = 2 * kMiB;
constexpr std::uint64_t kSmallTransfer = 4096;
constexpr unsigned kDepth = 16;
constexpr std::uint64_t kSlice = 128 * kMiB;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<host::AddressRange> memory(std::uint64_t bytes) {
  auto range = host::reserve({.bytes = bytes});
  if (!range.ok()) {
    return range;
  }
  best_effort(host::advise(range->data(), bytes, host::Advise::huge), "small pages do, too");
  if (const int error = host::populate(range->data(), bytes); error != 0) {
    return fail_native(Code::no_capacity, error, "allocation of {} for measuring failed: {}",
                       human_bytes(bytes), std::strerror(error));
  }
  return range;
}

/// Cache lines linked in random order: each load depends on the previous one.
double chase(std::byte* data, std::uint64_t bytes, double seconds) {
  constexpr std::uint64_t kLine = 64;
  const auto lines = static_cast<std::uint32_t>(bytes / kLine);
  std::vector<std::uint32_t> order(lines);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::minstd_rand(1));
  const auto at = [&](std::uint32_t line) {
    return reinterpret_cast<std::uint32_t*>(data + line * kLine);
  };
  for (std::uint32_t i = 0; i < lines; ++i) {
    *at(order[i]) = order[(i + 1) % lines];
  }
  std::uint32_t line = 0;
  std::uint64_t loads = 0;
  const auto start = Clock::now();
  do {
    for (int i = 0; i < 10000; ++i) {
      line = *static_cast<volatile std::uint32_t*>(at(line));
    }
    loads += 10000;
  } while (seconds_since(start) < seconds);
  return seconds_since(start) / static_cast<double>(loads);
}

/// Transfers over the first `slice` bytes of device 0.
class DeviceLoop {
 public:
  DeviceLoop(WaitableIoPort& port, std::byte* data, std::uint64_t slice)
      : port_(port), data_(data), slice_(slice) {}

  /// Makes whole passes until the time is over; returns bytes per second.
  Result<double> pass(bool write, double seconds) {
    const auto start = Clock::now();
    std::uint64_t bytes = 0;
    do {
      Status status = once(write);
      if (!status.ok()) {
        return status;
      }
      bytes += slice_ / kTransfer * kTransfer;
    } while (seconds_since(start) < seconds);
    return static_cast<double>(bytes) / seconds_since(start);
  }

  /// The median time of single small reads across the slice.
  Result<double> latency(double seconds) {
    std::vector<double> samples;
    std::minstd_rand random(1);
    const auto start = Clock::now();
    do {
      const auto before = Clock::now();
      const std::uint64_t at = random() % (slice_ / kSmallTransfer) * kSmallTransfer;
      Status status = submit(0, false, at, kSmallTransfer);
      if (status.ok()) {
        status = complete_one(kSmallTransfer);
      }
      if (!status.ok()) {
        return status;
      }
      samples.push_back(seconds_since(before));
    } while (seconds_since(start) < seconds && samples.size() < 10000);
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
  }

 private:
  Status once(bool write) {
    const std::uint64_t count = slice_ / kTransfer;
    std::vector<std::uint64_t> places;  // Free parts of the memory.
    for (std::uint64_t i = 0; i < kDepth; ++i) {
      places.push_back(i);
    }
    Status status;
    for (std::uint64_t i = 0; status.ok() && (i < count || places.size() < kDepth);) {
      if (i < count && !places.empty()) {
        status = submit(places.back(), write, i * kTransfer, kTransfer);
        places.pop_back();
        ++i;
        continue;
      }
      status = complete_one(kTransfer);
      places.push_back(completed_);
    }
    return status;
  }

  Status submit(std::uint64_t place, bool write, std::uint64_t offset, std::uint64_t length) {
    const bool taken = port_.submit({.cookie = place,
                                     .write = write,
                                     .data = data_ + place * kTransfer,
                                     .offset = offset,
                                     .length = static_cast<std::uint32_t>(length)});
    return taken ? Status()
                 : fail(Code::internal, "queue {}: refused a transfer below its depth",
                        port_.engine());
  }

  Status complete_one(std::uint64_t expected) {
    IoCompletion completion;
    while (port_.reap({&completion, 1}) == 0) {
      port_.wait(-1);
    }
    completed_ = completion.cookie;
    if (completion.result < 0) {
      return fail_native(Code::io_error, -completion.result, "{}: {}", port_.facts(0).name,
                         std::strerror(-completion.result));
    }
    if (static_cast<std::uint64_t>(completion.result) != expected) {
      return fail(Code::io_error,
                  "{}: {} of {} bytes were transferred; see the kernel's log (dmesg)",
                  port_.facts(0).name, completion.result, expected);
    }
    return {};
  }

  WaitableIoPort& port_;
  std::byte* data_;
  const std::uint64_t slice_;
  std::uint64_t completed_ = 0;
};

Status run_loop(DeviceRates& rates, WaitableIoPort& port, std::uint64_t slice, double seconds) {
  auto data = memory(kDepth * kTransfer);
  if (!data.ok()) {
    return std::move(data).status();
  }
  host::write_pattern(data->data(), data->bytes());
  DeviceLoop loop(port, data->data(), slice);
  Result<double> result = 0.0;
  if (!rates.raw) {
    // The first pass writes the preallocated blocks: the device does not read unwritten blocks.
    result = loop.pass(true, 0);
    if (result.ok() && (result = loop.pass(true, seconds * 0.35)).ok()) {
      rates.write = *result;
    }
  }
  if (result.ok() && (result = loop.pass(false, seconds * 0.35)).ok()) {
    rates.read = *result;
  }
  if (result.ok() && (result = loop.latency(seconds * 0.2)).ok()) {
    rates.latency = *result;
    rates.measured = true;
  }
  return result.ok() ? Status() : std::move(result).status();
}

}  // namespace

Result<MemoryRates> measure_memory(std::uint64_t budget, double seconds) {
  MemoryRates rates;
  rates.bytes = std::clamp(budget / 8, 2 * kMiB, 256 * kMiB) / (2 * kMiB) * (2 * kMiB);
  auto range = memory(rates.bytes);
  if (!range.ok()) {
    return std::move(range).status();
  }
  rates.latency = chase(range->data(), rates.bytes, seconds / 2);
  const std::uint64_t half = rates.bytes / 2;
  std::uint64_t copied = 0;
  const auto start = Clock::now();
  do {
    std::memcpy(range->data() + (copied / half % 2) * half,
                range->data() + (1 - copied / half % 2) * half, half);
    copied += half;
  } while (seconds_since(start) < seconds / 2);
  rates.copy = static_cast<double>(copied) / seconds_since(start);
  return rates;
}

Result<DeviceRates> measure_device(const BlockDevice& device, const Config& config,
                                   double seconds) {
  DeviceRates rates;
  const std::uint64_t share = device.bytes != 0 ? device.bytes : config.block_budget;
  auto file = BlockFile::open({.path = device.path,
                               .limit = share,
                               .reserve_free_bytes = config.reserve_free,
                               .require_direct = config.direct == DirectIo::require});
  if (!file.ok()) {
    return std::move(file).status();
  }
  rates.raw = (*file)->raw();
  rates.facts = (*file)->facts();
  const std::uint64_t slice = std::min(rates.facts.limit, kSlice) / kTransfer * kTransfer;
  Status ready = slice == 0 ? Status(Code::no_capacity) : Status();
  if (ready.ok() && seconds > 0) {
    ready = (*file)->grow(slice);
  }
  if (!ready.ok()) {
    return ready;
  }
  std::vector<std::unique_ptr<BlockFile>> devices;
  devices.push_back(std::move(*file));
  const std::unique_ptr<WaitableIoPort> port =
      make_io_port(std::move(devices),
                   {.depth = kDepth,
                    .engine = config.io_engine,
                    .require = config.io_engine == Engine::io_uring},
                   rates.engine_reason);
  if (port == nullptr) {
    return fail(Code::unavailable, "{:.100}: no way to read and write it: {:.120}", device.path,
                rates.engine_reason);
  }
  rates.engine = port->engine();
  if (seconds > 0) {
    Status measured = run_loop(rates, *port, slice, seconds);
    if (!measured.ok()) {
      return measured;
    }
  }
  return rates;
}

}  // namespace tiermem::cli
