// The engine between the families of transfers: it gives them their events, and does what follows.
#include "mover/transfer_engine.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tiermem {

TransferEngine::TransferEngine(Residency& residency, Memories& memories, Journal& journal,
                               Stock& stock, SlotTiers& slots, Workers& workers,
                               const MoverOptions& options)
    : directory_(residency),
      workers_(workers),
      memories_(memories),
      journal_(journal),
      options_(options),
      bounce_(workers, {.area_bytes = options.bounce_area_bytes,
                        .budget_per_area = options.budget_per_bounce_area,
                        .staging_bytes = options.staging_bytes,
                        .staging_frame_bytes = options.staging_frame_bytes}),
      slots_(slots),
      copies_(residency, memories, journal, bounce_, slots, stuck_),
      carrier_(residency, memories, journal, bounce_, slots, copies_, workers, options_),
      parts_(directory_, memories, journal, carrier_, copies_, bounce_, slots, options_),
      promoter_(residency, memories, journal, stock, carrier_, copies_, parts_, bounce_, slots,
                options_),
      demoter_(residency, memories, journal, carrier_, copies_, parts_, stuck_, bounce_, slots,
               options_),
      relocator_(residency, memories, carrier_, stuck_),
      destager_(residency, memories, journal, carrier_, copies_, slots, options_),
      gatherer_(residency, journal, carrier_, parts_, slots, options.checksums) {}

void TransferEngine::begin_step(std::int64_t now) {
  carrier_.begin_step(now);
  copies_.begin_step(now);
  left_watched_ = false;
}

void TransferEngine::start_promote(ExtentRef ref, unsigned space, FrameId frame, Priority priority,
                                   Request* discards_for, bool shows) {
  parts_.prepare_for(ref);
  promoter_.start(ref, space, frame, priority, discards_for, shows);
  follow();
}

void TransferEngine::start_promote(Need& need, Priority priority) {
  FrameId frame = std::exchange(need.frame, {});
  if (need.charged) {
    frame = directory_.frame(need.space, need.ref);
    need.charged = false;
    directory_.at(need.ref).charged = false;
  }
  need.planned = false;
  directory_.at(need.ref).writes = need.changes;
  if (need.part == 0) {
    start_promote(need.ref, need.space, frame, priority, nullptr, need.shown);
    return;
  }
  parts_.prepare_for(need.ref);
  parts_.start(need.ref, need.space, frame, priority, need.part);
}

// The frame is there already; on a device perhaps in use.
void TransferEngine::start_show(const Need& need) {
  Show& transfer = carrier_.create<Show>(need.ref, need.space, Priority::demand);
  transfer.frame = directory_.frame(need.space, need.ref);
  advance(transfer, Stage::show);
  carrier_.submit(transfer, kShow);
}

void TransferEngine::shown(Show& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  Status status = transfer.job.status.clone();
  carrier_.end(transfer);
  if (space == kHost && status.ok()) {
    promoter_.to_window(ref);
  }
  carrier_.extent_changed(ref, space, std::move(status));
}

void TransferEngine::publish_parked(const Request& request, ExtentRef ref) {
  promoter_.publish_parked(request, ref);
  follow();
}

void TransferEngine::unpark(const Request& request, ExtentRef ref) {
  promoter_.unpark(request, ref);
  follow();
}

bool TransferEngine::take_completions() {
  bool any = gatherer_.any_deserted();
  gatherer_.end_deserted();
  any = run_drops() || any;
  std::uint64_t done = 0;
  while (Job* const job = carrier_.run_own_job(done)) {
    job_done(*job);
    any = true;
  }
  std::array<Done, 64> jobs;
  for (std::size_t n = workers_.reap(jobs); n > 0; n = workers_.reap(jobs)) {
    any = true;
    for (std::size_t i = 0; i < n; ++i) {
      Job& job = *jobs[i].job;
      jobs[i].begun != 0 ? promoter_.copy_begun(carrier_.at<Promote>(job.transfer), jobs[i].begun)
                         : job_done(job);
    }
  }
  std::array<SlotCompletion, 64> completions;
  for (const SlotTiers::Entry& slots : slots_) {
    for (std::size_t n = slots.tier->reap(completions); n > 0; n = slots.tier->reap(completions)) {
      any = true;
      for (std::size_t i = 0; i < n; ++i) {
        io_done(completions[i]);
      }
    }
  }
  return any;
}

