// Read-ahead for scans that no single thread makes. Threads that share a loop take pieces of it in
// turn and touch extents in any order, so the thread that reads faults sees no run of any of them
// (runtime/faults.hpp has the read-ahead for single threads). Such a scan is visible in adjacent
// extents: soon every page of each is wanted. The stepping thread only; never waits.
#pragma once

#include <cstdint>
#include <string>

#include "base/arena.hpp"
#include "mover/never.hpp"
#include "mover/request.hpp"
#include "mover/transfer.hpp"
#include "policy/streams.hpp"
#include "residency/directory.hpp"

namespace tiermem {

class ReadAhead {
 public:
  /// The extents [first, first + count) of a buffer.
  struct Range {
    Handle buffer = 0;
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };

  /// Reads up to `scan_bytes` ahead of a scan.
  ReadAhead(const Directory& directory, std::uint64_t scan_bytes)
      : directory_(directory), scan_bytes_(scan_bytes) {}

  /// A touch has led to the transfer, or waits for it: the scan has come to this extent.
  void touched(const Request& touch, const Transfer& transfer);
  /// Returns the ranges to prefetch and forgets them. In the step after the touch, so that the
  /// transfer of the touch comes first.
  Vector<Range> take();

  /// Returns `now` if there are ranges to take, else kNever.
  std::int64_t next(std::int64_t now) const { return ranges_.empty() ? kNever : now; }
  /// Checks the invariants. Empty, or the breach.
  std::string check() const;

 private:
  const Directory directory_;
  const std::uint64_t scan_bytes_;
  Streams scans_;
  Vector<Range> ranges_;  // For the next step.
};

}  // namespace tiermem
