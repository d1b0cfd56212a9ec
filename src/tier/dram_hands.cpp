// The work of hands on a DRAM frame: populate it, clear it, put it into a window and take it out;
// and the windows themselves, for any thread. A frame belongs to one hand at a time. A mutex guards
// the population of a slab chunk, because its frames may be with several hands.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/results.hpp"
#include "tier/dram.hpp"

namespace tiermem {

Result<bool> DramTier::bring(const FramePool& of, std::byte* address) {
  const bool huge = of.homes().huge;
  std::uint64_t got = 0;
  if (of.homes().registered_with != nullptr) {
    Nursery& nursery = of.bytes() >= host::kHugePage ? *huge_nursery_ : *small_nursery_;
    auto filled = nursery.fill(address, of.bytes(), huge && require_huge_);
    if (!filled.ok()) {
      return std::move(filled).status();
    }
    got = filled->huge;
  } else {
    auto brought = bring_pages(address, of.bytes(), huge, huge && require_huge_);
    if (!brought.ok()) {
      return std::move(brought).status();
    }
    got = *brought;
  }
  counters_.populated += 1;
  counters_.populated_bytes += of.bytes();
  if (huge) {
    counters_.huge_asked += of.bytes() / host::kHugePage;
    counters_.huge_got += got;
  }
  return huge && got == of.bytes() / host::kHugePage;
}

Status DramTier::populate(FrameId id, bool clear, std::byte* at) {
  const Parts parts = unpack(id);
  if (is_slab(parts)) {
    return populate_slab(parts, clear);
  }
  const FramePool& of = pool(parts);
  if (!of.homes().memory) {
    // Populate the window itself: without this, a read into fresh pages waits until the kernel has
    // zeroed them.
    return at != nullptr ? bring(of, at).status() : Status();
  }
  Frame& frame = of.frame(parts.index);
  assert(frame.at == nullptr);
  std::byte* const home = of.home(parts.index);
  if (!frame.pages) {
    auto all_huge = bring(of, home);
    if (!all_huge.ok()) {
      return std::move(all_huge).status();
    }
    frame.huge = *all_huge;
    frame.pages = true;
    frame.tag = kTagZero;
  }
  if (frame.split) {
    repair(frame, home, of.bytes());
  }
  if (frame.tag != kTagZero && (clear || frame.tag != frame.owner)) {
    host::clear(home, of.bytes());
    counters_.cleared_bytes += of.bytes();
  }
  frame.tag = frame.owner;
  return {};
}

// Collects small pages into a huge one in place. A home has all its pages, so its registration does
// not prevent this.
void DramTier::repair(Frame& frame, std::byte* home, std::uint64_t bytes) {
  frame.split = false;
  frame.huge = host::advise(home, bytes, host::Advise::collapse) == 0;
  counters_.repaired += frame.huge ? 1 : 0;
}

// Updates a frame after it was mapped or unmapped.
void DramTier::settle(Frame& frame, std::byte* at, const MapResult& result) {
  frame.at = result.end == MapEnd::window ? at : nullptr;
  if (result.end == MapEnd::dropped) {
    frame.pages = false;
    frame.split = false;
  } else if (frame.huge && !result.huge) {
    frame.split = true;
    counters_.split += 1;
  }
  frame.huge = result.huge;
  count_cuts(frame, result.cuts);
}

MapPlace DramTier::place_of(const FramePool& of, std::uint32_t index, std::byte* at) const {
  const Frame& frame = of.frame(index);
  return {.home = of.home(index),
          .at = at,
          .bytes = of.bytes(),
          .huge = frame.huge,
          .forked = frame.forks != forks_.load(),
          .cut = frame.cuts != 0,
          .inherited = true};
}

void DramTier::count_cuts(Frame& frame, unsigned cuts) {
  const auto most = static_cast<std::uint8_t>(std::min(cuts, 255U));
  if (most > frame.cuts) {
    mapper_.cut(most - frame.cuts);
    frame.cuts = most;
  }
}

// For a home that is empty or about to be. Returns true if it is whole again.
bool DramTier::mend(const FramePool& of, std::uint32_t index, bool always) {
  Frame& frame = of.frame(index);
  if (frame.cuts == 0 || !(always || mapper_.many_cuts()) || of.renew(index) != 0) {
    return false;
  }
  mapper_.mended(frame.cuts);
  frame.cuts = 0;
  return true;
}

Status DramTier::populate_slab(const Parts& parts, bool clear) {
  const SlabPool& of = slab(parts);
  SlabChunk& chunk = of.chunk(parts.index);
  if (!chunk.pages.load()) {
    const std::lock_guard lock(slab_pages_mutex_);
    if (!chunk.pages.load()) {
      const FramePool& chunks = pool(Parts{Pool::locked, kLog2Chunk, 0});
      auto brought = bring(chunks, chunks.home(of.chunk_of(parts.index)));
      if (!brought.ok()) {
        return std::move(brought).status();
      }
      chunk.pages.store(true);
    }
  }
  SlabSlot& slot = of.slot(parts.index);
  if (slot.tag != kTagZero && (clear || slot.tag != slot.owner)) {
    host::clear(of.home(parts.index), of.frame_bytes());
    counters_.cleared_bytes += of.frame_bytes();
  }
  slot.tag = slot.owner;
  return {};
}

// For a slab's frame, locks the whole chunk. A copy that arrives while a chunk is being locked uses
// memory that is not locked, and does not wait.
bool DramTier::lock_pages(FrameId id) {
  if (locker_ == nullptr) {
    return false;
  }
  const Parts parts = unpack(id);
  const FramePool& of = is_slab(parts) ? pool(Parts{Pool::locked, kLog2Chunk, 0}) : pool(parts);
  const std::uint32_t index = is_slab(parts) ? slab(parts).chunk_of(parts.index) : parts.index;
  if (!of.homes().memory || of.frame(index).at != nullptr) {
    return false;  // It is in a window.
  }
  std::atomic<Frame::PageLock>& state = of.frame(index).page_lock;
  auto none = Frame::PageLock::none;
  if (!state.compare_exchange_strong(none, Frame::PageLock::taken)) {
    return none == Frame::PageLock::locked;
  }
  const Status locked = locker_->lock(of.home(index), of.bytes());
  state.store(locked.ok() ? Frame::PageLock::locked : Frame::PageLock::refused);
  if (!locked.ok() && !told_of_page_locks_.exchange(true)) {
    log_warn("{}; copies of such memory take the slower way", locked.message());
  }
  return locked.ok();
}

bool DramTier::has_locked_pages(FrameId id) const {
  const Parts parts = unpack(id);
  return !is_slab(parts) &&
         pool(parts).frame(parts.index).page_lock.load() != Frame::PageLock::none;
}

// Unlock before the pages are released or moved. A refused lock may be retried by the next user.
void DramTier::unlock_pages(const FramePool& of, std::uint32_t index) {
  if (of.frame(index).page_lock.exchange(Frame::PageLock::none) == Frame::PageLock::locked) {
    locker_->unlock(of.home(index));
  }
}

// Windows.

Pool DramTier::window_pool(std::uint64_t extent_bytes) const {
  return extent_bytes >= host::kHugePage ? Pool::movable : Pool::small;
}

Result<std::byte*> DramTier::reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                            bool mapped) {
  const bool huge = extent_bytes >= host::kHugePage;
  if (mapped && !maps()) {
    return fail(
        Code::unsupported,
        "a mapped buffer needs userfaultfd with UFFDIO_MOVE (Linux 6.8) or mremap(DONTUNMAP): "
        "{:.70}{}{:.50}; allow userfaultfd (sysctl, seccomp)",
        facts_.move_reason, facts_.move_reason[0] != '\0' ? "; " : "",
        facts_.copy_reason[0] != '\0' ? facts_.copy_reason : "another mechanism was asked for");
  }
  if (mapped && trap_ != nullptr) {
    return reserve_trapped(bytes, extent_bytes);
  }
  Arenas& arenas = mapped ? mapped_ : windows_;
  // A large mapped window begins at a huge page, whatever the size of its extents: the preload
  // library recognises its own blocks by this.
  const std::uint64_t alignment =
      mapped && bytes >= host::kHugePage ? std::max(extent_bytes, host::kHugePage) : extent_bytes;
  return (huge ? arenas.huge : arenas.small).reserve(bytes, alignment);
}

