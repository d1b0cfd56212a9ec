// Which extents come next in a scan of several threads.
#include "mover/read_ahead.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace tiermem {

void ReadAhead::touched(const Request& touch, const Transfer& transfer) {
  const ExtentRef ref = transfer.ref;
  const PageMask present = directory_.at(ref).parts | transfer.pages;
  const auto pages = static_cast<unsigned>(std::popcount(present));
  const bool whole = transfer.pages == 0 || pages == directory_.pages_in(ref);
  if (!touch.in_parts || !transfer.promotes() || !transfer.reading || !whole) {
    return;
  }
  const Span& span = touch.spans[0];
  const Streams::Ahead ahead =
      scans_.touched({.buffer = span.buffer,
                      .index = directory_.number_of(ref),
                      .of = span.record->extents.load(std::memory_order_relaxed)},
                     static_cast<std::uint32_t>(scan_bytes_ / directory_.bytes_of(ref)));
  if (ahead.count != 0) {
    ranges_.push_back({span.buffer, ahead.first, ahead.count});
  }
}

Vector<ReadAhead::Range> ReadAhead::take() {
  return std::exchange(ranges_, {});
}

std::string ReadAhead::check() const {
  const bool empty = std::any_of(ranges_.begin(), ranges_.end(), [](const Range& range) {
    return range.count == 0 || range.first + range.count < range.first;
  });
  return empty ? "a range to read ahead has no extents" : "";
}

}  // namespace tiermem
