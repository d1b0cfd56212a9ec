// The needs of a request that gathers, and where the bytes of its reads are. Gathers read blocks
// from slots and files without their extents (mover/gather.cpp). The stepping thread only; never
// waits.
#pragma once

#include <span>

#include "mover/gather.hpp"
#include "mover/request.hpp"
#include "mover/transfer_engine.hpp"
#include "residency/directory.hpp"

namespace tiermem {

class GatherNeeds {
 public:
  GatherNeeds(const Directory& directory, const TransferEngine& engine, bool checksums)
      : directory_(directory), engine_(engine), checksums_(checksums) {}

  /// Makes a need for each extent of the reads. Each is in one of the spans, which are sorted by
  /// their first extent.
  void build(Request& request) const;
  /// Returns the reads of the request in the extent.
  static std::span<GatherRead> reads_of(const Request& request, ExtentRef ref);
  GatherRead::Found look(ExtentRef ref, std::span<const GatherRead> reads) const;
  /// Sets for each read whether its block is the one that the caller knows.
  void compare_known(ExtentRef ref, std::span<GatherRead> reads) const;

 private:
  const Directory directory_;
  const TransferEngine& engine_;
  const bool checksums_;
};

}  // namespace tiermem
