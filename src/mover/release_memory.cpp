// Retreat: extents leave a device, to DRAM or through the staging to the block tier. If a request
// asks for it, the device's memory goes back to the driver. The stepping thread only; never waits.
#include <algorithm>
#include <utility>

#include "mover/desk.hpp"

namespace tiermem {

// For a request: the copy goes where a victim's copy goes, and the request waits for its pins.
Desk::Arm Desk::arm_release_memory(Request& request, Need& need) {
  const Journal::ReasonScope leaving(journal_, Reason::asked);
  const Extent& extent = directory_.at(need.ref);
  if (extent.transfer != 0) {
    return Arm::wait_transfer;
  }
  const ExtentBits bits = directory_.bits(need.space, need.ref);
  if (!bits.readable()) {
    return Arm::ready;
  }
  if (bits.pinned() || extent.holds != 0) {
    return Arm::wait_pins;
  }
  if (engine_.start_evict(need.ref, need.space, Priority::room)) {
    return extent.transfer != 0 ? Arm::wait_transfer : Arm::ready;
  }
  const MemoryLedger& memory = memories_.of(need.space, directory_.frame(need.space, need.ref));
  if (directory_.bits(need.space, need.ref).pinned() || memories_.freeing(kHost) ||
      (!memory.lost && refusals_.tries_again(memory))) {
    return Arm::wait_pins;
  }
  if (request.status.ok()) {
    request.status =
        memory.lost ? Refusals::lost(memory)
        : !memory.exit_backoff.over(now_) && engine_.slots().last_error().code != Code::ok
            ? Status(engine_.slots().last_error())
            : refusals_.no_room(&request, kHost, directory_.bytes_of(need.ref));
  }
  return Arm::ready;
}

// Counts an extent that has left the device: as many bytes of the device's memory go back to the
// driver, from frames that are free. This begins with the first extent, because returning memory
// takes long and can overlap with the copies of the others.
void Desk::note_left(Request& request, const Need& need) {
  if (!directory_.readable(need.ref, need.space)) {
    request.bytes_left[need.space] += directory_.bytes_of(need.ref);
    give_back_for(request);
  }
}

void Desk::begin_giving_back(Request& request) {
  request.state = Request::State::giving;
  give_back_for(request);
}

void Desk::give_back_for(Request& request) {
  if (std::find(giving_back_.begin(), giving_back_.end(), &request) == giving_back_.end()) {
    giving_back_.push_back(&request);
  }
}

void Desk::serve_giving_back() {
  for (std::size_t i = 0; i < giving_back_.size();) {
    Request& request = *giving_back_[i];
    bool waits = request.state != Request::State::giving;
    for (unsigned at = kHost + 1; at < memories_.spaces(); ++at) {
      MemoryLedger& memory = memories_.first(at);
      const std::uint64_t left = request.bytes_left[at];
      std::uint64_t& given = request.bytes_given[at];
      if (given < left && !memory.trimming) {
        memory.begin_trim(left - given, workers_);
        if (memory.trimming) {
          given += memory.trim.bytes;
        } else if (request.state == Request::State::giving) {
          given = left;  // No frame is free: other requests have taken them.
        }
        // Otherwise the frames may be parts of chunks that other extents still use.
      }
      waits = waits || given < left || memory.trimming;
    }
    if (waits) {
      ++i;
      continue;
    }
    giving_back_.erase(giving_back_.begin() + static_cast<std::ptrdiff_t>(i));
    complete(request, std::move(request.status));
  }
}

}  // namespace tiermem
