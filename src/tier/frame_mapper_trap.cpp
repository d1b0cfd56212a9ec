// The mechanism for mapped buffers without userfaultfd: mremap into windows. Absent extents in them
// are closed (PROT_NONE), and their touches are signals (os/touch_trap.hpp). Each extent in its
// window is a separate mapping, and so is each home after its pages left by mremap.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/last_words.hpp"
#include "base/results.hpp"
#include "os/host_memory.hpp"
#include "tier/frame_mapper.hpp"
#include "tier/refused_calls.hpp"

namespace tiermem {

// The window is closed first, so that no thread finds an empty page; from then on only this thread
// uses the pages. An extent that the program's advice has split into several mappings does not
// leave: mremap takes only one mapping, and reports this only after it has unmapped its
// destination.
MapResult FrameMapper::withdraw_trapped(const MapPlace& place) {
  int error = host::shut_range(place.at, place.bytes);
  std::uint64_t done = 0;
  if (error == 0) {
    error = place.cut || room_for_mapping() ? remap_home(place, place.bytes, done) : ENOMEM;
  }
  MapResult result{.used = Mechanism::remap, .huge = place.huge};
  if (error != 0) {
    host::must_open_range(place.at, place.bytes);
    counters_.withdrawals_refused += 1;
    result.status = fail_native(Code::busy, error, "an extent cannot leave its window now: {}",
                                std::strerror(error));
    result.end = MapEnd::window;
    return result;
  }
  host::must_open_range(place.home, place.bytes);
  best_effort(host::advise(place.home, place.bytes, host::Advise::dont_dump),
              "a core dump is larger");
  // Close it as before, as one mapping with its neighbours.
  best_effort(host::close_range(place.at, place.bytes), "it is shut already");
  best_effort(host::advise(place.at, place.bytes, host::Advise::dont_fork),
              "a forked child has an empty mapping more");
  result.cuts = kHomeCuts;
  counters_.moved_out_remap += 1;
  return result;
}

MapResult FrameMapper::restore_trapped(const MapPlace& place) {
  const auto bring = [&] {
    const PoisonedPages::Bringing bringing = poisoned_.bringing_over(place.at, place.bytes);
    return host::remap(place.at, place.home, place.bytes);
  };
  RefusedCall refused;
  for (int error = bring(); error != 0; error = bring()) {
    if (!refused.again(error)) {
      // The bytes cannot be shown anywhere else, and a touch must not see other bytes.
      last_words("mremap: the process ends, because an extent cannot be brought back to {}: {}",
                 static_cast<void*>(place.at), std::strerror(error));
      std::abort();
    }
  }
  best_effort(host::advise(place.at, place.bytes, host::Advise::do_dump),
              "a core dump lacks these bytes");
  counters_.moved_in_remap += 1;
  return {.end = MapEnd::window, .used = Mechanism::remap, .huge = place.huge};
}

// Drops the pages: the bytes are elsewhere too, or not needed.
MapResult FrameMapper::drop_trapped(const MapPlace& place) {
  MapResult left = withdraw_trapped(place);
  if (!left.status.ok()) {
    counters_.dropped_out += 1;
    // It is shut; its pages stay until the next map() replaces them.
    if (host::close_range(place.at, place.bytes) != 0) {
      best_effort(host::shut_range(place.at, place.bytes), "a touch sees the bytes that it had");
    }
    best_effort(host::advise(place.at, place.bytes, host::Advise::dont_fork),
                "a forked child has an empty mapping more");
    left.end = MapEnd::dropped;
    left.status = {};
  }
  return left;
}

}  // namespace tiermem
