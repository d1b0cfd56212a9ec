// Process: what the kernel counts about this process, independent of what a source says of itself.
#pragma once

#include <cstdint>

namespace llm {

struct ProcessCounters {
  std::uint64_t read_bytes = 0;  ///< Fetched from storage for this process (/proc/self/io).
  std::uint64_t major_faults = 0;

  /// The counters now. What /proc does not show stays 0.
  static ProcessCounters now();
};

/// Peak resident memory above what was resident at construction.
class PeakMemory {
 public:
  PeakMemory();
  std::uint64_t growth_bytes() const;

 private:
  std::uint64_t baseline_bytes_;
};

}  // namespace llm
