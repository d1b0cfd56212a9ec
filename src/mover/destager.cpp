#include "mover/destager.hpp"

#include <cassert>
#include <utility>

#include "policy/slot_level.hpp"

namespace tiermem {

bool Destager::may_start(const SlotTiers::Entry& tier, std::int64_t now) const {
  if (live_ >= SlotLevel::kMostDestages || !backoff_.over(now) || slots_.after(tier).empty()) {
    return false;
  }
  const SlotUsage usage = tier.tier->usage();
  const SlotLevel level{.room = tier.ledger.room(),
                        .in_use = usage.in_use,
                        .replicated = tier.replicated_bytes + tier.destaging_bytes,
                        .share = options_.ready_share};
  return level.wants_destage();
}

void Destager::start(ExtentRef ref, FrameId frame, SlotTiers::Entry& to) {
  const Journal::ReasonScope ahead(journal_, Reason::ahead);
  Destage& transfer = carrier_.create<Destage>(ref, kHost, Priority::background);
  const SlotCopy& copy = directory_.at(ref).copy();
  ++live_;
  transfer.frame = frame;
  transfer.job.data = memories_.space(kHost).bytes_at(frame, nullptr);
  transfer.source = &slots_.of(copy);
  transfer.slot_tier = transfer.source;
  transfer.slot = copy.slot;
  transfer.to = &to;
  transfer.slot_bytes = copies_.slot_bytes_of(ref);
  transfer.source->destaging_bytes += transfer.slot_bytes;
  const bool complete = copy_records(transfer, copy);
  carrier_.set_range(transfer, 0, directory_.bytes_of(ref));
  complete ? find_slot(transfer) : failed(transfer);
}

// Returns false if there is no memory for them.
bool Destager::copy_records(Destage& transfer, const SlotCopy& copy) const {
  if (copy.pages != nullptr) {
    transfer.slot_pages.reset(copy.pages->clone());
  }
  const bool checks = options_.checksums && copy.sums != nullptr;
  if (checks) {
    transfer.sums.reset(Checksums::make(directory_.bytes_of(transfer.ref), copy.sums->block_bytes));
  }
  if ((checks && transfer.sums == nullptr) ||
      (copy.pages != nullptr && transfer.slot_pages == nullptr)) {
    return false;
  }
  if (checks) {
    transfer.sums->copy(*copy.sums);
  }
  return true;
}

void Destager::desert(ExtentRef ref) {
  if (auto* const transfer = if_is<Destage>(carrier_.transfer_of(ref))) {
    transfer->deserted = true;
    directory_.at(ref).transfer = 0;
  }
}

void Destager::find_slot(Destage& transfer) {
  if (transfer.deserted) {
    end(transfer);
    return;
  }
  if (transfer.stage != Stage::slot) {
    advance(transfer, Stage::slot);
  }
  const Result<SlotId> slot = transfer.to->ledger.allocate(transfer.slot_bytes, 0);
  if (slot.code() == Code::busy) {
    transfer.to->ledger.grow(transfer.job.transfer, transfer.slot_bytes);
    return;
  }
  if (!slot.ok()) {
    failed(transfer);
    return;
  }
  transfer.to_slot = *slot;
  advance(transfer, Stage::prepare);
  if (carrier_.memory_of(transfer).tier->needs_populate(transfer.frame)) {
    carrier_.submit(transfer, kPopulate);
  } else {
    read(transfer);
  }
}

void Destager::read(Destage& transfer) {
  transfer.reading = true;
  transfer.source->ledger.begin_read(transfer.slot);
  advance(transfer, Stage::read);
  carrier_.queue_io(transfer);
}

// The bytes came from the slot. Those of a slot that lacks pages come to their places for the
// comparison, and lie one behind the other again after it.
void Destager::land(Destage& transfer) {
  advance(transfer, Stage::land);
  if (transfer.sums == nullptr) {
    write(transfer);
    return;
  }
  transfer.job.sums = transfer.sums.get();
  const JobStep spread = carrier_.spreads(transfer);
  carrier_.submit(transfer, spread | kVerify | (spread != 0 ? kPack : JobStep{0}));
}

void Destager::write(Destage& transfer) {
  end_read(transfer);
  transfer.slot_tier = transfer.to;
  transfer.slot = transfer.to_slot;
  advance(transfer, Stage::write);
  carrier_.queue_io(transfer);
}

void Destager::job_done(Destage& transfer) {
  const Job& job = transfer.job;
  if (transfer.deserted) {
    end(transfer);
  } else if (job.checksum_bad) {
    Status why;
    if (!carrier_.reads_again(transfer, why)) {
      failed(transfer);  // The next request for the bytes finds it out, too.
    }
  } else if (!job.status.ok()) {
    failed(transfer);
  } else if (transfer.stage == Stage::prepare) {
    read(transfer);
  } else {
    write(transfer);
  }
}

void Destager::io_done(Destage& transfer, const SlotCompletion& completion) {
  if (transfer.deserted) {
    end(transfer);
  } else if (transfer.reading) {
    Status why;
    if (completion.code == Code::ok) {
      land(transfer);
    } else if (!carrier_.reads_again(transfer, completion, why)) {
      failed(transfer);
    }
  } else if (completion.code == Code::ok) {
    written(transfer);
  } else {
    const Status why = carrier_.io_error(transfer, completion);
    transfer.to->ledger.write_failed(completion.device, why.message(), carrier_.now());
    failed(transfer);
  }
}

void Destager::written(Destage& transfer) {
  const ExtentRef ref = transfer.ref;
  SlotTiers::Entry& to = *transfer.to;
  const SlotId slot = std::exchange(transfer.to_slot, SlotId{});
  to.ledger.write_worked(slot);
  backoff_.worked();
  transfer.outcome = Transfer::Outcome::moved;
  transfer.moved = carrier_.io_bytes(transfer);
  end(transfer);
  copies_.add_replica(ref, to, slot);
}

// The bytes stay where they are. The next try is with another extent.
void Destager::failed(Destage& transfer) {
  const ExtentRef ref = transfer.ref;
  backoff_.failed(carrier_.now());
  end(transfer);
  copies_.note_in_slot(ref);
}

void Destager::end_read(Destage& transfer) {
  if (std::exchange(transfer.reading, false) && transfer.source->ledger.end_read(transfer.slot)) {
    copies_.room_in_slots(*transfer.source);
  }
}

void Destager::end(Destage& transfer) {
  end_read(transfer);
  if (transfer.to_slot.valid()) {
    transfer.to->ledger.free(transfer.to_slot);
    copies_.room_in_slots(*transfer.to);
  }
  carrier_.memory_of(transfer).give_frame(transfer.frame, transfer.length);
  transfer.source->destaging_bytes -= transfer.slot_bytes;
  assert(live_ != 0);
  --live_;
  carrier_.end(transfer);
}

}  // namespace tiermem