Result<std::byte*> DramTier::reserve_read_only_window(std::uint64_t bytes,
                                                      std::uint64_t extent_bytes) {
  const bool huge = extent_bytes >= host::kHugePage;
  auto window = (huge ? read_only_.huge : read_only_.small).reserve(bytes, extent_bytes);
  if (window.ok()) {
    has_read_only_.store(true, std::memory_order_release);
  }
  return window;
}

// For a read-only window. Call protect() when the pages are present, and unprotect() before they
// leave; between the two a fault reader may close the extent.
void DramTier::protect(std::byte* at, std::uint64_t bytes) {
  if (is_read_only(at)) {
    const WindowArena& arena = bytes >= host::kHugePage ? read_only_.huge : read_only_.small;
    closed_.protect(at, bytes, arena.options().watch);
  }
}

// Returns true if the extent was closed.
bool DramTier::unprotect(std::byte* at, std::uint64_t bytes) {
  return is_read_only(at) && closed_.release(at, bytes);
}

// A fault reader may have closed the extent when it was already leaving. In that case mremap took
// the protection along.
void DramTier::open_home(const FramePool& of, std::uint32_t index, std::byte* at) {
  if (unprotect(at, of.bytes()) && of.homes().memory) {
    host::must_open_range(of.home(index), of.bytes());
  }
}

