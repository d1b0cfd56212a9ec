// Measures a device in many ways within a given time: a map of block sizes and depths with each
// engine, then engines, buffers and direct or buffered I/O at the best pair, then that pair against
// what is used without tuning. On a temporary unnamed file, or on a raw device, which is only read.
// One thread, besides those of the engine that has some.
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
  std::uint64_t slice = 0;      ///< Bytes of the file, or device, that were used.
  std::string no_ring;          ///< Why io_uring was not measured; empty: it was.
  std::vector<TunePoint> map;   ///< Huge pages, O_DIRECT where the file system has it.
  std::vector<TunePoint> rest;  ///< Other buffers and engines, and I/O through the page cache.
  TunePair best;                ///< Of the map.
  TuneDuel duel;                ///< Empty where the best is what is used anyway.
  TunePair chosen;
  std::uint64_t gap = 0;
  double seconds = 0;  ///< It took.
};

/// What is being done, and which part of the time is over, in thousandths.
using TuneProgress = std::function<void(const std::string& what, std::uint64_t done)>;

/// Takes about `seconds`, at least one. Errors: those of BlockFile and of the first transfer that
/// failed; no_capacity for the buffers, or a device too small; timed_out where nothing was
/// measured.
Result<TuneReport> tune_device(const BlockDevice& device, const Config& config, double seconds,
                               const TuneProgress& progress);

}  // namespace tiermem::cli
