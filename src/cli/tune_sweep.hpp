// Measures a device in many ways within a given time. It makes a map of block sizes and depths with
// each engine. It then compares engines, buffers and direct or buffered I/O at the best pair, and
// that pair with the pair used without tuning. It uses a temporary unnamed file, or a raw device,
// which is only read. One thread, besides those of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/tune_points.hpp"
#include "os/io_port.hpp"
#include "runtime/config.hpp"
#include "tiermem/status.hpp"

namespace tiermem::cli {

struct TuneReport {
  DeviceFacts facts;
  bool raw = false;             ///< Nothing was written.
  std::uint64_t slice = 0;      ///< Bytes used of the file or device.
  std::string no_ring;          ///< Why io_uring was not measured; empty if it was.
  std::vector<TunePoint> map;   ///< Huge pages, and O_DIRECT if the file system supports it.
  std::vector<TunePoint> rest;  ///< Other buffers and engines, and I/O through the page cache.
  TunePair best;                ///< From the map.
  TuneDuel duel;                ///< Empty if the best pair is the one used without tuning.
  TunePair chosen;
  std::uint64_t gap = 0;
  double seconds = 0;  ///< The time it took.
};

/// The current step, and the elapsed fraction of the time in thousandths.
using TuneProgress = std::function<void(const std::string& what, std::uint64_t done)>;

/// Takes about `seconds`, at least one. Errors: those of BlockFile and of the first failed
/// transfer; no_capacity for the buffers, or if the device is too small; timed_out if nothing was
/// measured.
Result<TuneReport> tune_device(const BlockDevice& device, const Config& config, double seconds,
                               const TuneProgress& progress);

}  // namespace tiermem::cli
