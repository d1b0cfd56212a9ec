// Page-locks host memory for devices: their copies then run at the link's rate and in parallel.
// Calls are for workers, and may take 0.1 ms for each 2 MiB.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiermem/status.hpp"

namespace tiermem {

class PageLocker {
 public:
  virtual ~PageLocker() = default;
  /// The pages are present, and stay so until unlock(at).
  virtual Status lock(std::byte* at, std::uint64_t bytes) = 0;
  /// No copy may be in progress. May wait for any work of the devices.
  virtual void unlock(std::byte* at) = 0;
};

}  // namespace tiermem
