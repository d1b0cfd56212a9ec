// The mechanism for frames with pages in a file: the window gets a second mapping of the same
// pages. The program touches such windows through views only, so no thread touches the range while
// its mapping changes. userfaultfd takes no mappings of a DAX file, so mapped windows do not have
// them.
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/results.hpp"
#include "tier/dax_pages.hpp"
#include "tier/frame_mapper.hpp"
#include "tier/window_arena.hpp"

namespace tiermem {

MapResult FrameMapper::in_by_sharing(const MapPlace& place) {
  if (lent_.any(place.at, place.bytes)) {
    return stays_beside_lent(MapEnd::home);
  }
  if (!room_for_mapping()) {
    return too_many_mappings();
  }
  if (const int error = place.file->share(place.home, place.at, place.bytes); error != 0) {
    counters_.remaps_refused += 1;
    best_effort(place.arena->renew(place.at, place.bytes),
                "the next frame there replaces what is left");
    forget_mapping();
    MapResult result{.end = MapEnd::home};
    result.status = fail_native(Code::no_capacity, error, "mmap of a file into a window: {}",
                                std::strerror(error));
    return result;
  }
  counters_.moved_in_remap += 1;
  return {.end = MapEnd::window, .used = Mechanism::remap};
}

MapResult FrameMapper::out_by_sharing(const MapPlace& place) {
  if (lent_.any(place.at, place.bytes)) {
    return stays_beside_lent(MapEnd::window);
  }
  MapResult result{.end = MapEnd::home, .used = Mechanism::remap};
  if (const int error = place.arena->renew(place.at, place.bytes); error != 0) {
    // The range may be closed already. The bytes are at home in any case.
    const bool back = place.file->share(place.home, place.at, place.bytes) == 0;
    result.end = back ? MapEnd::window : MapEnd::home;
    result.status = fail_native(Code::busy, error, "an extent cannot leave its window now: {}",
                                std::strerror(error));
    return result;
  }
  forget_mapping();
  counters_.moved_out_remap += 1;
  return result;
}

}  // namespace tiermem
