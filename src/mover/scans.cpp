// Scans that no single thread makes. Threads that share a loop take pieces of it in turn and come
// into extents anywhere, so who reads faults sees no run of any of them. What shows such a scan is
// extents, one behind the other, of which all is wanted soon. The stepping thread only; never
// waits.
#include "mover/mover.hpp"
#include "mover/prefetch.hpp"

namespace tiermem {

// A touch leads to the transfer, or waits for it: so far has the scan come.
void Mover::note_touch(const Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  const PageMask pages = residency_.extents.at(ref).parts | transfer.pages;
  const bool whole =
      transfer.pages == 0 || static_cast<unsigned>(std::popcount(pages)) == pages_in(ref);
  if (transfer.kind != Transfer::Kind::promote || !transfer.reading || !whole) {
    return;
  }
  const BufferRecord& record = record_of(ref);
  const Handle buffer = residency_.buffers.handle_of(residency_.extents.at(ref).buffer);
  if (Buffers::generation_of(buffer) % 2 == 0) {
    return;  // Freed.
  }
  const Streams::Ahead ahead =
      scans_.touched({.buffer = buffer,
                      .index = ref - record.first.load(std::memory_order_relaxed),
                      .of = record.extents.load(std::memory_order_relaxed)},
                     static_cast<std::uint32_t>(options_.scan_bytes / bytes_of(ref)));
  if (ahead.count != 0) {
    scans_ahead_.push_back({buffer, ahead});
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
