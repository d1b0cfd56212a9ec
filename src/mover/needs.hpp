// Needs: what the ranges of a request mean for each extent, and what each extent still lacks. Only
// questions: nothing here changes an extent, except that extents begin. The stepping thread only;
// never waits.
#pragma once

#include <cstdint>

#include "base/arena.hpp"
#include "mover/gather_needs.hpp"
#include "mover/memories.hpp"
#include "mover/request.hpp"
#include "mover/transfer_engine.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"

namespace tiermem {

class Needs {
 public:
  Needs(Residency& residency, const Memories& memories, const TransferEngine& engine,
        const GatherNeeds& gather_needs)
      : residency_(residency),
        directory_(residency),
        memories_(memories),
        engine_(engine),
        gather_needs_(gather_needs) {}

  /// Makes the needs of the request. None for a stale handle.
  void build(Request& request) const;
  /// Returns the first span with a buffer that was freed since the caller looked, or null.
  static const Span* stale_span(const Request& request);

  /// Returns whether the extent is as the need wants it.
  bool ready(const Need& need) const;
  /// Returns whether the frame is in its window on the need's device.
  bool shown(const Need& need, FrameId frame) const;
  /// Returns whether the need must get room for a copy: none is there, and none is coming.
  bool lacks_copy(const Need& need) const;
  bool nothing_to_read(const Need& need) const;
  std::uint64_t demanded_bytes(const Request& request) const;
  PageMask pages_discarded(const Span& span, std::uint32_t i) const;

 private:
  void add_need(Request& request, const Span& span, std::uint32_t i) const;
  bool must_come(ExtentRef ref, unsigned space, PageMask pages) const;

  Residency& residency_;
  const Directory directory_;
  const Memories& memories_;
  const TransferEngine& engine_;
  const GatherNeeds& gather_needs_;
};

}  // namespace tiermem
