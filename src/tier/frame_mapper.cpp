// The mechanisms UFFDIO_MOVE, mremap, and in place.
#include "tier/frame_mapper.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/results.hpp"
#include "os/host_memory.hpp"
#include "tier/refused_calls.hpp"

namespace tiermem {
namespace {

MapResult failed(Status status, MapEnd end) {
  return {.status = std::move(status), .end = end};
}

// Max number of requests for a huge page. Under continuous compaction, one in sixty of those that
// were refused at first needed more.
constexpr int kCollapses = 32;

}  // namespace

FrameMapper::FrameMapper(const Userfault& userfault, std::uint64_t map_limit,
                         PoisonedPages& poisoned, const LentPages& lent, LiveHostCounters& counters)
    : userfault_(userfault),
      map_limit_(map_limit),
      poisoned_(poisoned),
      lent_(lent),
      counters_(counters) {}

MapResult FrameMapper::in(Mechanism mechanism, const MapPlace& place) {
  if (place.file != nullptr) {
    return in_by_sharing(place);
  }
  switch (mechanism) {
    case Mechanism::uffd_move:
      return in_by_move(place);
    case Mechanism::remap:
      return in_by_remap(place);
    case Mechanism::copy:
      return restore_by_copy(place);
    case Mechanism::in_place:
      break;
  }
  return in_as_is(place);
}

MapResult FrameMapper::out(Mechanism mechanism, const MapPlace& place) {
  if (place.file != nullptr) {
    return out_by_sharing(place);
  }
  if (mechanism != Mechanism::in_place && lent_.any(place.at, place.bytes)) {
    return give_up(place, mechanism, "the program has mapped something of its own there");
  }
  switch (mechanism) {
    case Mechanism::uffd_move:
      return out_by_move(place);
    case Mechanism::remap:
      return place.mapped ? drop_trapped(place) : out_by_remap(place);
    case Mechanism::copy:
      return out_by_copy(place);
    case Mechanism::in_place:
      break;
  }
  return out_as_is(place);
}

MapResult FrameMapper::withdraw(Mechanism mechanism, const MapPlace& place) {
  if (lent_.any(place.at, place.bytes)) {
    return stays_beside_lent(MapEnd::window);
  }
  return mechanism == Mechanism::copy    ? withdraw_by_remap(place)
         : mechanism == Mechanism::remap ? withdraw_trapped(place)
                                         : withdraw_by_move(place);
}

MapResult FrameMapper::restore(Mechanism mechanism, const MapPlace& place) {
  return mechanism == Mechanism::copy    ? restore_by_copy(place)
         : mechanism == Mechanism::remap ? restore_trapped(place)
                                         : restore_by_move(place);
}

MapResult FrameMapper::take_home(Mechanism mechanism, const MapPlace& place) {
  if (lent_.any(place.at, place.bytes)) {
    return stays_beside_lent(MapEnd::window);
  }
  if (place.file != nullptr) {
    return out_by_sharing(place);
  }
  if (mechanism == Mechanism::remap) {
    return home_by_remap(place);
  }
  if (mechanism == Mechanism::in_place || (mechanism == Mechanism::copy && many_cuts())) {
    return failed(Status(Code::busy), MapEnd::window);
  }
  return withdraw(mechanism, place);
}

MapResult FrameMapper::show(Mechanism mechanism, const MapPlace& place) {
  return place.file != nullptr           ? in_by_sharing(place)
         : mechanism == Mechanism::remap ? in_by_remap(place)
                                         : restore(mechanism, place);
}

MapResult FrameMapper::in_by_move(const MapPlace& place) {
  if (poisoned_.take(place.at, place.bytes)) {
    // No page is there yet. The page table is removed too.
    best_effort(empty(place.at, place.bytes), "the move below finds what is left");
  }
  std::uint64_t done = 0;
  for (;;) {
    const UserfaultProgress moved =
        userfault_.move(place.at + done, place.home + done, place.bytes - done);
    done += moved.done;
    if (moved.error == 0) {
      counters_.moved_in_uffd += 1;
      return {.end = MapEnd::window, .used = Mechanism::uffd_move, .huge = place.huge};
    }
    // A touch was poisoned after the check. The pages from here on do not belong to this frame yet.
    if (moved.error == EEXIST && poisoned_.take(place.at + done, place.bytes - done)) {
      best_effort(empty(place.at + done, place.bytes - done), "the next move finds what is left");
      continue;
    }
    return in_by_copy(place, done, moved.error);
  }
}

// The frame's pages are page-locked, or the window has another protection. The bytes can still be
// copied page by page; the home is dropped.
MapResult FrameMapper::in_by_copy(const MapPlace& place, std::uint64_t moved, int why) {
  if (moved > 0) {
    counters_.partial_moves += 1;
  }
  const UserfaultProgress copied =
      userfault_.copy(place.at + moved, place.home + moved, place.bytes - moved);
  if (copied.error == 0) {
    best_effort(host::drop(place.home, place.bytes), "the bytes are in the window, too");
    counters_.copied_in += 1;
    return {.end = MapEnd::window, .used = Mechanism::copy};
  }
  best_effort(empty(place.at, place.bytes), "the frame is given up");
  best_effort(host::drop(place.home, place.bytes), "the frame is given up");
  const Code code = copied.error == ENOMEM ? Code::no_capacity : Code::internal;
  return failed(
      fail_native(code, copied.error, "a frame could not be mapped: UFFDIO_MOVE {}, UFFDIO_COPY {}",
                  std::strerror(why), std::strerror(copied.error)),
      MapEnd::dropped);
}

MapResult FrameMapper::moved_out(const MapPlace& place) {
  counters_.moved_out_uffd += 1;
  // A fork, or a change of the window's mapping by the program, may have split its pages. The check
  // costs a microsecond; a wrong assumption costs 300 at each later move.
  const bool huge =
      place.huge && host::huge_bytes(place.home, place.bytes).value_or(place.bytes) == place.bytes;
  if (!huge && place.bytes >= host::kHugePage) {
    best_effort(empty(place.at, place.bytes),
                "page tables of small pages only keep huge pages out");
  }
  return {.end = MapEnd::home, .used = Mechanism::uffd_move, .huge = huge};
}

MapResult FrameMapper::withdraw_by_move(const MapPlace& place) {
  if (place.forked) {
    unshare(place.at, place.bytes);
  }
  RefusedCall refused;
  std::uint64_t done = 0;
  int error = 0;
  bool taken = false;
  while (done < place.bytes) {
    const UserfaultProgress moved =
        userfault_.move(place.home + done, place.at + done, place.bytes - done);
    done += moved.done;
    error = moved.error;
    if (error == 0) {
      break;
    }
    if (error == ENOENT) {
      // A page that the program has emptied leaves as zeros, or with the bytes that a waiting
      // thread stores there first.
      error = userfault_.zero(place.at + done, host::kPage);
      if ((error == 0 || error == EEXIST) && refused.again(ENOENT)) {
        continue;
      }
    } else if (error == EINVAL) {
      // The program has protected or locked this page.
      error = take_page(place.home + done, place.at + done);
      if (error == 0) {
        taken = true;
        done += host::kPage;
        continue;
      }
    }
    break;
  }
  if (error == 0) {
    MapResult result = moved_out(place);
    result.huge = result.huge && !taken;
    return result;
  }
  // Page-locked. The pages that have moved go back.
  counters_.withdrawals_refused += 1;
  if (done > 0) {
    counters_.partial_moves += 1;
    (void)restore_by_move({place.home, place.at, done, false});
  }
  MapResult result =
      failed(fail_native(Code::busy, error, "an extent cannot leave its window now: {}",
                         std::strerror(error)),
             MapEnd::window);
  result.used = Mechanism::uffd_move;
  result.huge = place.huge && done == 0;
  return result;
}

// UFFDIO_MOVE does not take a page that the program has made read-only or inaccessible. mremap
// takes a page of any protection, and no writer can come in between. The page passes through a slot
// of ours, so that the mappings of home and window do not change. Returns 0 or errno; after an
// error the page is in the window.
int FrameMapper::take_page(std::byte* home, std::byte* at) {
  const std::lock_guard lock(slot_mutex_);
  if (slot_.data() == nullptr) {
    auto slot = host::reserve({.bytes = host::kPage, .alignment = host::kPage, .dumped = false});
    if (!slot.ok()) {
      return ENOMEM;
    }
    slot_ = std::move(*slot);
  }
  std::byte* const slot = slot_.data();
  // Only a page of ours may be taken. An absent one reads as zeros from here on.
  if (const int there = userfault_.zero(at, host::kPage); there != 0 && there != EEXIST) {
    return EBUSY;
  }
  if (const int error = host::remap(slot, at, host::kPage); error != 0) {
    // mremap may have unmapped the slot before it failed.
    if (const int again = host::map_again(slot, host::kPage); again != 0 && again != EEXIST) {
      slot_ = {};
    }
    return error;
  }
  host::must_open_range(slot, host::kPage);
  RefusedCall refused;
  for (;;) {
    const UserfaultProgress copied = userfault_.copy(home, slot, host::kPage);
    if (copied.error == 0) {
      counters_.taken_by_page += 1;
      best_effort(host::drop(slot, host::kPage), "the next page takes its place");
      return 0;
    }
    if (copied.error == EEXIST) {
      best_effort(host::drop(home, host::kPage), "the next copy finds what is left");
    }
    if (!refused.again(copied.error)) {
      copy_in(at, slot, host::kPage, false);
      return copied.error;
    }
  }
}

MapResult FrameMapper::restore_by_move(const MapPlace& place) {
  if (poisoned_.take(place.at, place.bytes)) {
    // No page is there yet.
    best_effort(empty(place.at, place.bytes), "the move below finds what is left");
  }
  RefusedCall refused;
  bool copied = false;
  for (std::uint64_t done = 0; done < place.bytes;) {
    std::byte* const at = place.at + done;
    std::byte* const home = place.home + done;
    const UserfaultProgress moved = userfault_.move(at, home, place.bytes - done);
    if (moved.done != 0) {
      refused.succeeded();
    }
    done += moved.done;
    if (moved.error == 0) {
      break;
    }
    int error = moved.error;
    std::byte* const page = place.at + done;
    if (error != EEXIST && error != ENOENT) {
      // Copy one page, then continue to move: it is page-locked, or the program has protected it.
      error = userfault_.copy(page, place.home + done, host::kPage).error;
      if (error == 0) {
        best_effort(host::drop(place.home + done, host::kPage), "the page is in the window, too");
        done += host::kPage;
        copied = true;
        refused.succeeded();
        continue;
      }
    }
    if (error == EEXIST) {
      // A touch was poisoned after the check. The pages from here on do not belong to the program
      // yet.
      poisoned_.take(page, place.bytes - done);
      best_effort(empty(page, place.bytes - done), "the next move finds what is left");
    }
    if (error == ENOENT || !refused.again(error)) {
      leave_out(page, place.home + done, error);
      done += host::kPage;
    }
  }
  if (copied) {
    counters_.copied_in += 1;
  } else {
    counters_.moved_in_uffd += 1;
  }
  return {.end = MapEnd::window, .used = Mechanism::uffd_move, .huge = place.huge && !copied};
}

// The page cannot be shown: its touch raises SIGBUS, and no thread waits for it or sees other
// bytes.
void FrameMapper::leave_out(std::byte* at, const std::byte* from, int error) {
  if (lent_.contains(at)) {
    return;  // The program has mapped memory of its own there.
  }
  log_error(
      "a page of a mapped buffer at {} is not shown ({}), and its touch is a signal: its window "
      "was unmapped there, or it is missing at {}; keep windows mapped",
      static_cast<void*>(at), std::strerror(error), static_cast<const void*>(from));
  (void)poisoned_.add(at, nullptr);
}

int FrameMapper::drop(std::byte* at, std::uint64_t bytes) {
  poisoned_.take(at, bytes);
  return empty(at, bytes);
}

int FrameMapper::empty(std::byte* at, std::uint64_t bytes) const {
  return lent_.for_own(at, bytes,
                       [](std::byte* own, std::uint64_t n) { return host::drop(own, n); });
}

// Drops the pages: the bytes are elsewhere, or not needed.
MapResult FrameMapper::give_up(const MapPlace& place, Mechanism used, const char* why) {
  counters_.dropped_out += 1;
  const int window_error = empty(place.at, place.bytes);
  const int home_error = host::drop(place.home, place.bytes);
  if (const int error = window_error != 0 ? window_error : home_error; error != 0) {
    return failed(fail_native(Code::internal, error,
                              "a frame can neither be moved ({}) nor dropped ({}) from its window",
                              why, std::strerror(error)),
                  MapEnd::window);
  }
  return {.end = MapEnd::dropped, .used = used};
}

// The preload library lends a part of an extent and keeps the rest resident. This handles a part
// that is being lent now.
MapResult FrameMapper::stays_beside_lent(MapEnd end) {
  counters_.withdrawals_refused += 1;
  return failed(fail(Code::busy,
                     "an extent cannot move now: the program has mapped something of its own in a "
                     "part of its window; unmap that"),
                end);
}

MapResult FrameMapper::out_by_move(const MapPlace& place) {
  const UserfaultProgress moved = userfault_.move(place.home, place.at, place.bytes);
  if (moved.error == 0) {
    return moved_out(place);
  }
  // Shared with a forked child, page-locked, or emptied by the program. The bytes are elsewhere.
  if (moved.done > 0) {
    counters_.partial_moves += 1;
  }
  return give_up(place, Mechanism::uffd_move, std::strerror(moved.error));
}

// mremap replaces the window's mapping by that of the home. The advice that excludes it from
// children and core dumps must be undone, and repeated for the home on the way out.
MapResult FrameMapper::in_by_remap(const MapPlace& place) {
  if (lent_.any(place.at, place.bytes)) {
    return stays_beside_lent(MapEnd::home);
  }
  if (!room_for_mapping()) {
    return too_many_mappings();
  }
  int error = host::remap(place.at, place.home, place.bytes);
  if (error != 0) {
    counters_.remaps_refused += 1;
    return failed(
        fail_native(Code::no_capacity, error, "mremap into a window: {}", std::strerror(error)),
        MapEnd::home);
  }
  best_effort(host::advise(place.at, place.bytes, host::Advise::do_dump),
              "the core dump lacks these bytes");
  error = place.inherited ? host::advise(place.at, place.bytes, host::Advise::do_fork) : 0;
  // If it cannot go back either, it stays, and a child of fork does not inherit it.
  if (error != 0 && home_by_remap(place).end == MapEnd::home) {
    return failed(fail_native(Code::internal, error, "MADV_DOFORK: {}", std::strerror(error)),
                  MapEnd::home);
  }
  counters_.moved_in_remap += 1;
  return {.end = MapEnd::window, .used = Mechanism::remap, .huge = place.huge};
}

MapResult FrameMapper::too_many_mappings() {
  counters_.remaps_refused += 1;
  ErrorInfo info = error_info(Code::no_capacity,
                              "a frame mapped into its window would bring this process near its {} "
                              "mappings; raise vm.max_map_count or use larger extents",
                              map_limit_);
  set_text(info.setting, "vm.max_map_count");
  return failed(Status(info), MapEnd::home);
}

// Moves the pages home with their bytes, or leaves them in the window.
MapResult FrameMapper::home_by_remap(const MapPlace& place) {
  const int error = host::remap(place.home, place.at, place.bytes);
  if (error != 0) {
    MapResult stays =
        failed(fail_native(Code::busy, error, "an extent cannot leave its window now: {}",
                           std::strerror(error)),
               MapEnd::window);
    stays.huge = place.huge;
    return stays;
  }
  best_effort(host::advise(place.home, place.bytes, host::Advise::dont_fork),
              "a forked child has a copy that it does not use");
  best_effort(host::advise(place.home, place.bytes, host::Advise::dont_dump),
              "a core dump is larger");
  counters_.moved_out_remap += 1;
  return close_window(place, MapEnd::home);
}

MapResult FrameMapper::out_by_remap(const MapPlace& place) {
  MapResult result = home_by_remap(place);
  if (result.end == MapEnd::window) {
    counters_.dropped_out += 1;
    return close_window(place, MapEnd::dropped);
  }
  return result;
}

MapResult FrameMapper::close_window(const MapPlace& place, MapEnd end) {
  if (const int closed = host::close_range(place.at, place.bytes); closed != 0) {
    best_effort(empty(place.at, place.bytes), "the error below tells");
    return failed(fail_native(Code::internal, closed, "a window could not be closed: {}",
                              std::strerror(closed)),
                  end);
  }
  if (!place.inherited) {
    best_effort(host::advise(place.at, place.bytes, host::Advise::dont_fork),
                "a forked child has an empty mapping more");
  }
  forget_mapping();
  return {.end = end, .used = Mechanism::remap, .huge = place.huge && end == MapEnd::home};
}

MapResult FrameMapper::in_as_is(const MapPlace& place) {
  if (const int error = host::populate(place.at, place.bytes); error != 0) {
    return failed(fail_native(Code::no_capacity, error, "the kernel has no pages for {}: {}",
                              human_bytes(place.bytes), std::strerror(error)),
                  MapEnd::window);
  }
  counters_.moved_in_place += 1;
  return {.end = MapEnd::window};
}

MapResult FrameMapper::out_as_is(const MapPlace& place) {
  if (const int error = empty(place.at, place.bytes); error != 0) {
    return failed(fail_native(Code::internal, error, "a window could not be emptied: {}",
                              std::strerror(error)),
                  MapEnd::window);
  }
  counters_.moved_out_place += 1;
  return {.end = MapEnd::dropped};
}

// Shared pages do not move. The kernel never leaves a locked page shared. So pages that are refused
// afterwards are locked, and no page was copied while a device used it.
void FrameMapper::unshare(std::byte* address, std::uint64_t bytes) {
  const auto thread = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  const auto note = [&](auto&& change) {
    const std::lock_guard lock(unsharing_mutex_);
    change();
    unsharing_count_.store(static_cast<unsigned>(unsharing_.size()));
  };
  note([&] { unsharing_.push_back(thread); });
  if (host::unshare(address, bytes) == EFAULT) {
    // A hole, and no thread serves kernel faults.
    for (std::uint64_t at = 0; at < bytes; at += host::kPage) {
      (void)userfault_.zero(address + at, host::kPage);
    }
    best_effort(host::unshare(address, bytes), "the move that follows tells");
  }
  note([&] { std::erase(unsharing_, thread); });
  if (bytes >= host::kHugePage) {
    // If a huge page was copied in part, the kernel (6.18) does not move the rest, because it
    // checks the owner only for the first page. As one huge page it moves, and stays one. EAGAIN:
    // compaction holds a page of it, for some milliseconds if compaction is continuous.
    for (int tries = 0; tries < kCollapses; ++tries) {
      if (host::advise(address, bytes, host::Advise::collapse) != EAGAIN) {
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  counters_.unshared += 1;
}

bool FrameMapper::unshares(std::uint32_t thread) const {
  if (unsharing_count_.load() == 0) {
    return false;
  }
  const std::lock_guard lock(unsharing_mutex_);
  return std::find(unsharing_.begin(), unsharing_.end(), thread) != unsharing_.end();
}

// Counting the mappings reads /proc, which takes tens of milliseconds if there are many. So this
// keeps a running estimate on the high side, and corrects it only when it reaches the limit. One
// tenth of the limit is left to the program.
bool FrameMapper::room_for_mapping() {
  const std::uint64_t limit = map_limit_ - map_limit_ / 10;
  const std::lock_guard lock(mapping_mutex_);
  if (mappings_ == 0 || mappings_ + kMappingsEach > limit) {
    mappings_ = host::map_count();
  }
  if (mappings_ + kMappingsEach > limit) {
    return false;
  }
  mappings_ += kMappingsEach;
  return true;
}

void FrameMapper::forget_mapping() {
  const std::lock_guard lock(mapping_mutex_);
  mappings_ -= std::min(mappings_, kMappingsEach);
}

}  // namespace tiermem