// Frames that were not written leave without being moved, hashed or written. Many leave in one
// call, because each call flushes the pages from all processors.
bool TransferEngine::run_drops() {
  std::array<std::uint32_t, 64> numbers;
  std::array<AddressSpace::Unchanged, numbers.size()> frames;
  const std::size_t taken = carrier_.take_drops(numbers);
  const auto is_recalled = [&](std::uint32_t number) {
    const auto* const demote = if_is<Demote>(&carrier_.at(number));
    return demote != nullptr && demote->recalled;
  };
  std::size_t n = 0;
  for (std::size_t i = 0; i < taken; ++i) {
    if (!is_recalled(numbers[i])) {
      const Transfer& transfer = carrier_.at(numbers[i]);
      frames[n++] = {transfer.frame, directory_.window_at(transfer.ref, transfer.space),
                     carrier_.others_stay(transfer) ? transfer.pages : 0};
    }
  }
  if (n != 0) {
    memories_.space(kHost).drop_unchanged(std::span(frames.data(), n));
  }
  n = 0;
  for (std::size_t i = 0; i < taken; ++i) {
    const bool dropped = !is_recalled(numbers[i]) && frames[n++].dropped;
    Transfer& transfer = carrier_.at(numbers[i]);
    transfer.demotes() ? demoter_.drop_ended(as<Demote>(transfer), dropped)
                       : drop_ended(as<Evict>(transfer), dropped);
  }
  return taken != 0;
}

void TransferEngine::job_done(Job& job) {
  if (job.transfer == ~std::uint32_t{0}) {
    housekeeping_done(job);
    return;
  }
  Transfer& transfer = carrier_.at(job.transfer);
  if ((job.steps & (kFetch | kStore)) != 0) {
    transfer.demotes() ? demoter_.went_direct(as<Demote>(transfer))
                       : promoter_.went_direct(as<Promote>(transfer));
    follow();
    return;
  }
  journal_.note_copies(transfer);
  switch (transfer.kind) {
    case TransferKind::promote:
      promoter_.job_done(as<Promote>(transfer));
      break;
    case TransferKind::promote_parts:
      parts_.job_done(as<PromoteParts>(transfer));
      break;
    case TransferKind::demote:
    case TransferKind::demote_parts:
      demoter_.job_done(as<Demote>(transfer));
      break;
    case TransferKind::evict:
      evicted(as<Evict>(transfer));
      break;
    case TransferKind::empty:
      parts_.emptied(as<Empty>(transfer));
      break;
    case TransferKind::show:
      shown(as<Show>(transfer));
      break;
    case TransferKind::relocate:
      relocator_.job_done(as<Relocate>(transfer));
      break;
    case TransferKind::destage:
      destager_.job_done(as<Destage>(transfer));
      break;
    case TransferKind::gather:  // Has no jobs.
    case TransferKind::idle:
      break;
  }
  follow();
}

// Jobs that belong to no transfer.
void TransferEngine::housekeeping_done(const Job& job) {
  if (bounce_.job_done(job, carrier_.now())) {
    return;
  }
  for (SlotTiers::Entry* const slots : slots_.writable()) {
    if (!slots->ledger.job_done(job)) {
      continue;
    }
    const Status status = job.status.clone();
    for (const std::uint32_t at : slots->ledger.take_grown()) {
      if (auto* const destage = if_is<Destage>(&carrier_.at(at))) {
        status.ok() ? destager_.find_slot(*destage) : destager_.not_grown(*destage);
        continue;
      }
      Demote& transfer = carrier_.at<Demote>(at);
      status.ok() ? demoter_.find_slot(transfer) : demoter_.not_grown(transfer, status.clone());
    }
    return;
  }
  for (MemoryLedger& memory : memories_) {
    (void)memory.job_done(job);
  }
}

void TransferEngine::io_done(const SlotCompletion& reported) {
  SlotCompletion completion = reported;
  if (reported.cookie >> 32 != 0) {
    if (carrier_.at(static_cast<std::uint32_t>(reported.cookie)).kind == TransferKind::gather) {
      gatherer_.read_done(reported);
      return;
    }
    if (!demoter_.run_ended(reported, completion)) {
      return;
    }
  }
  Transfer& transfer = carrier_.at(static_cast<std::uint32_t>(completion.cookie));
  carrier_.io_ended(transfer, completion);
  if (transfer.demotes()) {
    demoter_.io_done(as<Demote>(transfer), completion);
  } else if (transfer.kind == TransferKind::promote_parts) {
    parts_.io_done(as<PromoteParts>(transfer), completion);
  } else if (transfer.kind == TransferKind::destage) {
    destager_.io_done(as<Destage>(transfer), completion);
  } else {
    promoter_.io_done(as<Promote>(transfer), completion);
  }
  follow();
}

