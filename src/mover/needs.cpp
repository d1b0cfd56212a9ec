#include "mover/needs.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "mover/page_mask.hpp"

namespace tiermem {

void Needs::build(Request& request) const {
  if (request.kind == RequestKind::free) {
    const BufferRecord& record = residency_.buffers.at(request.index);
    const ExtentRef first = record.first.load(std::memory_order_relaxed);
    const std::uint32_t count = record.extents.load(std::memory_order_relaxed);
    directory_.each_begun(first, first + count,
                          [&](ExtentRef ref) { request.needs.push_back({.ref = ref}); });
    return;
  }
  if (stale_span(request) != nullptr) {
    return;  // Its extents may be another buffer's.
  }
  if (request.kind == RequestKind::gather) {
    gather_needs_.build(request);
    return;
  }
  for (const Span& span : request.spans) {
    // An extent that has not begun has no bytes that could leave, and none that a prefetch brings;
    // unless they are in a file, or a touch would wait for its zeros.
    const bool comes = request.kind == RequestKind::acquire ||
                       (request.kind == RequestKind::prefetch &&
                        (span.record->adopted() ||
                         (span.record->flags.load(std::memory_order_relaxed) & kMapped) != 0));
    for (std::uint32_t i = 0; comes && i < span.count; ++i) {
      directory_.begin(span, span.first + i);
    }
    directory_.each_begun(span.first, span.first + span.count,
                          [&](ExtentRef ref) { add_need(request, span, ref - span.first); });
  }
  // Two spans may name the same extent: one need then, with what both of them want.
  const auto key = [](const Need& n) { return std::pair(n.space, n.ref); };
  const auto less = [&](const Need& a, const Need& b) { return key(a) < key(b); };
  if (!std::is_sorted(request.needs.begin(), request.needs.end(), less)) {
    std::sort(request.needs.begin(), request.needs.end(), less);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < request.needs.size(); ++i) {
    if (kept > 0 && key(request.needs[kept - 1]) == key(request.needs[i])) {
      Need& same = request.needs[kept - 1];
      same.writes = same.writes || request.needs[i].writes;
      same.changes = same.changes || request.needs[i].changes;
      same.shown = same.shown || request.needs[i].shown;
      same.discard = same.discard && request.needs[i].discard;
      const bool pages = request.kind == RequestKind::discard && request.needs[i].pages != 0;
      same.pages = pages && same.pages != 0 ? same.pages | request.needs[i].pages : 0;
    } else {
      request.needs[kept++] = request.needs[i];
    }
  }
  request.needs.resize(kept);
}

void Needs::add_need(Request& request, const Span& span, std::uint32_t i) const {
  const bool whole = span.discards && span.whole(i);
  Need need{.ref = span.first + i, .space = span.space};
  if (request.kind == RequestKind::discard && !whole) {
    need.pages = span.emptied(i) ? 0 : pages_discarded(span, i);
    if (need.pages == 0) {
      return;  // The edges keep their bytes.
    }
  }
  need.writes = span.writes;
  need.discard = whole;
  if (request.in_parts && directory_.pages_in(need.ref) <= kMostParts) {
    need.pages = PageMask{1} << request.page;
  }
  need.changes = request.changes;
  need.shown = span.window != nullptr;
  request.needs.push_back(need);
}

// Those of the i-th extent; 0: not by the page.
PageMask Needs::pages_discarded(const Span& span, std::uint32_t i) const {
  const Span::Bytes bytes = span.covered(i);
  // Pages of a file would have to be the file's again, and not zeros.
  if (!engine_.parts().takes_parts(span.first + i) || span.record->adopted() ||
      bytes.begin % kSmallestExtent != 0 || bytes.end % kSmallestExtent != 0) {
    return 0;
  }
  const std::uint64_t first = bytes.begin % directory_.bytes_of(span.first + i) / kSmallestExtent;
  return pages_of(bytes.end - bytes.begin) << first;
}

// The handle was valid when the caller looked. A free may have come between.
const Span* Needs::stale_span(const Request& request) {
  const auto stale = std::find_if(request.spans.begin(), request.spans.end(),
                                  [](const Span& span) { return span.stale(); });
  return stale == request.spans.end() ? nullptr : &*stale;
}

bool Needs::ready(const Need& need) const {
  const ExtentBits bits = directory_.word(need.space, need.ref).load();
  if (need.pages != 0 && bits.phase() == Phase::none) {
    return (need.pages & ~directory_.at(need.ref).parts) == 0;
  }
  return (need.writes ? bits.view_writable() : bits.view_readable()) &&
         (!need.shown || shown(need, directory_.frame(need.space, need.ref)));
}

bool Needs::shown(const Need& need, FrameId frame) const {
  return memories_.space(need.space)
      .shows(frame, directory_.address_in_window(need.ref, need.space));
}

bool Needs::lacks_copy(const Need& need) const {
  const Phase phase = directory_.word(need.space, need.ref).load().phase();
  return phase != Phase::shared && phase != Phase::exclusive && phase != Phase::incoming &&
         !directory_.at(need.ref).charged && !engine_.comes_back(need.ref) && !ready(need);
}

// Returns whether a prefetch would bring no bytes. Zeros of a mapped extent are prefetched, because
// a touch would wait for them.
bool Needs::nothing_to_read(const Need& need) const {
  const Phase host = directory_.word(kHost, need.ref).load().phase();
  const Phase phase = directory_.word(need.space, need.ref).load().phase();
  const bool zeros =
      phase == Phase::zero && directory_.readable_elsewhere(need.ref, need.space) == kNoSpace;
  // A prefetch brings the zeros of a mapped extent, but not where the program has mapped something.
  const bool ahead = directory_.mapped(need.ref) &&
                     !memories_.space(kHost).lent(directory_.window_at(need.ref, kHost),
                                                  directory_.bytes_of(need.ref));
  return (zeros && !ahead) || host == Phase::lost || host == Phase::vacant ||
         directory_.claimed(need.ref, need.space);
}

// Returns whether the bytes are only in a slot, a file or another space, and no prefetch brings
// them. An extent that is leaving its window comes back without a read.
bool Needs::must_come(ExtentRef ref, unsigned space, PageMask pages) const {
  if (directory_.readable(ref, space)) {
    return false;
  }
  if (const Transfer* const transfer = engine_.transfer_of(ref);
      transfer != nullptr && transfer->space == space) {
    const bool all = transfer->pages == 0 || (pages != 0 && (pages & ~transfer->pages) == 0);
    if (transfer->demotes() || transfer->kind == TransferKind::relocate ||
        (transfer->prefetch && all)) {
      return false;
    }
  }
  return directory_.has_slot_copy(ref) || directory_.readable_elsewhere(ref, space) != kNoSpace;
}

// Returns how many of its bytes a new acquire must wait for.
std::uint64_t Needs::demanded_bytes(const Request& request) const {
  if (request.views == nullptr) {
    const Need& need = request.needs.front();
    const bool zeros = (need.pages & directory_.at(need.ref).zeros) != 0;
    return !zeros && !ready(need) && must_come(need.ref, need.space, need.pages) ? kSmallestExtent
                                                                                 : 0;
  }
  std::uint64_t bytes = 0;
  for (const Span& span : request.spans) {
    const std::uint64_t mask = (std::uint64_t{1} << span.shift) - 1;
    for (std::uint32_t i = 0; i < span.count; ++i) {
      const ExtentRef ref = span.first + i;
      if ((span.discards && span.whole(i)) || !must_come(ref, span.space, 0)) {
        continue;
      }
      const Span::Bytes wanted = span.covered(i);
      const std::uint64_t begin = wanted.begin & mask;
      const std::uint64_t end = begin + (wanted.end - wanted.begin);
      bytes += end - begin;
      const Extent& extent = directory_.at(ref);
      for (PageMask rest = extent.parts | extent.zeros; rest != 0; rest &= rest - 1) {
        const std::uint64_t page = std::countr_zero(rest) * kSmallestExtent;
        const std::uint64_t from = std::clamp(page, begin, end);
        bytes -= std::clamp(page + kSmallestExtent, begin, end) - from;
      }
    }
  }
  return bytes;
}

}  // namespace tiermem