void DramTier::release_window(std::byte* window, std::uint64_t) {
  for (WindowArena* arena : {&windows_.huge, &windows_.small, &mapped_.huge, &mapped_.small,
                             &read_only_.huge, &read_only_.small}) {
    const std::uint64_t bytes = arena->size_of(window);
    if (bytes == 0) {
      continue;
    }
    (void)unprotect(window, bytes);
    poisoned_.take(window, bytes);
    // If the program has changed mappings, the whole window is made uniform. The program may have
    // mapped memory there since the buffer was freed.
    const bool altered = arena->altered(window);
    const bool empty = lent_.for_own(window, bytes, [&](std::byte* at, std::uint64_t n) {
      return !altered && host::drop(at, n) == 0 ? 0 : arena->renew(at, n);
    }) == 0;
    if (arena->options().registered_with != nullptr) {
      userfault_.wake(window, bytes);
    }
    if (arena == &mapped_.huge && trap_ != nullptr) {
      trapped_bytes_ -= bytes;
    }
    if (empty) {
      arena->release(window, lent_);
    } else {
      arena->retire(window);
      log_error(
          "free: the kernel refuses to empty the window at {}, so {} of memory stay in use; close "
          "the context to free them",
          static_cast<void*>(window), human_bytes(bytes));
    }
    return;
  }
}

// Each extent in its window costs mappings, and restoring one must not fail. So this reserves no
// more than the process may have. Small extents would cost too many.
Result<std::byte*> DramTier::reserve_trapped(std::uint64_t bytes, std::uint64_t extent_bytes) {
  constexpr std::uint64_t kMappingsEach = 4;
  if (extent_bytes < host::kHugePage) {
    return fail(Code::unsupported,
                "mapped: extents of {} need userfaultfd; set extent_bytes to at least 2 MiB, or "
                "allow userfaultfd",
                human_bytes(extent_bytes));
  }
  bytes = (bytes + extent_bytes - 1) / extent_bytes * extent_bytes;
  const std::uint64_t limit = options_.map_limit != 0 ? options_.map_limit : host::map_limit();
  const std::uint64_t at_once = std::min(trapped_bytes_.load() + bytes, options_.budget);
  if (at_once / host::kHugePage * kMappingsEach > limit / 2) {
    ErrorInfo info = error_info(Code::no_capacity,
                                "mapped: buffers without userfaultfd would need {} mappings, of {} "
                                "that the process may have; raise vm.max_map_count",
                                at_once / host::kHugePage * kMappingsEach, limit);
    set_text(info.setting, "vm.max_map_count");
    return Status(info);
  }
  auto window = mapped_.huge.reserve(bytes, extent_bytes);
  if (window.ok()) {
    trapped_bytes_ += bytes;
  }
  return window;
}

std::byte* DramTier::landing(FrameId frame, std::byte* at) const {
  const Parts parts = unpack(frame);
  if (is_slab(parts)) {
    return slab(parts).home(parts.index);
  }
  const FramePool& of = pool(parts);
  return of.homes().memory ? of.home(parts.index) : at;
}

Status DramTier::map(FrameId id, std::byte* at, Mechanism& used) {
  used = Mechanism::in_place;
  if (at == nullptr) {
    return {};
  }
  const Parts parts = unpack(id);
  if (parts.pool == Pool::locked) {
    return fail(Code::internal, "a locked frame never appears in a window");
  }
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (frame.at != nullptr || (of.homes().memory && !frame.pages)) {
    return fail(Code::internal, "a frame that is {} cannot be mapped",
                frame.at != nullptr ? "in a window already" : "fresh");
  }
  unlock_pages(of, parts.index);  // Locked for the previous owner of the frame.
  frame.by = mechanism_of(parts.pool);
  frame.mapped = false;
  // A store to the previous extent at this address may have been answered late.
  (void)unprotect(at, of.bytes());
  MapResult result = mapper_.in(frame.by, place_of(of, parts.index, at));
  used = result.used;
  settle(frame, at, result);
  if (frame.at != nullptr) {
    protect(at, of.bytes());
    mend(of, parts.index, false);
  }
  return std::move(result.status);
}

