// The speed of this machine's memories, measured briefly for `tiermem topo`. Uses the I/O port that
// a context would use, on a temporary slice of each directory; a raw device is only read. One
// thread; each call takes about the given time.
#pragma once

#include <cstdint>
#include <string>

#include "os/io_port.hpp"
#include "runtime/config.hpp"
#include "tiermem/status.hpp"

namespace tiermem::cli {

struct MemoryRates {
  double copy = 0;          ///< Bytes copied per second by one thread.
  double latency = 0;       ///< Seconds to load a word that is in no cache.
  std::uint64_t bytes = 0;  ///< Bytes of memory measured.
};

/// Uses at most an eighth of `budget`. Errors: no_capacity.
Result<MemoryRates> measure_memory(std::uint64_t budget, double seconds);

struct DeviceRates {
  DeviceFacts facts;
  std::string engine;         ///< "io_uring" or "threads".
  std::string engine_reason;  ///< Why io_uring is not used; empty if it is.
  bool raw = false;           ///< A raw device: its bytes must not be overwritten.
  bool measured = false;
  double read = 0, write = 0;  ///< Bytes per second, 2 MiB at a time, 16 at once.
  double latency = 0;          ///< Median seconds of one 4 KiB read.
};

/// Opens the device and reads its facts; measures if `seconds` is above 0. Errors: those of
/// BlockFile and of the first failed transfer.
Result<DeviceRates> measure_device(const BlockDevice& device, const Config& config, double seconds);

}  // namespace tiermem::cli
