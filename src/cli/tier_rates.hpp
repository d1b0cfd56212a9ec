// How fast the memories of this machine are, measured in a moment: what `tiermem topo` shows. Uses
// the I/O port that a context would use, on a temporary slice of each directory; a raw device is
// only read. One thread; each call takes about the time it is given.
#pragma once

#include <cstdint>
#include <string>

#include "os/io_port.hpp"
#include "runtime/config.hpp"
#include "tiermem/status.hpp"

namespace tiermem::cli {

struct MemoryRates {
  double copy = 0;          ///< Bytes copied a second, one thread.
  double latency = 0;       ///< Seconds to a word that no cache holds.
  std::uint64_t bytes = 0;  ///< Measured over so much memory.
};

/// Uses at most an eighth of `budget`. Errors: no_capacity.
Result<MemoryRates> measure_memory(std::uint64_t budget, double seconds);

struct DeviceRates {
  DeviceFacts facts;
  std::string engine;         ///< "io_uring" or "threads".
  std::string engine_reason;  ///< Why not io_uring; empty when it is.
  bool raw = false;           ///< A raw device: its bytes are not ours to overwrite.
  bool measured = false;
  double read = 0, write = 0;  ///< Bytes a second, 2 MiB at a time, 16 at once.
  double latency = 0;          ///< Seconds of one 4 KiB read, median.
};

/// Opens the device and learns its facts; measures if `seconds` is above 0. Errors: those of
/// BlockFile and of the first transfer that failed.
Result<DeviceRates> measure_device(const BlockDevice& device, const Config& config, double seconds);

}  // namespace tiermem::cli