void TransferEngine::issue_io() {
  std::uint64_t step = 0;
  for (SlotTiers::Entry& slots : slots_) {
    const std::span<const Channel::Issue> issued = slots.channel.issue(step);
    for (const Channel::Issue& each : issued) {
      issue(each);
    }
    if (!issued.empty()) {
      slots.tier->dispatch();
    }
  }
}

void TransferEngine::issue(const Channel::Issue& issue) {
  Transfer& transfer = carrier_.at(issue.transfer);
  if (issue.read != 0) {
    gatherer_.send_read(as<Gather>(transfer), issue.read - 1);
  } else if (transfer.demotes()) {
    demoter_.send(as<Demote>(transfer), issue.depth);
  } else {
    carrier_.send(transfer, issue.depth);
  }
}

void TransferEngine::done_by_toucher(Job& job) {
  parts_.done_by_toucher(carrier_.at<PromoteParts>(job.transfer));
  follow();
}

bool TransferEngine::waits_for_step() const {
  return next() <= carrier_.now() ||
         std::any_of(slots_.begin(), slots_.end(),
                     [](const SlotTiers::Entry& slots) { return slots.channel.any_queued(); });
}

// One by one: a transfer that goes on may give its place back at once.
bool TransferEngine::grant_places() {
  bool any = false;
  while (const auto grant = bounce_.grant()) {
    any = true;
    Transfer& transfer = carrier_.at(grant->transfer);
    carrier_.set_bounce(transfer, grant->place);
    transfer.demotes() ? demoter_.read_missing(as<DemoteParts>(transfer))
                       : parts_.read(as<PromoteParts>(transfer));
  }
  while (const auto grant = bounce_.grant_staging()) {
    any = true;
    Transfer& transfer = carrier_.at(grant->transfer);
    transfer.staging = grant->place;
    transfer.demotes() ? demoter_.seal(as<Demote>(transfer))
                       : promoter_.go_on(as<Promote>(transfer));
    follow();
  }
  return any;
}

// Does what follows on the ends of transfers.
void TransferEngine::follow() {
  for (const Carrier::Next& next : carrier_.take_next()) {
    switch (next.what) {
      case Carrier::Next::What::evict:
        evict_written(next);
        break;
      case Carrier::Next::What::leave_source:
        spilled(next);
        break;
      case Carrier::Next::What::give_up_spare:
        (void)leave(next.ref, kHost, true);
        break;
    }
  }
}

// Transfers go on by completions. All else that they wait for is here.
std::int64_t TransferEngine::next() const {
  const std::int64_t now = carrier_.now();
  const bool works = std::any_of(slots_.begin(), slots_.end(), [](const SlotTiers::Entry& slots) {
    return slots.tier->pending();
  });
  return works || gatherer_.any_deserted() ? now : std::min(carrier_.next(now), bounce_.next(now));
}

std::int64_t TransferEngine::next_for_room() const {
  return std::min(slots_.next(carrier_.now()), stuck_.next(carrier_.now()));
}

void TransferEngine::unwatch(ExtentRef ref) {
  const auto at = std::find(watched_.begin(), watched_.end(), ref);
  if (at != watched_.end()) {
    watched_.erase(at);
  }
}

unsigned TransferEngine::housekeeping() const {
  const auto trims = std::count_if(memories_.begin(), memories_.end(),
                                   [](const MemoryLedger& memory) { return memory.trimming; });
  return static_cast<unsigned>(trims) + bounce_.jobs() + slots_.jobs();
}

bool TransferEngine::retries_stuck(const Request& asking) const {
  const std::int64_t now = carrier_.now();
  return stuck_.retries(asking.admitted_ns, slots_.paused(now), now);
}

void TransferEngine::test_begin_near_wrap(std::uint32_t left) {
  slots_.test_begin_near_wrap(left);
  parts_.size().test_begin_at(0 - left);
}

Vector<std::uint64_t> TransferEngine::freeing() const {
  Vector<std::uint64_t> bytes(memories_.count());
  each_transfer([&](const Transfer& transfer) { bytes[transfer.frees_in] += transfer.freeing; });
  return bytes;
}

std::string TransferEngine::check() const {
  for (const std::string& wrong : {carrier_.check(), slots_.check()}) {
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return {};
}

}  // namespace tiermem
