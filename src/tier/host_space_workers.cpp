// How a frame appears in a window of the host's address space, and how it leaves. A frame belongs
// to one worker at a time.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/results.hpp"
#include "tier/host_space.hpp"

namespace tiermem {

// Updates a frame after it was mapped or unmapped.
void HostSpace::settle(Frame& frame, std::byte* at, const MapResult& result) {
  frame.at = result.end == MapEnd::window ? at : nullptr;
  if (result.end == MapEnd::dropped) {
    frame.pages = false;
    frame.split = false;
  } else if (frame.huge && !result.huge) {
    frame.split = true;
    counters_.split += 1;
  }
  frame.huge = result.huge;
  homes_.add_cuts(frame, result.cuts);
}

// Pages that have moved are still on the node of their memory. Copied ones and those of `in_place`
// are new.
void HostSpace::settle_on_node(FrameId id, std::byte* at, std::uint64_t bytes,
                               const MapResult& result) {
  if (result.end == MapEnd::window &&
      (result.used == Mechanism::copy || result.used == Mechanism::in_place)) {
    homes_.settle_on(memory_of(id).node(), at, bytes);
  }
}

MapPlace HostSpace::place_of(FrameId id, const HostFrame& held, std::byte* at) const {
  const Frame& frame = held.record;
  const DaxPages* const file = memory_of(id).file();
  return {.home = held.home(),
          .at = at,
          .bytes = held.bytes(),
          .huge = frame.huge,
          .cut = frame.cuts != 0,
          .inherited = !options_.follow_forks,
          .file = file,
          .arena = file != nullptr ? arena_of(at) : nullptr};
}

// For a read-only window. Call protect() when the pages are present, and unprotect() before they
// leave; between the two a fault reader may close the extent.
void HostSpace::protect(std::byte* at, std::uint64_t bytes) {
  if (is_read_only(at)) {
    const WindowArena& arena = bytes >= host::kHugePage ? read_only_.huge : read_only_.small;
    closed_.protect(at, bytes, arena.options().watch);
  }
}

// Returns true if the extent was closed.
bool HostSpace::unprotect(std::byte* at, std::uint64_t bytes) {
  return is_read_only(at) && closed_.release(at, bytes);
}

// A fault reader may have closed the extent when it was already leaving. In that case mremap took
// the protection along.
void HostSpace::open_home(const HostFrame& held, std::byte* at) {
  if (unprotect(at, held.bytes()) && held.has_home()) {
    host::must_open_range(held.home(), held.bytes());
  }
}

std::byte* HostSpace::bytes_at(FrameId frame, std::byte* at) const {
  std::byte* const home = memory_of(frame).home(frame);
  return home != nullptr ? home : at;
}

Status HostSpace::map(FrameId id, std::byte* at, Mechanism& used) {
  used = Mechanism::in_place;
  if (at == nullptr) {
    return {};
  }
  if (HostMemory::pool_of(id) == Pool::locked) {
    return fail(Code::internal, "a locked frame never appears in a window");
  }
  const HostFrame held = frame_of(id);
  Frame& frame = held.record;
  if (frame.at != nullptr || (held.has_home() && !frame.pages)) {
    return fail(Code::internal, "a frame that is {} cannot be mapped",
                frame.at != nullptr ? "in a window already" : "fresh");
  }
  memory_of(id).unlock_pages(held.of, held.index);  // Locked for the previous owner of the frame.
  frame.by = mechanism_of(id);
  frame.mapped = false;
  // A store to the previous extent at this address may have been answered late.
  (void)unprotect(at, held.bytes());
  const host::NodePreference preference(memory_of(id).node());
  MapResult result = mapper_.in(frame.by, place_of(id, held, at));
  used = result.used;
  settle(frame, at, result);
  settle_on_node(id, at, held.bytes(), result);
  if (frame.at != nullptr) {
    protect(at, held.bytes());
    homes_.mend(held.of, held.index, false);
  }
  return std::move(result.status);
}

Status HostSpace::take_home(FrameId id, std::byte* at) {
  const HostFrame held = frame_of(id);
  Frame& frame = held.record;
  if (!held.has_home() || frame.at != at || frame.mapped || frame.in_parts) {
    return fail(Code::unsupported, "a frame that has no other place stays in its window");
  }
  (void)unprotect(at, held.bytes());
  const host::NodePreference preference(memory_of(id).node());
  MapResult result = mapper_.take_home(frame.by, place_of(id, held, at));
  open_home(held, at);
  settle(frame, at, result);
  if (frame.at != nullptr) {
    protect(at, held.bytes());  // It stays in the window.
  }
  return frame.at == nullptr ? Status() : std::move(result.status);
}

Status HostSpace::show(FrameId id, std::byte* at) {
  const HostFrame held = frame_of(id);
  Frame& frame = held.record;
  if (frame.at != nullptr || !frame.pages) {
    return fail(Code::internal, "a frame that is {} cannot appear in a window",
                frame.at != nullptr ? "in one already" : "fresh");
  }
  memory_of(id).unlock_pages(held.of, held.index);
  frame.by = mechanism_of(id);
  frame.mapped = false;
  (void)unprotect(at, held.bytes());
  const host::NodePreference preference(memory_of(id).node());
  MapResult result = mapper_.show(frame.by, place_of(id, held, at));
  settle(frame, at, result);
  settle_on_node(id, at, held.bytes(), result);
  if (frame.at != nullptr) {
    protect(at, held.bytes());
    homes_.mend(held.of, held.index, false);
  }
  return std::move(result.status);
}

Status HostSpace::unmap(FrameId id, std::byte* at) {
  if (at == nullptr || HostMemory::pool_of(id) == Pool::locked) {
    return {};
  }
  const HostFrame held = frame_of(id);
  Frame& frame = held.record;
  if (held.has_home() && frame.at == nullptr) {
    return {};
  }
  frame.watched = false;
  if (frame.in_parts) {
    if (const int error = mapper_.drop(at, held.bytes()); error != 0) {
      return fail_native(Code::internal, error, "parts of a window could not be emptied: {}",
                         std::strerror(error));
    }
    (void)unprotect(at, held.bytes());
    frame.at = nullptr;
    frame.has = 0;
    return {};
  }
  assert(frame.at == nullptr || frame.at == at);
  if (is_mapped_file(at)) {
    return drop_file(frame, at, held.bytes());
  }
  const Mechanism mechanism = frame.at != nullptr ? frame.by : mechanism_of(id);
  MapPlace place = place_of(id, held, at);
  place.mapped = frame.at != nullptr && frame.mapped;
  (void)unprotect(at, held.bytes());
  MapResult result = mapper_.out(mechanism, place);
  open_home(held, at);
  settle(frame, at, result);
  return std::move(result.status);
}

// Pages of the frame leave the mapped window for the home in `place`.
MapPlace HostSpace::place_to_leave(MapPlace place, const Frame& frame) const {
  place.inherited = options_.follow_forks;
  place.forked = place.inherited && frame.forks != forks_.load();
  place.mapped = true;
  return place;
}

Status HostSpace::withdraw(FrameId id, std::byte* at) {
  const HostFrame held = frame_of(id);
  Frame& frame = held.record;
  if (frame.at != at || !maps() || memory_of(id).file() != nullptr) {
    return fail(Code::internal, "a frame cannot be withdrawn from a window that it is not in");
  }
  const MapPlace place = place_to_leave(place_of(id, held, at), frame);
  frame.watched = false;  // A move ends the watch.
  const host::NodePreference preference(memory_of(id).node());
  if (frame.in_parts) {
    Status status = withdraw_pages(frame.has, place, frame);
    frame.at = status.ok() ? nullptr : frame.at;
    return status;
  }
  MapResult result = mapper_.withdraw(facts_.mapped, place);
  settle(frame, at, result);
  return std::move(result.status);
}

bool HostSpace::withdraws_slowly(FrameId id) const {
  return facts_.mapped == Mechanism::uffd_move && frame_of(id).record.forks != forks_.load();
}

// A huge page moves as one entry of a page table.
bool HostSpace::restores_at_once(FrameId id, const std::byte* at) const {
  const HostFrame held = frame_of(id);
  return !is_mapped_file(at) && facts_.mapped == Mechanism::uffd_move &&
         held.bytes() == host::kHugePage && held.record.huge;
}

Status HostSpace::restore(FrameId id, std::byte* at) {
  const HostFrame held = frame_of(id);
  Frame& frame = held.record;
  const bool in_file = memory_of(id).file() != nullptr;
  if (frame.at != nullptr || !(frame.pages || frame.in_parts) || !maps() || in_file) {
    return fail(Code::internal, "a frame that is {} cannot appear in a mapped window",
                frame.at != nullptr ? "in a window already"
                : in_file           ? "in persistent memory"
                                    : "fresh");
  }
  memory_of(id).unlock_pages(held.of, held.index);
  frame.forks = forks_.load();  // Read before the move, so that a fork during the move counts.
  frame.by = facts_.mapped;
  frame.mapped = true;
  const host::NodePreference preference(memory_of(id).node());
  const MapPlace place = place_of(id, held, at);
  if (frame.in_parts) {
    restore_pages(frame.has, place);
    frame.at = at;
  } else {
    const MapResult result =
        is_mapped_file(at) ? restore_file(place) : mapper_.restore(facts_.mapped, place);
    settle(frame, at, result);
    settle_on_node(id, at, held.bytes(), result);
  }
  homes_.mend(held.of, held.index, false);
  return {};
}

// A page of a mapped file must never be writable, not even between its arrival and the call that
// watches it. UFFDIO_MOVE cannot bring a watched page. UFFDIO_COPY can.
MapResult HostSpace::restore_file(const MapPlace& place) {
  (void)unprotect(place.at, place.bytes);  // A store to the extent before was answered late.
  MapPlace watched = place;
  watched.watched = mapped_files_.options().watch;
  if (!watched.watched) {
    closed_.protect(place.at, place.bytes, false);
  }
  return mapper_.restore(Mechanism::copy, watched);
}

// The bytes are in the file. A closed extent is emptied before it is opened.
Status HostSpace::drop_file(Frame& frame, std::byte* at, std::uint64_t bytes) {
  const int error = mapper_.drop(at, bytes);
  (void)unprotect(at, bytes);
  if (error != 0) {
    return fail_native(Code::internal, error, "a window of a file could not be emptied: {}",
                       std::strerror(error));
  }
  settle(frame, at, {.end = MapEnd::dropped});
  counters_.unchanged_out += 1;
  return {};
}

// Frames of parts. Each run of neighbouring pages takes one call.

namespace {

// Removes the lowest run of pages from `pages`, and returns it as bytes of the extent.
struct Run {
  std::uint64_t offset, bytes;
};
Run take_run(PageMask& pages) {
  const int first = std::countr_zero(pages);
  const int count = std::countr_one(pages >> first);
  const auto run = static_cast<PageMask>(((std::uint64_t{1} << count) - 1) << first);
  pages &= ~run;
  return {static_cast<std::uint64_t>(first) * kSmallestExtent,
          static_cast<std::uint64_t>(count) * kSmallestExtent};
}

}  // namespace

bool HostSpace::takes_parts(std::uint64_t extent_bytes, bool read_only) const {
  return is_registered(facts_.mapped) && extent_bytes > kSmallestExtent &&
         extent_bytes <= kMostParts * kSmallestExtent &&
         (!read_only || mapped_files_.options().watch);
}

Status HostSpace::insert(FrameId id, std::byte* at, const std::byte* data, PageMask pages,
                         bool watched) {
  const HostFrame held = frame_of(id);
  Frame& frame = held.record;
  if (!frame.in_parts || (frame.at != nullptr && frame.at != at) || (frame.has & pages) != 0) {
    return fail(Code::internal, "pages {:#x} cannot come to a frame that has {:#x}", pages,
                frame.has);
  }
  if (frame.at == nullptr) {
    frame.forks = forks_.load();  // Read before the copy, so that a fork during the copy counts.
    frame.by = facts_.mapped;
    frame.at = at;
    (void)unprotect(at, held.bytes());  // A store to the extent before was answered late.
  }
  const bool watches = facts_.watches || is_mapped_file(at);
  frame.watched = watched && watches && (frame.has == 0 || frame.watched);
  frame.has |= pages;
  const host::NodePreference preference(memory_of(id).node());
  while (pages != 0) {
    const Run run = take_run(pages);
    mapper_.insert(at + run.offset, data + run.offset, run.bytes, frame.watched);
    homes_.settle_on(memory_of(id).node(), at + run.offset, run.bytes);
  }
  const auto all =
      static_cast<PageMask>((std::uint64_t{1} << (held.bytes() / kSmallestExtent)) - 1);
  if (frame.has == all) {
    frame.in_parts = false;
    frame.has = 0;
    frame.pages = true;
    frame.huge = false;
    frame.tag = frame.owner;
  }
  return {};
}

Status HostSpace::empty(FrameId id, std::byte* at, PageMask pages) {
  const HostFrame held = frame_of(id);
  Frame& frame = held.record;
  if (!frame.in_parts || frame.at != at || (frame.has & pages) != pages) {
    return fail(Code::internal, "pages {:#x} of a frame that has {:#x} cannot be emptied", pages,
                frame.has);
  }
  for (PageMask left = pages; left != 0;) {
    const Run run = take_run(left);
    if (const int error = mapper_.drop(at + run.offset, run.bytes); error != 0) {
      return fail_native(Code::internal, error, "pages of a window could not be emptied: {}",
                         std::strerror(error));
    }
  }
  frame.has &= ~pages;
  return {};
}

namespace {

// Returns the place of a run of the pages of `whole`.
MapPlace place_of_run(const MapPlace& whole, const Run& run) {
  MapPlace part = whole;
  part.home += run.offset;
  part.at += run.offset;
  part.bytes = run.bytes;
  return part;
}

}  // namespace

bool HostSpace::may_be_unchanged(FrameId id) const {
  if (HostMemory::pool_of(id) == Pool::locked) {
    return false;
  }
  const Frame& frame = frame_of(id).record;
  return (frame.watched && frame.forks >= followed_) ||
         (frame.at != nullptr && is_mapped_file(frame.at));
}

void HostSpace::end_watch(FrameId id) {
  if (HostMemory::pool_of(id) != Pool::locked) {
    const std::lock_guard lock(watch_mutex_);
    frame_of(id).record.watched = false;
  }
}

// A page that was written is not watched any more. A page that the program has emptied itself is
// absent, and would return with its earlier bytes. Bytes of a file that is mapped read-only are the
// file's in any case.
void HostSpace::drop_unchanged(std::span<Unchanged> frames) {
  const std::lock_guard lock(watch_mutex_);
  Vector<host::Range> ranges;
  const auto pages_of = [&](const Unchanged& each, Frame*& frame) {
    const HostFrame held = frame_of(each.frame);
    frame = &held.record;
    const auto all =
        static_cast<PageMask>((std::uint64_t{1} << held.bytes() / kSmallestExtent) - 1);
    return each.pages != 0 ? each.pages : frame->in_parts ? frame->has : all;
  };
  const auto untouched = [](const Unchanged& each, PageMask pages) {
    return (host::watched_pages(each.at, static_cast<unsigned>(std::bit_width(pages))) & pages) ==
           pages;
  };
  for (Unchanged& each : frames) {
    Frame* frame = nullptr;
    const PageMask pages = pages_of(each, frame);
    each.dropped = frame->at == each.at &&
                   (is_mapped_file(each.at) || (frame->watched && untouched(each, pages)));
    for (PageMask left = each.dropped ? pages : 0; left != 0;) {
      const Run run = take_run(left);
      ranges.push_back({each.at + run.offset, run.bytes});
    }
  }
  const bool all_gone = ranges.empty() || host::drop(ranges) == 0;
  for (Unchanged& each : frames) {
    Frame* frame = nullptr;
    const PageMask pages = pages_of(each, frame);
    // After a failure a page of a file that is absent may have been so before: nothing is known.
    each.dropped =
        each.dropped && (all_gone || (!is_mapped_file(each.at) && !untouched(each, pages)));
    counters_.unchanged_out += each.dropped ? 1 : 0;
    if (each.dropped && frame->in_parts && pages != frame->has) {
      frame->has &= ~pages;  // The others stay, and their watch too.
      continue;
    }
    if (each.dropped) {
      (void)unprotect(each.at, frame_of(each.frame).bytes());
      frame->at = nullptr;
      frame->pages = false;
      frame->has = 0;
    }
    frame->watched = false;
  }
}

// All of the pages leave for the home of `to`, or none.
Status HostSpace::withdraw_pages(PageMask pages, const MapPlace& whole, Frame& to) {
  PageMask left = pages;
  unsigned cuts = 0;
  Status status;
  while (left != 0) {
    const PageMask before = left;
    MapResult result = mapper_.withdraw(facts_.mapped, place_of_run(whole, take_run(left)));
    cuts += result.cuts;
    if (!result.status.ok()) {
      for (PageMask gone = pages & ~before; gone != 0;) {
        (void)mapper_.restore(facts_.mapped, place_of_run(whole, take_run(gone)));
      }
      status = std::move(result.status);
      break;
    }
  }
  homes_.add_cuts(to, cuts);
  return status;
}

Status HostSpace::withdraw_to(FrameId to, FrameId id, std::byte* at, PageMask pages) {
  const HostFrame held = frame_of(id);
  const HostFrame split = frame_of(to);
  Frame& frame = held.record;
  if (!frame.in_parts || frame.at != at || (frame.has & pages) != pages || !split.record.in_parts ||
      split.record.has != 0) {
    return fail(Code::internal, "pages {:#x} of a frame that has {:#x} cannot be withdrawn", pages,
                frame.has);
  }
  frame.watched = false;  // A move ends the watch.
  const MapPlace place = place_to_leave(place_of(to, split, at), frame);
  const host::NodePreference preference(memory_of(id).node());
  Status status = withdraw_pages(pages, place, split.record);
  if (status.ok()) {
    frame.has &= ~pages;
    split.record.has = pages;
  }
  return status;
}

Status HostSpace::restore_from(FrameId from, FrameId id, std::byte* at) {
  const HostFrame held = frame_of(id);
  const HostFrame split = frame_of(from);
  Frame& frame = held.record;
  if (!frame.in_parts || frame.at != at || !split.record.in_parts ||
      (frame.has & split.record.has) != 0) {
    return fail(Code::internal, "pages {:#x} cannot go back to a frame that has {:#x}",
                split.record.has, frame.has);
  }
  memory_of(from).unlock_pages(split.of, split.index);
  const host::NodePreference preference(memory_of(id).node());
  restore_pages(split.record.has, place_of(from, split, at));
  frame.has |= std::exchange(split.record.has, 0);
  homes_.mend(split.of, split.index, false);
  return {};
}

void HostSpace::restore_pages(PageMask pages, const MapPlace& whole) {
  while (pages != 0) {
    (void)mapper_.restore(facts_.mapped, place_of_run(whole, take_run(pages)));
  }
}

}  // namespace tiermem
