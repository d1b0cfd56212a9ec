// The copying mechanism, for kernels without UFFDIO_MOVE (before Linux 6.8). Bytes enter by
// UFFDIO_COPY and leave by mremap, which takes the pages and leaves the window's mapping empty and
// registered (MREMAP_DONTUNMAP, Linux 5.7). The kernel does this with the process's mappings
// locked: a touch comes before it or waits until after it, so no write is lost. Unlike UFFDIO_MOVE
// it also takes pages that a fork shares, and pages under I/O.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/results.hpp"
#include "os/host_memory.hpp"
#include "tier/frame_mapper.hpp"
#include "tier/refused_calls.hpp"

namespace tiermem {
namespace {

// Max bytes that exist twice while an extent of small pages enters: copied pages leave their home
// at once.
constexpr std::uint64_t kPieceBytes = 64 << 10;

}  // namespace

void FrameMapper::insert(std::byte* at, const std::byte* from, std::uint64_t bytes, bool watched) {
  copy_in(at, from, bytes, watched);
  counters_.copied_in += 1;
}

void FrameMapper::copy_in(std::byte* at, const std::byte* from, std::uint64_t bytes, bool watched) {
  bool by_page = false;
  RefusedCall refused;
  for (std::uint64_t done = 0; done < bytes;) {
    UserfaultProgress copied;
    {
      const PoisonedPages::Bringing bringing = poisoned_.bringing();
      copied =
          userfault_.copy(at + done, from + done, by_page ? host::kPage : bytes - done, watched);
    }
    if (copied.done != 0) {
      refused.succeeded();
    }
    done += copied.done;
    if (copied.error == 0) {
      continue;
    }
    if (copied.error == EEXIST) {
      // Poisoned when the bytes were not available; or a page without an owner and with content
      // that does not matter.
      poisoned_.take(at + done, host::kPage);
      best_effort(empty(at + done, host::kPage), "the next copy finds what is left");
    } else if (copied.error == ENOENT) {
      if (poisoned_.take(at + done, bytes - done)) {
        continue;
      }
      if (!by_page) {
        by_page = true;  // The program's own advice has split the window into several mappings.
        continue;
      }
    }
    if (copied.error == ENOENT || !refused.again(copied.error)) {
      leave_out(at + done, from + done, copied.error);
      done += host::kPage;
    }
  }
}

// A huge home is released as a whole: if it were released in pieces, its memory would remain until
// the last one.
MapResult FrameMapper::restore_by_copy(const MapPlace& place) {
  poisoned_.take(place.at, place.bytes);
  const std::uint64_t piece = place.huge ? place.bytes : std::min(place.bytes, kPieceBytes);
  for (std::uint64_t done = 0; done < place.bytes; done += piece) {
    const std::uint64_t bytes = std::min(piece, place.bytes - done);
    copy_in(place.at + done, place.home + done, bytes, place.watched);
    best_effort(host::drop(place.home + done, bytes), "the bytes are in the window, too");
  }
  counters_.copied_in += 1;
  return {.end = MapEnd::window, .used = Mechanism::copy};
}

// mremap unmaps its destination before it checks its source, so it is called only if it can
// succeed: for a range within one mapping. UFFDIO_ZEROPAGE detects this (and fills pages that the
// program emptied, if these come first). Otherwise it is called page by page.
MapResult FrameMapper::withdraw_by_remap(const MapPlace& place) {
  std::uint64_t done = 0;
  int error = ENOMEM;
  bool one = true;
  if (place.cut || room_for_mapping()) {
    one = userfault_.zero(place.at, place.bytes) != ENOENT;
    error = remap_home(place, one ? place.bytes : host::kPage, done);
  }
  MapResult result{.used = Mechanism::copy, .huge = place.huge};
  if (done != 0) {
    result.cuts = one ? kHomeCuts : kHomeCuts + static_cast<unsigned>(place.bytes / host::kPage);
  }
  if (error != 0) {
    counters_.withdrawals_refused += 1;
    (void)restore_by_copy({place.home, place.at, done});
    result.status = fail_native(
        Code::busy, error, "an extent cannot leave its window now: {}; {}", std::strerror(error),
        error == ENOMEM ? "raise vm.max_map_count" : "tiermem tries it again");
    result.end = MapEnd::window;
    return result;
  }
  if (place.inherited) {
    best_effort(host::advise(place.home, place.bytes, host::Advise::dont_fork),
                "a forked child has a copy that it does not use");
  }
  best_effort(host::advise(place.home, place.bytes, host::Advise::dont_dump),
              "a core dump is larger");
  counters_.moved_out_remap += 1;
  return result;
}

int FrameMapper::remap_home(const MapPlace& place, std::uint64_t step, std::uint64_t& done) {
  for (; done < place.bytes; done += step) {
    const int error = host::remap(place.home + done, place.at + done, step);
    if (error == 0) {
      host::must_open_range(place.home + done, step);  // It arrived with the program's protection.
    } else {
      // It may be unmapped already: map it before other code maps memory there.
      best_effort(host::map_again(place.home + done, step), "EEXIST: it was not unmapped");
      best_effort(host::advise(place.home + done, step, host::Advise::dont_fork),
                  "a forked child has a copy that it does not use");
      best_effort(host::advise(place.home + done, step, host::Advise::dont_dump),
                  "a core dump is larger");
      return error;
    }
  }
  return 0;
}

// Drops the pages in the window: the bytes are elsewhere, too.
MapResult FrameMapper::out_by_copy(const MapPlace& place) {
  MapResult left{.status = Status(Code::busy), .used = Mechanism::copy};
  if (!many_cuts()) {
    left = withdraw_by_remap(place);
  }
  if (!left.status.ok()) {
    counters_.dropped_out += 1;
    left.end = MapEnd::dropped;
    const int error = empty(place.at, place.bytes);
    left.status = error == 0 ? Status()
                             : fail_native(Code::internal, error, "a window cannot be emptied: {}",
                                           std::strerror(error));
  }
  return left;
}

bool FrameMapper::many_cuts() const {
  return cuts_.load() > map_limit_ / 8;
}

void FrameMapper::cut(unsigned more) {
  cuts_ += more;
}

void FrameMapper::mended(unsigned cuts) {
  cuts_ -= cuts;
  const std::lock_guard lock(mapping_mutex_);
  // The number that was added for them.
  mappings_ -= std::min<std::uint64_t>(mappings_, std::uint64_t{cuts} * 2);
}

void FrameMapper::follow_fork() {
  cuts_ = 0;
  mappings_ = 0;
}

}  // namespace tiermem