Status DramTier::take_home(FrameId id, std::byte* at) {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (!of.homes().memory || frame.at != at || frame.mapped || frame.in_parts) {
    return fail(Code::unsupported, "a frame that has no other place stays in its window");
  }
  (void)unprotect(at, of.bytes());
  MapResult result = mapper_.take_home(frame.by, place_of(of, parts.index, at));
  open_home(of, parts.index, at);
  settle(frame, at, result);
  if (frame.at != nullptr) {
    protect(at, of.bytes());  // It stays in the window.
  }
  return frame.at == nullptr ? Status() : std::move(result.status);
}

Status DramTier::show(FrameId id, std::byte* at) {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (frame.at != nullptr || !frame.pages) {
    return fail(Code::internal, "a frame that is {} cannot appear in a window",
                frame.at != nullptr ? "in one already" : "fresh");
  }
  unlock_pages(of, parts.index);
  frame.by = mechanism_of(parts.pool);
  frame.mapped = false;
  (void)unprotect(at, of.bytes());
  MapResult result = mapper_.show(frame.by, place_of(of, parts.index, at));
  settle(frame, at, result);
  if (frame.at != nullptr) {
    protect(at, of.bytes());
    mend(of, parts.index, false);
  }
  return std::move(result.status);
}

Status DramTier::unmap(FrameId id, std::byte* at) {
  const Parts parts = unpack(id);
  if (at == nullptr || parts.pool == Pool::locked) {
    return {};
  }
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (of.homes().memory && frame.at == nullptr) {
    return {};
  }
  frame.watched = false;
  if (frame.in_parts) {
    if (const int error = mapper_.drop(at, of.bytes()); error != 0) {
      return fail_native(Code::internal, error, "parts of a window could not be emptied: {}",
                         std::strerror(error));
    }
    frame.at = nullptr;
    frame.has = 0;
    return {};
  }
  assert(frame.at == nullptr || frame.at == at);
  const Mechanism mechanism = frame.at != nullptr ? frame.by : mechanism_of(parts.pool);
  MapPlace place = place_of(of, parts.index, at);
  place.mapped = frame.at != nullptr && frame.mapped;
  (void)unprotect(at, of.bytes());
  MapResult result = mapper_.out(mechanism, place);
  open_home(of, parts.index, at);
  settle(frame, at, result);
  return std::move(result.status);
}

Status DramTier::withdraw(FrameId id, std::byte* at) {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (frame.at != at || !maps()) {
    return fail(Code::internal, "a frame cannot be withdrawn from a window that it is not in");
  }
  MapPlace place = place_of(of, parts.index, at);
  place.inherited = options_.follow_forks;
  place.mapped = true;
  frame.watched = false;  // A move ends the watch.
  if (frame.in_parts) {
    return withdraw_parts(frame, place);
  }
  MapResult result = mapper_.withdraw(facts_.mapped, place);
  settle(frame, at, result);
  return std::move(result.status);
}

bool DramTier::withdraws_slowly(FrameId id) const {
  const Parts parts = unpack(id);
  return facts_.mapped == Mechanism::uffd_move &&
         pool(parts).frame(parts.index).forks != forks_.load();
}

// A huge page moves as one entry of a page table.
bool DramTier::restores_at_once(FrameId id) const {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  return facts_.mapped == Mechanism::uffd_move && of.bytes() == host::kHugePage &&
         of.frame(parts.index).huge;
}

