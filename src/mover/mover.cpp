// The step: takes posts and completions, lets the parts decide, and delivers answers.
#include "mover/mover.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "mover/prefetch.hpp"

namespace tiermem {

Mover::Mover(Residency& residency, std::span<AddressableTier* const> tiers, SlotTier* block,
             SlotTier* files, Hands& hands, const MoverOptions& options)
    : residency_(residency),
      directory_(residency),
      hands_(hands),
      options_(options),
      block_(block),
      files_(files),
      journal_(directory_, files, options.receipts),
      stock_(residency),
      engine_(residency, memories_, journal_, stock_, block, files, hands, options),
      gather_needs_(directory_, engine_, options.checksums),
      needs_(residency, memories_, engine_, gather_needs_),
      room_(residency, memories_, journal_, stock_, engine_, needs_, hands,
            options.ahead_bytes_max),
      read_ahead_(directory_, options.scan_bytes) {
  for (AddressableTier* tier : tiers) {
    Memory& memory = memories_.emplace_back();
    memory.tier = tier;
    memory.space = static_cast<unsigned>(memories_.size() - 1);
    memory.recency.set_most(residency.extents.capacity());
  }
  room_.limit_spares();
  engine_.bounce().attach(memories_[kHost], tiers.size() > 1);
}

Mover::~Mover() {
  abandon();
}

bool Mover::post(Request* request) {
  Request* head = posts_.load(std::memory_order_relaxed);
  do {
    request->next = head;
    // Release: the mover sees the request's fields. The first post since the last look wakes the
    // mover.
  } while (!posts_.compare_exchange_weak(head, request, std::memory_order_release,
                                         std::memory_order_relaxed));
  return head == nullptr;
}

std::int64_t Mover::step(std::int64_t now) {
  now_ = now;
  journal_.begin_step(now);
  engine_.begin_step(now);
  room_.begin_step(now);
  work_ = 0;
  look_again_ = false;
  seeks_ = false;
  // Relaxed: only whether to count this step; take_posts acquires them.
  const bool news = take_completions() || posts_.load(std::memory_order_relaxed) != nullptr;
  room_.note_news(news);
  engine_.retry_unmaps();
  if (!resting_) {
    take_posts();
    check_deadlines();
    decide();
  } else if (parking_ != nullptr) {
    unpark(*parking_);  // Its other transfers start after the rest, and staged discards would wait.
  }
  engine_.issue_io();
  const bool ended_at_once = take_completions();  // No wake-up comes for these.
  // A request that was looked at before may wait for something that these held.
  const bool let_go = !completed_.empty() && !(room_queue_.empty() && pin_waiters_.empty());
  deliver();
  room_.end_step(resting_ || room_queue_.empty() ? nullptr : room_queue_.front(),
                 !resting_ && seeks_);
  if (ended_at_once || let_go || rested()) {
    return now;
  }
  look_again_ = look_again_ || engine_.left_watched();
  return resting_ ? engine_.next()
                  : std::min({engine_.next(), read_ahead_.next(now), next_of_requests(),
                              room_.next(!room_queue_.empty() || !pin_waiters_.empty())});
}

// Requests that wait for transfers go on by their ends.
std::int64_t Mover::next_of_requests() const {
  return !arming_.empty() || parking_waits() || look_again_ ? now_ : next_deadline_;
}

// Lets requests do what they can do now.
void Mover::decide() {
  engine_.note_rereads();
  room_.restore_bounce();
  room_.end_shortages();
  serve_losses();
  for (int round = 0; round < 2; ++round) {
    retry_pin_waiters();
    engine_.serve_recopies();
    engine_.serve_abandoned();
    while ((!arming_.empty() || arm_next_to_park()) && work_ < 4096) {
      Request& request = *arming_.back();
      arming_.pop_back();
      arm_more(request);
    }
    serve_budget();
    room_.serve_records();
    serve_room();
    serve_prefetch();
    serve_giving_back();
    room_.serve_taken_frames();
    const bool waits_for_pins =
        !pin_waiters_.empty() || !room_queue_.empty() || budget_request_ != nullptr ||
        engine_.retries() ||
        std::any_of(memories_.begin(), memories_.end(),
                    [](const Memory& memory) { return !memory.remains.empty(); });
    // Relaxed: only this thread writes it.
    if (residency_.pins_wanted.load(std::memory_order_relaxed) == waits_for_pins) {
      break;
    }
    residency_.pins_wanted.store(waits_for_pins, std::memory_order_seq_cst);
    if (!waits_for_pins) {
      break;
    }
    // A pin may have been released before the flag was set: look once more.
  }
  room_.settle();
}

void Mover::child_of_parent() {
  engine_.block_slots().child_of_parent();
  take_posts();
  fail_each([](const Request& request) -> std::optional<Status> {
    // If a thread of the child touches that page, it will ask again.
    return request.want == Want::acquire && request.views == nullptr
               ? Status()
               : fail(Code::shut_down, "asked before fork, and answered in the parent only");
  });
  deliver();
  engine_.bounce().lose_areas();
}

void Mover::test_begin_near_wrap(std::uint32_t left) {
  engine_.test_begin_near_wrap(left);
  for (Memory& memory : memories_) {
    memory.recency.test_begin_at(0 - left);
  }
}

void Mover::child_ended(std::uint32_t child) {
  engine_.block_slots().child_ended(child);
  engine_.room_in_slots();
}

void Mover::take_posts() {
  admit_read_ahead();
  residency_.buffers.take_abandoned([&](std::uint32_t index) { stock_.give_up(index); });
  for (const std::uint32_t index : stock_.take_given_up()) {
    auto request = std::make_unique<Request>();
    request->want = Want::free;
    request->index = index;
    request->on_done = [](Request& done) { delete &done; };
    admit(*request.release());
  }
  // Acquire: pairs with post(). The list is newest first; requests are served in the order they
  // came.
  Request* newest = posts_.exchange(nullptr, std::memory_order_acquire);
  Request* oldest = nullptr;
  while (newest != nullptr) {
    Request* next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    Request& request = *oldest;
    oldest = request.next;
    admit(request);
  }
}

void Mover::admit_read_ahead() {
  for (const ReadAhead::Range& range : read_ahead_.take()) {
    auto request = prefetch_of(residency_, range.buffer, range.first, range.count);
    if (request != nullptr) {
      admit(*request.release());
    }
  }
}

// Takes what has completed, and what has ended since the last call. Returns whether there was any.
bool Mover::take_completions() {
  const bool any = engine_.take_completions();
  return serve_ended() || any;
}

void Mover::check_deadlines() {
  // Acquire: pairs with note_cancel, before which `cancel` was set.
  const bool cancels = cancels_.exchange(false, std::memory_order_acquire);
  if (!cancels && now_ < next_deadline_) {
    return;
  }
  fail_each([&](Request& request) -> std::optional<Status> {
    if (request.cancel.load(std::memory_order_relaxed) ||
        (request.cancel_with != nullptr && request.cancel_with->load(std::memory_order_relaxed))) {
      return fail(Code::cancelled, "cancelled by its owner");
    }
    if (now_ >= request.deadline_ns) {
      return late(request);
    }
    return {};
  });
  next_deadline_ = kNever;
  for (const Request* request : active_) {
    next_deadline_ = std::min(next_deadline_, request->deadline_ns);
  }
}

void Mover::complete(Request& request, Status status) {
  request.status = std::move(status);
  request.state = Request::State::done;
  journal_.note_activity();
  active_[request.at] = active_.back();
  active_[request.at]->at = request.at;
  active_.pop_back();
  engine_.note_requests(active_.size());
  completed_.push_back(&request);
}

void Mover::deliver() {
  if (engine_.live() == 0 && engine_.housekeeping() == 0) {
    for (std::size_t i = 0; i < active_.size();) {
      if (active_[i]->want == Want::drain) {
        complete(*active_[i], {});
      } else {
        ++i;
      }
    }
  }
  // on_done may post again, but never steps: the list cannot grow under us.
  for (Request* request : completed_) {
    request->on_done(*request);
  }
  completed_.clear();
}

void Mover::abandon() {
  // Frees of buffers with views that were never released. All other requests ended with the drain.
  for (Request* request : active_) {
    if (request->want == Want::free) {
      request->on_done(*request);
    }
  }
  active_.clear();
  for (std::uint32_t index = 0; index < residency_.buffers.used(); ++index) {
    BufferRecord& record = residency_.buffers.at(index);
    const std::uint32_t extents = record.extents.load(std::memory_order_relaxed);
    const ExtentRef first = record.first.load(std::memory_order_relaxed);
    directory_.each_begun(first, first + extents, [&](ExtentRef ref) {
      Extent& extent = directory_.at(ref);
      Checksums::destroy(extent.sums);
      extent.sums = nullptr;
      SlotPages::destroy(extent.slot_pages);
      extent.slot_pages = nullptr;
    });
  }
  engine_.abandon();
}

// Returns the host's space for a place that is not a device.
unsigned Mover::space_of(Place place) const {
  for (unsigned space = kHost + 1; space < memories_.size(); ++space) {
    if (memories_[space].tier->place() == place) {
      return space;
    }
  }
  return kHost;
}

}  // namespace tiermem
