// Demotes. Each function is one step of the transfer's life; the stage says which comes next. The
// frame stays until an evict takes it.
#include <cassert>
#include <utility>

#include "base/error.hpp"
#include "mover/demoter.hpp"

namespace tiermem {
namespace {

ErrorInfo error_of(const Status& status) {
  return status.info() != nullptr
             ? *status.info()
             : error_info(status.code(), "writing down failed: {}; tiermem tries it again",
                          code_name(status.code()));
}

}  // namespace

Demoter::Demoter(Residency& residency, Memories& memories, Journal& journal, Carrier& carrier,
                 Copies& copies, Parts& parts, Stuck& stuck, Bounce& bounce, SlotTiers& slots,
                 const MoverOptions& options)
    : directory_(residency),
      memories_(memories),
      journal_(journal),
      carrier_(carrier),
      copies_(copies),
      parts_(parts),
      stuck_(stuck),
      bounce_(bounce),
      slots_(slots),
      options_(options) {}

bool Demoter::start(ExtentRef ref, unsigned space, bool evict_after, Priority priority,
                    PageMask some) {
  if (!copies_.can_write(ref)) {
    return false;
  }
  if (directory_.mapped(ref)) {
    return start_withdraw(ref, space, evict_after, priority, some);
  }
  if (!directory_.word(space, ref).note_known_elsewhere().readable() ||
      directory_.bits(space, ref).writing()) {
    return false;
  }
  const unsigned not_asked = not_offered(ref);
  SlotTiers::Entry* const to = reserve_write(ref, not_asked);
  if (to == nullptr) {
    return false;
  }
  Demote& transfer = carrier_.create<Demote>(ref, space, priority);
  transfer.evict_after = evict_after;
  transfer.tried = static_cast<std::uint8_t>(not_asked);
  transfer.wear = static_cast<std::int64_t>(directory_.bytes_of(ref));
  transfer.to = to;
  transfer.slot_tier = to;
  transfer.frame = directory_.frame(space, ref);
  if (evict_after) {
    carrier_.set_freeing(transfer, carrier_.memory_of(transfer), directory_.bytes_of(ref));
  }
  measure(transfer);
  return directory_.at(ref).transfer != 0;  // Without a slot the demote has failed.
}

// Returns the tier that takes the extent's bytes, and reserves their write of its endurance. Null
// if none does now.
SlotTiers::Entry* Demoter::reserve_write(ExtentRef ref, unsigned tried) {
  for (SlotTiers::Entry* to = copies_.destination(ref, tried); to != nullptr;
       to = copies_.destination(ref, tried)) {
    if (to->ledger.may_wear(directory_.bytes_of(ref), carrier_.now())) {
      return to;
    }
    slots_.note_asked(*to);
    tried |= 1u << to->number;
  }
  return nullptr;
}

// Returns the bits of the tiers that are not asked. Bytes are packed only for extents that come
// back page by page; one that has a slot there keeps it.
unsigned Demoter::not_offered(ExtentRef ref) {
  const SlotCopy& copy = directory_.at(ref).copy();
  const bool in_one = copy.owned() && slots_.of(copy).tier->compresses();
  return in_one || (slots_.compressing() != 0 && parts_.takes_parts(ref) &&
                    slots_.compression().offers(directory_.record_of(ref).shrinks))
             ? 0
             : slots_.compressing();
}

// The slot has the bytes.
void Demoter::note_stored(const Demote& transfer) {
  const SlotTier& tier = *transfer.to->tier;
  if (tier.compresses() && transfer.slot.valid()) {
    Compression::note_stored(directory_.record_of(transfer.ref).shrinks,
                             copies_.slot_bytes_of(transfer.ref), tier.bytes_of(transfer.slot));
  }
}

bool Demoter::has_other_tier(const Demote& transfer) const {
  return copies_.destination(transfer.ref, transfer.tried | 1u << transfer.to->number) != nullptr;
}

// The tier refuses the bytes: they go to the next one. Returns false if there is none.
bool Demoter::to_next_tier(Demote& transfer, const Status& why, bool no_slot) {
  SlotTiers::Entry& refusing = *transfer.to;
  transfer.tried |= static_cast<std::uint8_t>(1u << refusing.number);
  SlotTiers::Entry* const next = reserve_write(transfer.ref, transfer.tried);
  if (next == nullptr) {
    return false;
  }
  slots_.note_error(refusing, error_of(why));
  refusing.ledger.pause(carrier_.now(), no_slot);
  refusing.ledger.return_wear(transfer.wear);
  transfer.wear = static_cast<std::int64_t>(directory_.bytes_of(transfer.ref));
  transfer.to = next;
  transfer.slot_tier = next;
  transfer.avoid = 0;
  transfer.attempts = 0;
  return true;
}

void Demoter::not_grown(Demote& transfer, Status status) {
  if (to_next_tier(transfer, status, true)) {
    find_slot(transfer);
  } else {
    failed(transfer, std::move(status));
  }
}

void Demoter::find_slot(Demote& transfer) {
  auto* const parts = if_is<DemoteParts>(&transfer);
  if (parts != nullptr && parts->whole_again) {
    find_slot(*parts);
    return;
  }
  advance(transfer, Stage::slot);
  if (!directory_.owns_slot(transfer.ref)) {
    const SlotId slot = new_slot(transfer);
    if (!slot.valid()) {
      return;
    }
    directory_.add_slot(transfer.ref, transfer.to->number, slot, transfer.to->ledger.stamp(),
                        std::move(transfer.slot_pages));
  }
  transfer.rewrites = directory_.in_slot(transfer.ref);
  carrier_.set_range(transfer, 0, directory_.bytes_of(transfer.ref));
  if (parts == nullptr) {
    directory_.begin_write(transfer.ref);  // Until the write is published.
  }
  transfer.slot = directory_.at(transfer.ref).copy().slot;
  advance(transfer, Stage::staging);
  seal(transfer);
}

// Allocates a slot for the stored pages of the extent, in the first tier with room. If a tier is
// full, slots with replicas give way; in the last one also slots of resident bytes. Returns an
// invalid slot if the transfer waits for a tier to grow, or has failed.
SlotId Demoter::new_slot(Demote& transfer) {
  const std::uint64_t bytes = slot_bytes_of(transfer);
  for (;;) {
    SlotTiers::Entry& to = *transfer.to;
    to.ledger.retry_degraded(carrier_.now());
    Result<SlotId> slot = to.ledger.allocate(bytes, transfer.avoid);
    while (slot.code() == Code::no_capacity &&
           (copies_.next_replicated_gives_way(to) ||
            (!has_other_tier(transfer) && copies_.next_slot_gives_way(to)))) {
      slot = to.ledger.allocate(bytes, transfer.avoid);
    }
    if (slot.ok()) {
      return *slot;
    }
    if (slot.code() == Code::busy) {
      to.ledger.grow(transfer.job.transfer, bytes);
      return {};
    }
    Status why = std::move(slot).status();
    if (!to_next_tier(transfer, why, true)) {
      failed(transfer, std::move(why));
      return {};
    }
  }
}

// Bytes in memory that I/O can read are hashed beside the write. The result is published only if no
// writer came between the start of the first and the end of the last, so both saw the same bytes. A
// device's memory is copied to staging first.
void Demoter::seal(Demote& transfer) {
  Memory& tier = *carrier_.memory_of(transfer).tier;
  // The pages of a new slot were measured after the copy began, and may have changed since then: it
  // must not begin anew.
  if (transfer.copied == kNoSpace || directory_.at(transfer.ref).copy().pages == nullptr) {
    (void)carrier_.start_copy(transfer,
                              transfer.space);  // Beside a writer: it is written down in vain.
  }
  transfer.way = Route::way(carrier_.ends_of(transfer));
  if (transfer.way == Route::Way::straight) {
    transfer.job.data = transfer.withdrawn
                            ? tier.space().bytes_at(transfer.frame, nullptr)
                            : directory_.address(transfer.ref).load(std::memory_order_relaxed);
    write_and_hash(transfer);
    return;
  }
  if (transfer.direct()) {
    advance(transfer, Stage::write);
    carrier_.queue_io(transfer);
    return;
  }
  if (!carrier_.take_staging(transfer)) {
    return;
  }
  (void)carrier_.start_copy(transfer, transfer.space);
  transfer.job.host = bounce_.frame(transfer.staging);
  transfer.job.data = bounce_.data(transfer.staging);
  transfer.job.other_tier = &tier;
  transfer.job.other = transfer.frame;
  advance(transfer, Stage::copy);
  carrier_.submit(transfer, Route::stage());
}

Status Demoter::no_sums() {
  return fail(Code::no_capacity, "checksums: allocation of those of an extent failed; free memory");
}

void Demoter::write_and_hash(Demote& transfer) {
  const bool hashes = options_.checksums && !directory_.has_flag(transfer.ref, kNoChecksum);
  if (hashes && transfer.sums == nullptr) {
    transfer.sums.reset(
        Checksums::make(directory_.bytes_of(transfer.ref), parts_.checksum_block(transfer.ref)));
    if (transfer.sums != nullptr && transfer.pages != 0) {
      transfer.sums->copy(*directory_.at(transfer.ref).copy().sums);
    }
  }
  if (transfer.pages != 0 && transfer.sums == nullptr) {
    failed(transfer, no_sums());
    return;
  }
  const Route::Hash hash = Route::hash(transfer.sums != nullptr, transfer.rewrites);
  advance(transfer, hash == Route::Hash::first ? Stage::hash : Stage::write);
  if (hash != Route::Hash::first) {
    carrier_.queue_io(transfer);
  }
  if (hash != Route::Hash::no) {
    transfer.job.sums = transfer.sums.get();
    transfer.hashing = true;
    carrier_.submit(transfer, kHash);
  }
}

void Demoter::job_done(Demote& transfer) {
  switch (transfer.stage) {
    case Stage::copy:
      copied(transfer);
      return;
    case Stage::measure:
      measured(transfer);
      return;
    case Stage::withdraw:
      withdrawn(transfer);
      return;
    case Stage::remap:
      assert(transfer.job.status.ok());  // restore() asks until it is done.
      stay(transfer, Status(transfer.undo_error));
      return;
    case Stage::hash:
      transfer.hashing = false;
      write_changed(transfer);
      return;
    default:
      transfer.hashing = false;
      if (std::exchange(transfer.write_ended, false)) {
        write_done(transfer, SlotCompletion(transfer.ended));
      }
      return;
  }
}

// The bytes are in the staging, or all pages in the bounce area.
void Demoter::copied(Demote& transfer) {
  const Job& job = transfer.job;
  if (job.status.ok()) {
    carrier_.memory_of(transfer).exit_backoff.worked();
    auto* const parts = if_is<DemoteParts>(&transfer);
    parts != nullptr && parts->whole_again ? measured(*parts) : write_and_hash(transfer);
  } else if (job.checksum_bad) {
    journal_.count(&Stats::checksum_errors);
    if (carrier_.falls_back(transfer)) {
      advance(transfer, Stage::read);
      carrier_.queue_io(transfer);
      return;
    }
    failed(transfer, fail(Code::lost, "buffer '{}': bytes in its slot are lost; write them again",
                          directory_.record_of(transfer.ref).label.get().view()));
  } else {
    failed(transfer, job.status.clone());
  }
}

void Demoter::io_done(Demote& transfer, const SlotCompletion& completion) {
  if (!transfer.writes()) {
    if (completion.code == Code::ok) {
      missing_came(as<DemoteParts>(transfer));
    } else if (carrier_.falls_back(transfer)) {
      journal_.count(&Stats::io_retries);
      carrier_.queue_io(transfer);
    } else {
      failed(transfer, carrier_.io_error(transfer, completion));
    }
    return;
  }
  transfer.wear -= static_cast<std::int64_t>(carrier_.io_bytes(transfer));
  if (transfer.hashing) {
    transfer.write_ended = true;
    transfer.ended = completion;
    return;
  }
  write_done(transfer, completion);
}

void Demoter::went_direct(Demote& transfer) {
  if (!carrier_.direct_ended(transfer)) {
    advance(transfer, Stage::staging);
    seal(transfer);
    return;
  }
  transfer.wear -= static_cast<std::int64_t>(transfer.length);
  carrier_.memory_of(transfer).exit_backoff.worked();
  written(transfer);
}

void Demoter::end(Demote& transfer) {
  transfer.to->ledger.return_wear(transfer.wear);
  carrier_.end(transfer);
}

// The bytes of an extent that has a slot are hashed. Only changed blocks are written, from the
// first that differs to the last. None differs if a program wrote the same bytes again.
void Demoter::write_changed(Demote& transfer) {
  if (auto* const parts = if_is<DemoteParts>(&transfer)) {
    write_changed(*parts);
    return;
  }
  if (directory_.at(transfer.ref).copy().in_file()) {
    compared_with_file(transfer);
    return;
  }
  if (transfer.recalled) {
    directory_.cancel_write(transfer.ref);
    map_back(transfer);
    return;
  }
  const Checksums& before = *directory_.at(transfer.ref).copy().sums;
  const std::uint32_t first = transfer.sums->first_unlike(before);
  WriteTracking::note(directory_.at(transfer.ref).unwritten, first != before.count);
  if (first == before.count) {
    carrier_.set_range(transfer, 0, 0);
    written(transfer);
    return;
  }
  if (transfer.to->ledger.is_shared(directory_.at(transfer.ref).copy().stamp) ||
      directory_.at(transfer.ref).copy().pages != nullptr) {
    // A child of fork reads the slot as it is, or it may lack pages that have changed: all of the
    // extent goes to another.
    copies_.give_up_slot(transfer.ref);
    measure(transfer);
    return;
  }
  const std::uint32_t last = transfer.sums->last_unlike(before);
  carrier_.set_range(transfer, std::uint64_t{first} * before.block_bytes,
                     std::uint64_t{last - first + 1} * before.block_bytes);
  advance(transfer, Stage::write);
  carrier_.queue_io(transfer);
}

// The write has ended, with or without success, and so has the hash.
void Demoter::write_done(Demote& transfer, const SlotCompletion& completion) {
  if (completion.code == Code::ok) {
    written(transfer);
    return;
  }
  Status status = carrier_.io_error(transfer, completion);
  transfer.to->ledger.write_failed(completion.device, status.message(), carrier_.now());
  if (auto* const parts = if_is<DemoteParts>(&transfer)) {
    not_written(*parts, std::move(status));
    return;
  }
  // The slot is whole nowhere; the bytes are in the frame. Another device, or another place of the
  // same one.
  const std::uint64_t slot_bytes = copies_.slot_bytes_of(transfer.ref);
  copies_.give_up_slot(transfer.ref);
  if (transfer.attempts++ < 2) {
    journal_.count(&Stats::io_retries);
    transfer.avoid |= std::uint64_t{1} << (completion.device % 64);
    if (transfer.to->ledger.is_full(slot_bytes, transfer.avoid)) {
      transfer.avoid = 0;
    }
    slots_.note_error(*transfer.to, *status.info());
    carrier_.give_staging(transfer);
    measure(transfer);
    return;
  }
  if (to_next_tier(transfer, status, false)) {
    journal_.count(&Stats::io_retries);
    carrier_.give_staging(transfer);
    measure(transfer);
    return;
  }
  failed(transfer, std::move(status));
}

void Demoter::written(Demote& transfer) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  MemoryLedger& memory = carrier_.memory_of(transfer);
  if (transfer.length != 0) {
    transfer.to->ledger.write_worked(transfer.slot);
    note_stored(transfer);
  }
  const std::uint64_t bytes = transfer.length != 0 ? carrier_.io_bytes(transfer) : 0;
  auto* const parts = if_is<DemoteParts>(&transfer);
  if (parts != nullptr && parts->to_write != 0) {
    journal_.note_demoted(transfer, bytes);
    write_next(*parts);
    return;
  }
  if (parts != nullptr && parts->whole_again) {
    whole_written(*parts);
  }
  transfer.to->ledger.forget_error(carrier_.now());
  const Journal::ReasonScope leaving(journal_, transfer.reason);
  transfer.outcome = Transfer::Outcome::moved;
  if (transfer.withdrawn) {
    take_sums(transfer, bytes);
    transfer.evict_after ? gone(transfer) : map_back(transfer);
    return;
  }
  if (!directory_.word(space, ref).publish_clean()) {
    end(transfer);  // It was written: still dirty, and not the first victim.
    memory.recency.rejected(ref);
    carrier_.extent_changed(ref, space);
    return;
  }
  for (unsigned other = 0; other < directory_.spaces(); ++other) {
    if (other != space && directory_.readable(ref, other)) {
      directory_.word(other, ref).clear_dirty();  // A shared extent has no writers.
    }
  }
  take_sums(transfer, bytes);
  if (transfer.direct()) {
    journal_.note_direct(transfer, true, bytes);
  }
  if (transfer.evict_after) {
    carrier_.then({.what = Carrier::Next::What::evict,
                   .ref = ref,
                   .space = transfer.space,
                   .priority = transfer.priority,
                   .reason = transfer.reason});
    end(transfer);
    return;
  }
  end(transfer);
  carrier_.extent_changed(ref, space);
}

