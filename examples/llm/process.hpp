// Process: the kernel's counters of this process, independent of a source's own figures.
#pragma once

#include <cstdint>

namespace llm {

struct ProcessCounters {
  std::uint64_t read_bytes = 0;  ///< Fetched from storage for this process (/proc/self/io).
  std::uint64_t major_faults = 0;

  /// The current counters. Values that /proc does not show are 0.
  static ProcessCounters now();
};

/// Peak resident memory above the resident memory at construction.
class PeakMemory {
 public:
  PeakMemory();
  std::uint64_t growth_bytes() const;

 private:
  std::uint64_t baseline_bytes_;
};

}  // namespace llm
