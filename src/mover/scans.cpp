// Scans that no single thread makes. Threads that share a loop take pieces of it in turn and come
// into extents anywhere, so who reads faults sees no run of any of them. What shows such a scan is
// extents, one behind the other, of which all is wanted soon. The stepping thread only; never
// waits.
#include "mover/mover.hpp"
#include "mover/prefetch.hpp"

namespace tiermem {

// A touch has led to a transfer, or waits for one: so far has the scan come.
void Mover::note_touch(const Request& touch, ExtentRef ref) {
  const Extent& extent = directory_.at(ref);
  if (!touch.in_parts || extent.transfer == 0) {
    return;
  }
  const Transfer& transfer = transfers_[extent.transfer - 1];
  const auto pages = static_cast<unsigned>(std::popcount(extent.parts | transfer.pages));
  const bool whole = transfer.pages == 0 || pages == directory_.pages_in(ref);
  if (transfer.kind != Transfer::Kind::promote || !transfer.reading || !whole) {
    return;
  }
  const Span& span = touch.spans[0];
  const Streams::Ahead ahead =
      scans_.touched({.buffer = span.buffer,
                      .index = ref - span.record->first.load(std::memory_order_relaxed),
                      .of = span.record->extents.load(std::memory_order_relaxed)},
                     static_cast<std::uint32_t>(options_.scan_bytes / directory_.bytes_of(ref)));
  if (ahead.count != 0) {
    scans_ahead_.push_back({span.buffer, ahead});
  }
}

// In the step after the touch that led to it: that one comes first.
void Mover::read_scans() {
  for (const ScanAhead& scan : std::exchange(scans_ahead_, {})) {
    auto request = prefetch_of(residency_, scan.buffer, scan.ahead.first, scan.ahead.count);
    if (request != nullptr) {
      admit(*request.release());
    }
  }
}

}  // namespace tiermem