// The slot has the bytes, and the extent their checksums.
void Demoter::take_sums(Demote& transfer, std::uint64_t bytes) {
  directory_.finish_write(transfer.ref, std::move(transfer.sums));
  journal_.note_demoted(transfer, bytes);
}

void Demoter::failed(Demote& transfer, Status status) {
  const ExtentRef ref = transfer.ref;
  const unsigned space = transfer.space;
  MemoryLedger& memory = carrier_.memory_of(transfer);
  SlotLedger& ledger = transfer.to->ledger;
  const ErrorInfo error = error_of(status);
  slots_.note_error(*transfer.to, error);
  // A tier that is full has refused nothing. One without a device that works has the errno of it.
  const bool full = transfer.stage == Stage::slot && error.native == 0;
  journal_.count(&Stats::io_errors, full ? 0 : 1);
  transfer.outcome = Transfer::Outcome::failed;
  if (space != kHost && transfer.stage == Stage::copy) {
    memory.exit_backoff.failed(carrier_.now());  // No slot tier was asked.
  } else if (transfer.stage == Stage::read || transfer.stage == Stage::copy) {
    // The rest of it could not be read, to be written with it. All others can leave.
    stuck_.unread(directory_.at(ref), carrier_.now());
  } else {
    const bool no_slot = transfer.stage == Stage::slot;
    ledger.pause(carrier_.now(), no_slot);
    const auto* const parts = if_is<DemoteParts>(&transfer);
    if (no_slot && parts != nullptr && parts->whole_again) {
      // It has a slot, which lacks pages that have changed: without another one it cannot leave.
      stuck_.lacks_slot(directory_.at(ref), ledger.paused_until());
    }
  }
  if (transfer.withdrawn) {
    transfer.undo_error = ledger.last_error();
    keep(transfer);
    map_back(transfer);
    return;
  }
  end(transfer);
  memory.recency.rejected(ref);
  carrier_.extent_changed(ref, space, std::move(status), Ended::Failed::to_leave);
}

}  // namespace tiermem
