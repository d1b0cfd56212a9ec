// Promotes of whole extents. Each function is one step of the transfer's life; the stage says which
// comes next.
#include "mover/promoter.hpp"

#include <cassert>
#include <utility>

namespace tiermem {

Promoter::Promoter(Residency& residency, Memories& memories, Journal& journal, Stock& stock,
                   Carrier& carrier, Copies& copies, const Parts& parts, Bounce& bounce,
                   SlotTiers& slots, const MoverOptions& options)
    : residency_(residency),
      directory_(residency),
      memories_(memories),
      journal_(journal),
      stock_(stock),
      carrier_(carrier),
      copies_(copies),
      parts_(parts),
      bounce_(bounce),
      slots_(slots),
      options_(options) {}

void Promoter::start(ExtentRef ref, unsigned space, FrameId frame, Priority priority,
                     Request* discards_for, bool shows) {
  Promote& transfer = carrier_.create<Promote>(ref, space, priority);
  ExtentWord& word = directory_.word(space, ref);
  transfer.origin = word.load().phase();
  transfer.frame = frame;
  transfer.parked_for = discards_for;
  transfer.discard = discards_for != nullptr;
  transfer.stock = priority == Priority::background;
  transfer.shows = shows;
  transfer.at_home = priority == Priority::room && has_home(ref, frame);
  word.set_phase(Phase::incoming);
  assert(space == kHost || directory_.word(kHost, ref).load().known_elsewhere());
  const Source source = choose_source(transfer);
  transfer.source = source.from == Source::From::memory ? source.space : kNoSpace;
  transfer.reading = source.from == Source::From::slot;
  transfer.clear = source.clears;
  if (transfer.reading) {
    const SlotCopy copy = directory_.slot_copy(ref);
    transfer.slot_tier = &slots_.of(copy);
    transfer.slot = copy.slot;
    if (carrier_.slot_pages_of(transfer) != nullptr) {
      carrier_.set_range(transfer, 0, directory_.bytes_of(ref));
    }
  }
  advance(transfer, Stage::staging);
  go_on(transfer);
}

void Promoter::note_spill(ExtentRef ref) {
  Promote& transfer = as<Promote>(*carrier_.transfer_of(ref));
  transfer.spills = true;
  carrier_.set_freeing(transfer, memory_of_source(transfer), directory_.bytes_of(ref));
}

void Promoter::go_on(Promote& transfer) {
  Memory& tier = *carrier_.memory_of(transfer).tier;
  if (transfer.stage == Stage::staging) {
    transfer.way = choose_way(transfer);
    if (transfer.way == Route::Way::staging && !carrier_.take_staging(transfer)) {
      return;  // In the queue for it.
    }
    advance(transfer, Stage::prepare);
  }
  if (transfer.stage == Stage::prepare) {
    transfer.job.data = tier.space().host_addressable()
                            ? tier.space().bytes_at(transfer.frame, window_of(transfer))
                        : transfer.staging ? bounce_.data(transfer.staging)
                                           : nullptr;
    const JobStep steps = Route::prepare({.lacks_pages = tier.needs_populate(transfer.frame),
                                          .clears = transfer.clear,
                                          .shows = transfer.shows});
    advance(transfer, transfer.reading ? Stage::read : Stage::land);
    if (steps != 0) {
      carrier_.submit(transfer, steps);
      return;
    }
  }
  if (transfer.stage == Stage::read) {
    carrier_.queue_io(transfer);
    return;
  }
  land(transfer);
}

// The bytes are where they landed, or come from another space: check, copy, make them appear.
void Promoter::land(Promote& transfer) {
  Memory& tier = *carrier_.memory_of(transfer).tier;
  Route::Arrival arrival{.from = source_end(transfer),
                         .to = carrier_.end_at(transfer.space),
                         .way = transfer.way,
                         .in_window = window_of(transfer) != nullptr,
                         .touchable = directory_.touchable(transfer.ref)};
  if (transfer.reading) {
    arrival.spreads = carrier_.spreads(transfer) != 0;
    arrival.sums = sums_to_check(transfer);
  } else if (transfer.source != kNoSpace) {
    if (!carrier_.start_copy(transfer, transfer.source)) {
      await_writers(transfer);
      return;
    }
    if (tier.space().host_addressable() && transfer.mapped) {
      transfer.job.data =
          directory_.window_at(transfer.ref, transfer.space);  // Copied again, into the window.
    }
    if (transfer.source != kHost) {
      transfer.job.other_tier = memory_of_source(transfer).tier;
      transfer.job.other = directory_.frame(transfer.source, transfer.ref);
    } else {
      transfer.job.data = directory_.address(transfer.ref).load(std::memory_order_relaxed);
      arrival.takes_home = takes_source_home(transfer);
    }
  }
  arrival.is_mapped = transfer.mapped;
  transfer.job.host = transfer.staging                  ? bounce_.frame(transfer.staging)
                      : tier.space().host_addressable() ? transfer.frame
                      : transfer.source != kNoSpace     ? directory_.frame(kHost, transfer.ref)
                                                        : FrameId{};
  if (transfer.stage != Stage::land) {
    advance(transfer, Stage::land);
  }
  const JobStep steps = Route::arrive(arrival);
  if (steps == 0) {
    landed(transfer);
    return;
  }
  carrier_.submit(transfer, steps);
}

// The job gets the checksums that it compares or records.
Route::Sums Promoter::sums_to_check(Promote& transfer) {
  if (!options_.checksums) {
    return Route::Sums::none;
  }
  if (Checksums* const sums = directory_.at(transfer.ref).copy().sums) {
    transfer.job.sums = sums;
    return sums->seen() ? Route::Sums::all : Route::Sums::some;  // Some of a file were read.
  }
  if (!transfer.slot_tier->has_files()) {
    return Route::Sums::none;
  }
  // First read of an adopted file: what is seen now is what must be seen later.
  transfer.sums.reset(
      Checksums::make(directory_.bytes_of(transfer.ref), parts_.checksum_block(transfer.ref)));
  transfer.job.sums = transfer.sums.get();
  return transfer.sums != nullptr ? Route::Sums::record : Route::Sums::none;
}

void Promoter::landed(Promote& transfer) {
  if (transfer.source != kNoSpace && !transfer.mapped) {
    if (!directory_.word(transfer.source, transfer.ref).load().unwritten()) {
      await_writers(transfer);  // Written under the copy.
      return;
    }
    if (window_of(transfer) != nullptr) {
      transfer.mapped = true;
      carrier_.submit(transfer, kMap);
      return;
    }
  }
  transfer.mapped = window_of(transfer) != nullptr;
  if (!transfer.discard) {
    publish(transfer);
    return;
  }
  advance(transfer, Stage::parked);
  if (transfer.parked_for == nullptr) {
    undo(transfer, nullptr);  // The request that wanted to overwrite it has ended.
    return;
  }
  carrier_.extent_changed(transfer.ref, transfer.space);
}

void Promoter::job_done(Promote& transfer) {
  const Job& job = transfer.job;
  if (transfer.stage == Stage::unmap) {
    if (carrier_.unmapped(transfer)) {
      undone(transfer, Status(transfer.undo_error));
    }
    return;
  }
  source_taken_home(transfer);
  if (job.checksum_bad) {
    Status why;
    if (!carrier_.reads_again(transfer, why)) {
      const bool kept = transfer.slot_tier->has_files() || transfer.space != kHost;
      transfer.origin = kept ? transfer.origin : Phase::lost;
      failed(transfer, std::move(why));
    }
    return;
  }
  if (!job.status.ok()) {
    // A copy that is made again fails in the window: the frame is there.
    transfer.mapped = transfer.mapped && (job.steps & kMap) == 0;
    failed(transfer, job.status.clone());
    return;
  }
  if (transfer.stage == Stage::land && (job.steps & kPrepare) == 0) {
    landed(transfer);
  } else {
    go_on(transfer);
  }
}

void Promoter::io_done(Promote& transfer, const SlotCompletion& completion) {
  Status why;
  if (completion.code == Code::ok) {
    land(transfer);
  } else if (!carrier_.reads_again(transfer, completion, why)) {
    failed(transfer, std::move(why));
  }
}

void Promoter::went_direct(Promote& transfer) {
  if (carrier_.direct_ended(transfer)) {
    advance(transfer, Stage::land);
    landed(transfer);
  } else {
    advance(transfer, Stage::staging);
    go_on(transfer);
  }
}

const Promote* Promoter::parked_for(const Request& request, ExtentRef ref) const {
  const auto* const promote = if_is<Promote>(std::as_const(carrier_).transfer_of(ref));
  return promote != nullptr && promote->parked_for == &request ? promote : nullptr;
}

// Where views find the bytes. To be published by the phase.
void Promoter::give_place(const Promote& transfer) {
  directory_.frame(transfer.space, transfer.ref) = transfer.frame;
  if (transfer.space == kHost) {
    std::byte* const at = window_of(transfer);
    directory_.address(transfer.ref)
        .store(at != nullptr ? at : memories_.space(kHost).bytes_at(transfer.frame, nullptr),
               std::memory_order_relaxed);
    if (transfer.at_home) {
      directory_.word(kHost, transfer.ref).set_at_home();
    }
  }
}

void Promoter::publish_parked(const Request& request, ExtentRef ref) {
  if (parked_for(request, ref) != nullptr) {
    publish(as<Promote>(*carrier_.transfer_of(ref)));
  }
}

void Promoter::unpark(const Request& request, ExtentRef ref) {
  if (parked_for(request, ref) == nullptr) {
    return;
  }
  Promote& transfer = as<Promote>(*carrier_.transfer_of(ref));
  transfer.parked_for = nullptr;
  if (transfer.stage == Stage::parked) {
    undo(transfer, nullptr);
  }
}

void Promoter::give_place(const Request& request, ExtentRef ref) {
  if (const Promote* const parked = parked_for(request, ref)) {
    give_place(*parked);
  }
}

void Promoter::publish(Promote& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  ExtentWord& word = directory_.word(space, ref);
  Phase phase = transfer.stock ? Phase::vacant : Phase::exclusive;
  // The slot's bytes are not these, or not for long.
  bool dirty = transfer.discard || directory_.mapped(ref) || directory_.at(ref).zeros != 0;
  if (transfer.took_over) {
    dirty = directory_.word(transfer.source, ref).load().dirty();
  } else if (transfer.source != kNoSpace) {
    ExtentWord& source = directory_.word(transfer.source, ref);
    if (!source.try_share()) {
      // Written between the copy and now. The mapping stays; only the bytes are copied again.
      await_writers(transfer);
      return;
    }
    phase = Phase::shared;
    dirty = source.load().dirty();
  }
  if (transfer.spills) {
    memory_of_source(transfer).exit_backoff.worked();
  }
  Extent& extent = directory_.at(ref);
  carrier_.memory_of(transfer).entry_backoff.worked();
  extent.uses = space == kHost ? 0 : extent.uses;
  give_place(transfer);
  ExtentWord& host = directory_.word(kHost, ref);
  if (space != kHost && host.load().phase() == Phase::lost) {
    host.set_phase(Phase::none);  // Overwritten: there are bytes again, if not here.
  }
  dirty || transfer.written ? word.set_dirty() : word.clear_dirty();
  if (transfer.sums != nullptr) {
    directory_.set_checksums(ref, std::move(transfer.sums));
  }
  extent.bad_once = false;
  extent.zeros = 0;
  copies_.prefetch_used(ref);  // The request that takes it to a device uses it.
  extent.prefetched =
      transfer.prefetch && space == kHost && !directory_.touchable(ref);  // No use is seen.
  carrier_.memory_of(transfer).unused_prefetched +=
      extent.prefetched ? directory_.bytes_of(ref) : 0;
  word.set_phase(phase);
  if (std::exchange(transfer.took_over, false)) {
    copies_.finish_evict(ref, transfer.source, directory_.frame(transfer.source, ref),
                         transfer.begun_ns);
  }
  journal_.note_promoted(transfer, transfer.reading ? carrier_.io_bytes(transfer) : 0);
  if (transfer.direct()) {
    journal_.note_direct(transfer, false, directory_.bytes_of(ref));
  }
  if (space == kHost) {
    journal_.count_mapped(transfer.job.mechanism);
  }
  (void)word.take_referenced();
  Copies::note_came(directory_, ref, carrier_.memory_of(transfer));
  const bool stock = transfer.stock;
  transfer.outcome = Transfer::Outcome::moved;
  left_source(transfer);
  carrier_.end(transfer);
  if (stock) {
    stock_ended(ref, true);
  }
  carrier_.extent_changed(ref, space);
}

// The spare buffer is there, or could not be had.
void Promoter::stock_ended(ExtentRef ref, bool came) {
  if (!stock_.end(ref, came)) {
    carrier_.then({.what = Carrier::Next::What::give_up_spare, .ref = ref});
  }
}

void Promoter::failed(Promote& transfer, Status status) {
  if (transfer.space != kHost && (transfer.job.steps & kPopulate) != 0 &&
      status.code() == Code::no_capacity) {
    carrier_.memory_of(transfer).shrink_to_actual(directory_.bytes_of(transfer.ref), status,
                                                  carrier_.now());
    undo(transfer, nullptr);  // Its waiters look for room again.
    return;
  }
  if (transfer.space == kHost && memories_.in(kHost).size() > 1 &&
      (transfer.job.steps & kPopulate) != 0 && status.code() == Code::no_capacity) {
    MemoryLedger& memory = carrier_.memory_of(transfer);
    memory.entry_backoff.failed(carrier_.now());
    if (memories_.any_open(kHost, carrier_.now())) {
      undo(transfer, nullptr);  // Its waiters look for room in another memory.
      return;
    }
  }
  if (transfer.source != kNoSpace && memory_of_source(transfer).tier->lost()) {
    undo(transfer, nullptr);  // Its waiters look for another copy.
    return;
  }
  if ((transfer.job.steps & kCopyPeer) != 0 && transfer.arriving == 0 &&
      !carrier_.memory_of(transfer).tier->lost()) {
    transfer.by_host = true;
    advance(transfer, Stage::staging);
    go_on(transfer);
    return;
  }
  journal_.count(&Stats::io_errors);
  transfer.outcome = Transfer::Outcome::failed;
  journal_.note_end(transfer);
  transfer.outcome = Transfer::Outcome::undone;
  if (transfer.spills) {
    memory_of_source(transfer).exit_backoff.failed(carrier_.now());
    slots_.note_error(status.info() != nullptr ? *status.info() : ErrorInfo{});
  }
  undo(transfer, &status);
}

// The extent goes back to where it was. `error`, if any, reaches its waiters.
void Promoter::undo(Promote& transfer, const Status* error) {
  if (transfer.arriving != 0 && abandon(transfer, error)) {
    return;
  }
  std::byte* at = window_of(transfer);
  const bool landed_in_window =
      at != nullptr && memories_.space(transfer.space).bytes_at(transfer.frame, at) == at;
  if (transfer.mapped || landed_in_window) {
    transfer.mapped = false;
    carrier_.drop_prefetch(transfer);
    transfer.undo_error =
        error != nullptr && error->info() != nullptr ? *error->info() : ErrorInfo{};
    advance(transfer, Stage::unmap);  // The frame must leave its window first.
    directory_.word(transfer.space, transfer.ref).set_phase(Phase::outgoing);
    carrier_.submit(transfer, kUnmap);
    return;
  }
  undone(transfer, error != nullptr ? error->clone() : Status());
}

// The extent is again what it was before the promote.
void Promoter::undone(Promote& transfer, Status error) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  carrier_.memory_of(transfer).give_frame(transfer.frame, directory_.bytes_of(ref));
  directory_.word(space, ref).set_phase(transfer.origin);
  const bool stock = transfer.stock;
  const Ended::Failed failed = transfer.discard ? Ended::Failed::to_come : Ended::Failed::to_read;
  left_source(transfer);
  carrier_.end(transfer);
  if (stock) {
    stock_ended(ref, false);
  }
  carrier_.extent_changed(ref, space, std::move(error), failed);
}

// The device's frame of a victim that came to the host is wanted.
void Promoter::left_source(const Promote& transfer) {
  if (transfer.spills) {
    carrier_.then({.what = Carrier::Next::What::leave_source,
                   .ref = transfer.ref,
                   .space = transfer.source,
                   .reason = transfer.reason});
  }
}

}  // namespace tiermem
