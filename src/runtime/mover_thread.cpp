// Drives the mover: its own thread, and for a moment each thread that answers its own touch.
#include <sched.h>

#include <new>

#include "base/arena.hpp"
#include "base/arena_reserve.hpp"
#include "os/runnable.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {
namespace {

// Threads seldom move to another processor, and finding out costs microseconds.
constexpr std::int64_t kPlacingNs = 10'000'000;
constexpr std::uint64_t kFewTouches = 2;  // Waiting at once.

}  // namespace

void Context::Impl::run_mover() {
  bool awake = false;  // True while it polls: steps without events say nothing about other work.
  while (!stop_.load(std::memory_order_acquire)) {
    if (mover_rests()) {
      still_.stand();  // Without the lock: a child of fork inherits its state.
      continue;
    }
    std::int64_t now = 0;
    const std::int64_t wake = step_mover(awake, now);
    const bool idle = wake > now;
    awake = idle && stays_awake(now);
    if (idle && !awake) {
      port_->wait(wake == Mover::kNever ? -1 : wake);
    }
  }
}

bool Context::Impl::mover_rests() {
  const std::lock_guard lock(mover_mutex_);
  mover_->rest(still_.asked());
  return mover_->rested();
}

// Returns when the mover must step without an event. `now`: the time of the step.
std::int64_t Context::Impl::step_mover(bool awake, std::int64_t& now) {
  const std::lock_guard lock(mover_mutex_);
  const std::uint64_t done = mover_->activity() + faults_.served();
  mover_->note_ordinal(ordinal.load(std::memory_order_relaxed));
  if (serves_faults_) {
    faults_.serve_waiting(64);  // Also at rest, because a worker may wait in a fault.
  }
  now = now_ns();
  if (serves_faults_ && busy_poll_.note_touches(faults_.served(), now)) {
    keep_processors_awake(now);
  }
  mover_->note_memory(!arena_uses_reserve() || arena_fill_reserve());
  const std::int64_t look = std::min(look_after_children(now), end_late_errands(now));
  const std::int64_t next = std::min(mover_->step(now), look);
  if (!awake || mover_->activity() + faults_.served() != done) {
    mover_->note_step(now_ns() - now);
  }
  const std::int64_t wake = std::min(next, tell_observer(now));
  return next > now && !lanes_->pending() ? wake : now;
}

// Answers a touch in its thread, which reads its page itself if it can. The mover's own thread does
// the rest. No signal interrupts this.
bool Context::Impl::answer_touch(const UserfaultEvent& touch) {
  const ArenaScope inside;
  std::optional<ReserveScope> reserve;
  if (!ReserveScope::is_on()) {
    reserve.emplace();
  }
  const auto as_mover = [this](const auto& body) {
    bool waits = false;
    {
      const std::lock_guard lock(mover_mutex_);
      body();
      waits = mover_->needs_step();
    }
    if (waits) {
      port_->wake();
    }
  };
  OwnTouch own;
  bool answered = true;
  as_mover([&] {
    own_touch_ = &own;
    try {
      answered = faults_.answer_own(touch);
    } catch (const std::bad_alloc&) {
      host_space_->wake(touch.address);  // It is touched again.
    }
    own_touch_ = nullptr;
  });
  if (own.job != nullptr) {
    begin_job(*own.job, nullptr);
    (void)run_job(*own.job);  // No copy of opaque memory: it ends.
    as_mover([&] { mover_->end_touch(*own.job, now_ns()); });
  }
  return answered;
}

// Passes a request of faults_ to the mover. The first one of a thread that answers its own touch is
// that of the touch; the others read ahead.
void Context::Impl::post_fault(Request& request) {
  if (own_touch_ == nullptr || own_touch_->posted || !open()) {
    post(request, !serves_faults_);
    return;
  }
  own_touch_->posted = true;
  own_touch_->job = mover_->begin_touch(request, now_ns());
}

bool Context::Impl::stays_awake(std::int64_t now) {
  if (!serves_faults_ || !busy_poll_.stays_awake(now)) {
    return false;
  }
  if (busy_poll_.must_yield(now)) {
    const std::int64_t before = now_ns();
    ::sched_yield();
    busy_poll_.yielded(before, now_ns());
  }
  return true;
}

// The mover's own processor is awake. The newest toucher's processor is the other one that matters.
// If many threads wait, some run and no processor halts. On a crowded machine no processor halts
// either.
void Context::Impl::keep_processors_awake(std::int64_t now) {
  if (now >= next_placing_) {
    next_placing_ = now + kPlacingNs;
    busy_poll_.note_crowd(runnable_now().is_crowded(), now);
    if (const int place = processor_of(faults_.last_thread()); place != ::sched_getcpu()) {
      halt_poll_.move_to(place);
    }
  }
  if (faults_.waiting() <= kFewTouches && busy_poll_.is_quiet(now)) {
    halt_poll_.spin_until(busy_poll_.until());
  }
}

// Returns the time of the next report. A step that only reported has no news.
std::int64_t Context::Impl::tell_observer(std::int64_t now) {
  const Observer observer = observer_.load(std::memory_order_acquire);
  if (observer == nullptr) {
    return Mover::kNever;
  }
  const std::uint64_t moved = mover_->activity();
  if (moved == observed_) {
    return Mover::kNever;
  }
  if (now - observed_ns_ < observe_every_ns_) {
    return observed_ns_ + observe_every_ns_;
  }
  observed_ns_ = now;
  observed_ = moved;
  Stats stats;
  mover_->fill_stats(stats);
  add_own_counts(stats);
  observer(stats);
  return Mover::kNever;
}

void Context::Impl::observe(Observer observer, std::int64_t every_ns) {
  observe_every_ns_ = every_ns;
  observer_.store(observer, std::memory_order_release);
}

}  // namespace tiermem
