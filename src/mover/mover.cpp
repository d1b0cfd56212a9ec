// The step: takes posts and completions, lets the parts decide, and delivers answers.
#include "mover/mover.hpp"

#include <algorithm>
#include <cassert>
#include <memory>

#include "mover/prefetch.hpp"

namespace tiermem {

Mover::Mover(Residency& residency, std::span<AddressSpace* const> spaces,
             std::span<SlotTier* const> slots, SlotTier* files, Workers& workers,
             const MoverOptions& options)
    : residency_(residency),
      directory_(residency),
      slots_(residency.extents.capacity(), slots, files, workers,
             {.endurance_bytes_per_day = options.endurance_bytes_per_day,
              .degraded_ns = options.degraded_ns}),
      journal_(directory_, memories_, options.receipts),
      stock_(residency),
      engine_(residency, memories_, journal_, stock_, slots_, workers, options),
      gather_needs_(directory_, engine_, options.checksums),
      needs_(residency, memories_, engine_, gather_needs_),
      room_(residency, memories_, journal_, stock_, engine_, workers, options.ahead_bytes_max),
      refusals_(residency, memories_, engine_, needs_, room_, options.explain),
      queries_(residency, memories_, journal_, stock_, engine_, room_, refusals_),
      read_ahead_(directory_, options.scan_bytes),
      desk_(residency, memories_, journal_, read_ahead_, engine_, needs_, gather_needs_, room_,
            refusals_, queries_, workers, options.prefetch_limit) {
  if (slots.size() > 1) {
    residency.extents.keep_replicas();
  }
  for (AddressSpace* space : spaces) {
    memories_.add(*space, residency.extents.capacity());
  }
  room_.limit_spares();
  engine_.bounce().attach(memories_.first(kHost), spaces.size() > 1);
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

void Mover::begin_step(std::int64_t now) {
  now_ = now;
  journal_.begin_step(now);
  engine_.begin_step(now);
  room_.begin_step(now);
  refusals_.begin_step(now);
  queries_.begin_step(now);
  desk_.begin_step(now);
}

std::int64_t Mover::step(std::int64_t now) {
  begin_step(now);
  // Relaxed: only whether to count this step; take_posts acquires them.
  room_.note_news(take_completions() || posts_.load(std::memory_order_relaxed) != nullptr);
  engine_.retry_unmaps();
  engine_.retry_areas();
  const bool rests = desk_.rests();
  if (!rests) {
    take_posts();
    desk_.check_deadlines();
    decide();
  } else {
    desk_.unpark_all();  // Other transfers start after the rest, and staged discards would wait.
  }
  engine_.issue_io();
  const bool ended_at_once = take_completions();  // No wake-up comes for these.
  // A request that was looked at before may wait for something that these held.
  const bool ended_with_room = desk_.ended_with_room();
  desk_.deliver();
  room_.end_step(rests ? nullptr : desk_.head(), !rests && desk_.seeks());
  // The function of an answer may have posted a request. No wake-up comes for that either.
  // Relaxed: as above.
  const bool posted = !rests && posts_.load(std::memory_order_relaxed) != nullptr;
  if (ended_at_once || ended_with_room || posted || rested()) {
    return now;
  }
  if (rests) {
    return engine_.next();
  }
  return engine_.left_watched() ? now
                                : std::min({engine_.next(), read_ahead_.next(now), desk_.next(),
                                            room_.next(desk_.waits_for_room())});
}

// Lets requests do what they can do now.
void Mover::decide() {
  engine_.note_rereads();
  room_.restore_bounce();
  room_.end_shortages();
  desk_.serve_losses();
  for (int round = 0; round < 2; ++round) {
    desk_.retry_pin_waiters();
    engine_.serve_recopies();
    engine_.serve_abandoned();
    desk_.serve_arming();
    desk_.serve_budget();
    room_.serve_records();
    desk_.serve_room();
    desk_.serve_prefetch();
    desk_.serve_giving_back();
    room_.serve_climbs();
    room_.serve_destages();
    room_.serve_taken_frames();
    const bool waits = waits_for_pins();
    // Relaxed: only this thread writes it.
    if (residency_.pins_wanted.load(std::memory_order_relaxed) == waits) {
      break;
    }
    residency_.pins_wanted.store(waits, std::memory_order_seq_cst);
    if (!waits) {
      break;
    }
    // A pin may have been released before the flag was set: look once more.
    if (residency_.any_biased.load(std::memory_order_relaxed)) {
      heavy_fence();  // The same for slots. Extents that are biased later end that by another one.
    }
  }
  room_.settle();
}

bool Mover::waits_for_pins() const {
  return desk_.waits_for_room() || room_.budget_changes() || engine_.waits_for_pins() ||
         std::any_of(memories_.begin(), memories_.end(),
                     [](const MemoryLedger& memory) { return !memory.remains.empty(); });
}

// Requests that wait are older, and each decision about room is theirs.
Job* Mover::begin_touch(Request& request, std::int64_t now) {
  begin_step(now);
  if (desk_.rests() || desk_.waits_for_step()) {
    (void)post(&request);
    return nullptr;
  }
  room_.note_news(true);
  engine_.offer_to_toucher();
  desk_.admit(request);
  desk_.serve_room();
  Job* const job = engine_.end_offer();
  desk_.deliver();
  return job;
}

void Mover::end_touch(Job& job, std::int64_t now) {
  begin_step(now);
  engine_.done_by_toucher(job);
  while (engine_.run_drops()) {
  }
  (void)desk_.serve_ended();
  desk_.deliver();
}

bool Mover::needs_step() const {
  // Relaxed: a post wakes the mover by itself.
  return posts_.load(std::memory_order_relaxed) != nullptr || desk_.waits_for_step() ||
         engine_.waits_for_step() || engine_.left_watched() || rested() ||
         read_ahead_.next(now_) <= now_;
}

void Mover::child_of_parent() {
  slots_.child_of_parent();
  take_posts();
  desk_.end_before_fork();
  desk_.deliver();
  leave_unmapped();
  engine_.bounce().lose_areas();
}

// The child inherits no frame of a buffer that is not mapped, at home or in a window.
void Mover::leave_unmapped() {
  const auto follows = [&](std::uint32_t index) {
    return (residency_.buffers.at(index).flags.load(std::memory_order_relaxed) & kMapped) != 0;
  };
  const Journal::ReasonScope leaving(journal_, Reason::given_up);
  for (std::uint32_t index = residency_.spares.take_oldest(); index != Spares::kNone;
       index = residency_.spares.take_oldest()) {
    lose_frames(index);
    stock_.give_up(index);
  }
  for (std::uint32_t index = 0; index < residency_.buffers.used(); ++index) {
    const Handle handle = residency_.buffers.handle_of(index);
    if ((Buffers::generation_of(handle) & 1) != 0 && !follows(index)) {
      residency_.buffers.leave_to_parent(handle);
      lose_frames(index);
      stock_.give_up(index);
    }
  }
  for (const Request* const request : desk_.active()) {
    if (request->kind == RequestKind::free && !follows(request->index)) {
      lose_frames(request->index);  // It waited for views.
    }
  }
  residency_.views.leave_to_parent(
      [&](Handle handle) { return !follows(Buffers::index_of(handle)); });
}

// No worker takes a frame out of a window that does not exist, so all frames leave at once.
void Mover::lose_frames(std::uint32_t index) {
  const BufferRecord& record = residency_.buffers.at(index);
  const ExtentRef first = record.first.load(std::memory_order_relaxed);
  const std::uint32_t extents = record.extents.load(std::memory_order_relaxed);
  directory_.each_begun(first, first + extents, [&](ExtentRef ref) {
    ExtentWord& word = directory_.word(kHost, ref);
    word.drop_pins(directory_.claimed(ref, kHost));
    if (directory_.has_frame(ref, kHost)) {
      word.set_at_home();
      (void)engine_.leave(ref, kHost, true);
    }
  });
}

void Mover::test_begin_near_wrap(std::uint32_t left) {
  engine_.test_begin_near_wrap(left);
  for (MemoryLedger& memory : memories_) {
    memory.recency.test_begin_at(0 - left);
  }
}

void Mover::child_ended(std::uint32_t child) {
  slots_.child_ended(child);
  for (SlotTiers::Entry* const slots : slots_.writable()) {
    engine_.copies().room_in_slots(*slots);
  }
}

void Mover::take_posts() {
  admit_read_ahead();
  admit_freed();
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
    desk_.admit(request);
  }
}

void Mover::admit_read_ahead() {
  for (const ReadAhead::Range& range : read_ahead_.take()) {
    auto request = prefetch_of(residency_, range.buffer, range.first, range.count);
    if (request != nullptr) {
      desk_.admit(*request.release());
    }
  }
}

// Frees of spare buffers that were given up, and frees that were refused for want of memory.
void Mover::admit_freed() {
  residency_.buffers.take_abandoned([&](std::uint32_t index) { stock_.give_up(index); });
  for (const std::uint32_t index : stock_.take_given_up()) {
    auto request = std::make_unique<Request>();
    request->kind = RequestKind::free;
    request->index = index;
    request->on_done = [](Request& done) { delete &done; };
    desk_.admit(*request.release());
  }
}

// Takes what has completed, and what has ended since the last call. Returns whether there was any.
bool Mover::take_completions() {
  const bool any = engine_.take_completions();
  return desk_.serve_ended() || any;
}

void Mover::abandon() {
  desk_.abandon();
  for (std::uint32_t index = 0; index < residency_.buffers.used(); ++index) {
    BufferRecord& record = residency_.buffers.at(index);
    const std::uint32_t extents = record.extents.load(std::memory_order_relaxed);
    const ExtentRef first = record.first.load(std::memory_order_relaxed);
    directory_.each_begun(first, first + extents, [&](ExtentRef ref) {
      if (directory_.has_replica(ref)) {
        (void)directory_.drop_replica(ref);
      }
      directory_.drop_copy(ref);
    });
  }
  engine_.abandon();
}

}  // namespace tiermem