Status DramTier::restore(FrameId id, std::byte* at) {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (frame.at != nullptr || !(frame.pages || frame.in_parts) || !maps()) {
    return fail(Code::internal, "a frame that is {} cannot appear in a mapped window",
                frame.at != nullptr ? "in a window already" : "fresh");
  }
  unlock_pages(of, parts.index);
  frame.forks = forks_.load();  // Read before the move, so that a fork during the move counts.
  frame.by = facts_.mapped;
  frame.mapped = true;
  const MapPlace place = place_of(of, parts.index, at);
  if (frame.in_parts) {
    restore_parts(frame, place);
  } else {
    settle(frame, at, mapper_.restore(facts_.mapped, place));
  }
  mend(of, parts.index, false);
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

Status DramTier::insert(FrameId id, std::byte* at, const std::byte* data, PageMask pages,
                        bool watched) {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (!frame.in_parts || (frame.at != nullptr && frame.at != at) || (frame.has & pages) != 0) {
    return fail(Code::internal, "pages {:#x} cannot come to a frame that has {:#x}", pages,
                frame.has);
  }
  if (frame.at == nullptr) {
    frame.forks = forks_.load();  // Read before the copy, so that a fork during the copy counts.
    frame.by = facts_.mapped;
    frame.at = at;
  }
  frame.watched = watched && facts_.watches && (frame.has == 0 || frame.watched);
  frame.has |= pages;
  while (pages != 0) {
    const Run run = take_run(pages);
    mapper_.insert(at + run.offset, data + run.offset, run.bytes, frame.watched);
  }
  const auto all = static_cast<PageMask>((std::uint64_t{1} << (of.bytes() / kSmallestExtent)) - 1);
  if (frame.has == all) {
    frame.in_parts = false;
    frame.has = 0;
    frame.pages = true;
    frame.huge = false;
    frame.tag = frame.owner;
  }
  return {};
}

Status DramTier::empty(FrameId id, std::byte* at, PageMask pages) {
  const Parts parts = unpack(id);
  Frame& frame = pool(parts).frame(parts.index);
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

bool DramTier::may_be_unchanged(FrameId id) const {
  const Parts parts = unpack(id);
  if (is_slab(parts)) {
    return false;
  }
  const Frame& frame = pool(parts).frame(parts.index);
  return frame.watched && frame.forks >= followed_;
}

// A page that was written is not watched any more. A page that the program has emptied itself is
// absent, and would return with its earlier bytes.
void DramTier::drop_unchanged(std::span<Unchanged> frames) {
  const std::lock_guard lock(watch_mutex_);
  Vector<host::Range> ranges;
  const auto pages_of = [&](FrameId id, Frame*& frame) {
    const Parts parts = unpack(id);
    const FramePool& of = pool(parts);
    frame = &of.frame(parts.index);
    const auto all = static_cast<PageMask>((std::uint64_t{1} << of.bytes() / kSmallestExtent) - 1);
    return frame->in_parts ? frame->has : all;
  };
  const auto untouched = [](const Unchanged& each, PageMask pages) {
    return (host::watched_pages(each.at, static_cast<unsigned>(std::bit_width(pages))) & pages) ==
           pages;
  };
  for (Unchanged& each : frames) {
    Frame* frame = nullptr;
    const PageMask pages = pages_of(each.frame, frame);
    each.dropped = frame->watched && frame->at == each.at && untouched(each, pages);
    for (PageMask left = each.dropped ? pages : 0; left != 0;) {
      const Run run = take_run(left);
      ranges.push_back({each.at + run.offset, run.bytes});
    }
  }
  const bool all_gone = ranges.empty() || host::drop(ranges) == 0;
  for (Unchanged& each : frames) {
    Frame* frame = nullptr;
    const PageMask pages = pages_of(each.frame, frame);
    each.dropped = each.dropped && (all_gone || !untouched(each, pages));
    if (each.dropped) {
      frame->at = nullptr;
      frame->pages = false;
      frame->has = 0;
      counters_.unchanged_out += 1;
    }
    frame->watched = false;
  }
}

Status DramTier::withdraw_parts(Frame& frame, const MapPlace& whole) {
  PageMask left = frame.has;
  unsigned cuts = 0;
  Status status;
  while (left != 0) {
    const PageMask before = left;
    MapResult result = mapper_.withdraw(facts_.mapped, place_of_run(whole, take_run(left)));
    cuts += result.cuts;
    if (!result.status.ok()) {
      for (PageMask gone = frame.has & ~before; gone != 0;) {
        (void)mapper_.restore(facts_.mapped, place_of_run(whole, take_run(gone)));
      }
      status = std::move(result.status);
      break;
    }
  }
  count_cuts(frame, cuts);
  frame.at = status.ok() ? nullptr : frame.at;
  return status;
}

void DramTier::restore_parts(Frame& frame, const MapPlace& whole) {
  for (PageMask left = frame.has; left != 0;) {
    (void)mapper_.restore(facts_.mapped, place_of_run(whole, take_run(left)));
  }
  frame.at = whole.at;
}

}  // namespace tiermem
