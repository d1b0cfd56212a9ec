// Collecting: requests get the room that they need, whole, the oldest first. The stepping thread
// only; never waits.
#include <algorithm>
#include <utility>

#include "mover/desk.hpp"

namespace tiermem {

// The oldest request collects frames until it has all that it needs. The others wait behind it.
void Desk::serve_room() {
  room_.begin_search();
  while (!room_queue_.empty()) {
    Request& head = *room_queue_.front();
    if (!collect(head)) {
      return;
    }
    if (head.state == Request::State::done) {
      continue;  // Failed, and left the queue.
    }
    room_queue_.pop_front();
    activate(head);
  }
  if (!room_.budget_changes()) {
    (void)press_kept(false);
  }
}

// Returns whether memory came back. It may be in spare buffers, of which no event tells.
bool Desk::press_kept(bool on) {
  if (kept_ == nullptr || pressed_ == on) {
    return false;
  }
  pressed_ = on;
  const bool came_back = kept_->press(on);
  look_again_ = look_again_ || came_back;
  return came_back;
}

bool Desk::collect(Request& request) {
  if (std::any_of(request.needs.begin(), request.needs.end(),
                  [&](const Need& need) { return memories_.awaited(need.space); })) {
    return false;
  }
  if (!request.collecting) {
    request.collecting = true;
    std::array<Room::Lack, kMaxSpaces> all{};
    for (Need& need : request.needs) {
      hold(need);
      all[need.space].add(room_.room_of(need.ref, need.space));
    }
    for (unsigned space = 0; space < memories_.spaces(); ++space) {
      if (!room_.ever_fits(space, all[space])) {
        fail_request(request, refusals_.no_room(&request, space, all[space].bytes));
        return true;
      }
    }
  }
  std::array<Room::Lack, kMaxSpaces> missing{};
  const auto take_for = [&](Need& need) {
    if (need.has_room() || !needs_.lacks_copy(need)) {
      return;
    }
    if (missing[need.space].bytes == 0) {
      (void)room_.take_room(need);
    }
    if (!need.has_room()) {
      missing[need.space].add(room_.lack_of(need));
    }
  };
  // Extents that some memory does not take come first. Otherwise the others could hold all frames
  // of the memories that do.
  const auto take_all = [&] {
    missing = {};
    for (const bool barred : {true, false}) {
      for (Need& need : request.needs) {
        if (room_.is_barred(need.ref, need.space) == barred) {
          take_for(need);
        }
      }
    }
  };
  take_all();
  bool short_of_room = false;
  for (unsigned space = 0; space < memories_.spaces(); ++space) {
    if (missing[space].bytes != 0) {
      room_.make_room(space, missing[space], Priority::room, request.last_look);
      short_of_room = true;
    }
  }
  if (!short_of_room) {
    return true;
  }
  take_all();  // Clean victims without a window left at once.
  for (unsigned space = 0; space < memories_.spaces(); ++space) {
    if (missing[space].bytes == 0) {
      continue;
    }
    request.short_of_room = true;
    room_.note_shortage(space, missing[space]);
    // Bytes that were freed at once may be of no use to this request yet, for example if frames of
    // several sizes share chunks.
    for (MemoryLedger* const memory : memories_.in(space)) {
      memory->searching = memory->searching || memory->evicted_at_once;
    }
    const bool searched = room_.searched(space, missing[space]);
    if (searched && space == kHost && press_kept(true)) {
      request.last_look = false;
      return false;
    }
    if (searched && refusals_.nothing_will_change(request)) {
      if (request.last_look) {
        if (room_.drop_from_slots(missing[space].bytes)) {
          return false;
        }
        fail_request(request, refusals_.no_room(&request, space, missing[space].bytes));
        return true;
      }
      // A pin may have fallen between the search and this: search once more, now that there is
      // none.
      request.last_look = true;
      return false;
    }
    request.last_look = false;
    return false;
  }
  return true;
}

// Finds room for a granted request if there was no victim. It takes back room for copies that have
// come since, then the room that the first request of the queue has collected, and prefetched
// extents last. This finds a frame, because granted requests have reserved their room whole.
bool Desk::take_back_for(Need& need) {
  for (Request* const request : active_) {
    for (Need& theirs : request->needs) {
      if (theirs.space == need.space && theirs.has_room() && needs_.ready(theirs)) {
        room_.give_room(theirs);
      }
    }
  }
  if (room_.take_room(need)) {
    return true;
  }
  if (!room_queue_.empty() && room_queue_.front()->collecting) {
    room_queue_.front()->collecting = false;
    let_go(*room_queue_.front());
  }
  room_.make_room(need.space, room_.lack_of(need), Priority::room, true);
  return room_.take_room(need);
}

void Desk::serve_prefetch() {
  while (waiters_.prefetches() != 0 && room_queue_.empty() &&
         engine_.prefetches() < prefetch_limit_) {
    auto [request, index] = waiters_.next_prefetch();
    Need& need = request->needs[index];
    if (memories_.awaited(need.space)) {
      return;
    }
    const bool wanted = directory_.at(need.ref).transfer == 0 && needs_.lacks_copy(need) &&
                        !needs_.nothing_to_read(need);
    if (wanted && engine_.parts().can_begin(need.ref) &&
        !engine_.bounce().has_room(directory_.pages_in(need.ref))) {
      engine_.bounce().wish_more();
      return;  // Touches do not wait for places behind it.
    }
    // Prefetched and unused extents take up to half of the memory. Further prefetches are dropped.
    const bool allowed = room_.unused_prefetched(need.space) + directory_.bytes_of(need.ref) <=
                         memories_.usage(need.space).budget / 2;
    if (wanted && allowed) {
      hold(need);  // Its resident pages must not make room for the others.
      if (need.has_room() && !room_.room_fits(need)) {
        room_.give_room(need);
      }
      if (!room_.take_room(need)) {
        room_.make_room(need.space, room_.lack_of(need), Priority::prefetch);
        (void)room_.take_room(need);
      }
      unhold(need);
      if (!need.has_room() && memories_.freeing(need.space)) {
        room_.note_shortage(need.space, room_.lack_of(need));
        return;  // On its way.
      }
    }
    waiters_.take_prefetch();
    if (wanted && need.has_room()) {
      engine_.start_promote(need, Priority::prefetch);
      if (directory_.at(need.ref).transfer != 0) {
        waiters_.wait_for_transfer(*request, index);
      }
    } else if (!wanted) {
      arm(*request, index);
    }
    maybe_finish(*request);
  }
}

void Desk::serve_budget() {
  if (budget_request_ != nullptr && room_.serve_budget_change()) {
    complete(*std::exchange(budget_request_, nullptr), {});
  }
}

}  // namespace tiermem
