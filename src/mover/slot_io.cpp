// I/O of transfers: what the channels choose is submitted to the slot tiers, with places in the
// bounce memory. The stepping thread only; never waits.
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "mover/carrier.hpp"

namespace tiermem {

void Carrier::queue_io(Transfer& transfer) {
  // Background reads and writes are apart: one may be held back while the other goes on.
  const bool apart = transfer.priority > Priority::room && transfer.writes();
  transfer.slot_tier->channel.queue(transfer.job.transfer, load_of(transfer), apart);
}

void Carrier::send(Transfer& transfer, unsigned depth) {
  transfer.at_device = true;
  transfer.depth = std::max(transfer.depth, depth);
  if (transfer.direct()) {
    transfer.job.direct = options_.direct;
    transfer.job.slot = transfer.slot;
    submit(transfer, transfer.writes() ? kStore : kFetch);
    return;
  }
  transfer.slot_tier->tier->submit(io_of(transfer));
}

// Returns what the transfer reads or writes next. The pages that a slot has lie one behind the
// other.
SlotTransfer Carrier::io_of(const Transfer& transfer) const {
  const SlotPages* const pages = slot_pages_of(transfer);
  const std::uint64_t offset =
      pages == nullptr ? transfer.from
                       : pages->before(static_cast<unsigned>(transfer.from / pages->page_bytes)) *
                             std::uint64_t{pages->page_bytes};
  return {.cookie = transfer.job.transfer,
          .slot = transfer.slot,
          .write = transfer.writes(),
          .data = transfer.job.data + transfer.from,
          .length = io_bytes(transfer),
          .offset = offset};
}

bool Carrier::gives_to_toucher(PromoteParts& transfer, bool reads) {
  transfer.by_toucher = offered_ && given_ == nullptr && transfer.priority == Priority::demand &&
                        (!reads || transfer.slot_tier->tier->reads_here());
  if (transfer.by_toucher) {
    given_ = &transfer.job;
    transfer.job.slots = transfer.slot_tier->tier;
    transfer.job.io = reads ? io_of(transfer) : SlotTransfer{};
  }
  return transfer.by_toucher;
}

void Carrier::note_done_by_toucher(PromoteParts& transfer) {
  transfer.by_toucher = false;
  if (transfer.job.io.length != 0) {
    transfer.depth = std::max(transfer.depth, 1u);
    note_io(transfer, transfer.job.read);
  }
}

void Carrier::io_ended(Transfer& transfer, const SlotCompletion& completion) {
  transfer.at_device = false;
  transfer.slot_tier->channel.ended(load_of(transfer));
  note_io(transfer, completion);
  journal_.count(&Stats::io_retries, completion.retries);
}

void Carrier::note_io(Transfer& transfer, const SlotCompletion& completion) {
  journal_.note_io(transfer, completion, transfer.writes(), io_bytes(transfer));
  if (transfer.slot_tier->tier->compresses() && !transfer.writes()) {
    Compression& compression = slots_.compression();
    transfer.kind == Transfer::Kind::destage ? compression.note_passed(io_bytes(transfer))
                                             : compression.note_read(io_bytes(transfer));
  }
}

// Direct transfers go through the channel like all others. If one fails, the same bytes go through
// the staging, which shows whether the path was at fault.
Route::Ends Carrier::ends_of(const Transfer& transfer) const {
  const SlotCopy& copy = directory_.at(transfer.ref).copy();
  const Route::End memory = end_at(transfer.space);
  return {.from = transfer.reading ? Route::End::slot : memory,
          .to = transfer.reading ? memory : Route::End::slot,
          .slot_reaches = options_.direct != nullptr && transfer.slot_tier->rank() == 0 &&
                          transfer.slot_tier->ledger.tries_direct(now_) &&
                          options_.direct->reaches(*memory_of(transfer).tier, transfer.slot),
          .sums = (options_.checksums && !directory_.has_flag(transfer.ref, kNoChecksum)) ||
                  (transfer.reading && copy.sums != nullptr),
          .some_pages = transfer.pages != 0 || copy.pages != nullptr};
}

bool Carrier::direct_ended(Transfer& transfer) {
  transfer.at_device = false;
  transfer.slot_tier->channel.ended(load_of(transfer));
  ++transfer.requests;
  if (transfer.job.status.ok()) {
    transfer.slot_tier->ledger.direct_worked(transfer.slot, transfer.job.bytes, transfer.writes());
    transfer.moved += transfer.job.bytes;
    transfer.path = Receipt::Path::direct;
    return true;
  }
  journal_.count(&Stats::gpu_direct_errors);
  ++transfer.retries;
  transfer.slot_tier->ledger.direct_failed(now_);  // So it is not tried again here.
  transfer.way = Route::Way::staging;
  return false;
}

Status Carrier::io_error(const Transfer& transfer, const SlotCompletion& completion) const {
  const bool changed = transfer.slot_tier->has_files() && completion.native == ESTALE;
  ErrorInfo info =
      error_info(completion.code, "{} of buffer '{}' failed on {} at offset {}: {}; {}",
                 transfer.writes() ? "writing an extent" : "reading an extent",
                 directory_.record_of(transfer.ref).label.get().view(),
                 transfer.slot_tier->tier->device_name(completion.device), completion.device_offset,
                 changed ? "the file has changed since it was adopted (size or modification time)"
                 : completion.native != 0 ? std::strerror(completion.native)
                                          : code_name(completion.code),
                 changed ? "adopt it again" : "see the kernel's log (dmesg)");
  info.native = completion.native;
  info.tier = transfer.slot_tier->tier->place();
  info.device = completion.device;
  info.offset = completion.device_offset;
  info.buffer = directory_.handle_of(transfer.ref);
  return Status(info);
}

bool Carrier::reads_again(Transfer& transfer, const SlotCompletion& completion, Status& why) {
  if (transfer.attempts++ == 0 || falls_back(transfer)) {
    journal_.count(&Stats::io_retries);
    queue_io(transfer);
    return true;
  }
  why = io_error(transfer, completion);
  return false;
}

bool Carrier::reads_again(Transfer& transfer, Status& why) {
  journal_.count(&Stats::checksum_errors);
  Extent& extent = directory_.at(transfer.ref);
  extent.bad_once = !extent.bad_once;
  // Perhaps the wire and not the medium: read once more. Then from the replica, if there is one.
  if (extent.bad_once || falls_back(transfer)) {
    advance(transfer, Stage::read);
    queue_io(transfer);
    return true;
  }
  const bool adopted = transfer.slot_tier->has_files();
  const SlotTier& tier = *transfer.slot_tier->tier;
  const Job& job = transfer.job;
  const std::uint64_t offset = std::uint64_t{job.bad_block} * job.sums->block_bytes;
  why = fail(adopted ? Code::io_error : Code::lost,
             "buffer '{}', extent {}: the bytes at {} read back from {} are not those {}; {}",
             directory_.record_of(transfer.ref).label.get().view(),
             directory_.number_of(transfer.ref), offset,
             tier.device_name(tier.device_of(transfer.slot)),
             adopted ? "first read: the file has changed since" : "written: lost",
             adopted ? "adopt it again" : "write them again");
  extent.lost_with = kHost;
  return false;
}

bool Carrier::falls_back(Transfer& transfer) {
  if (!directory_.has_replica(transfer.ref)) {
    return false;
  }
  copies_.use_replica(transfer.ref);
  const SlotCopy& copy = directory_.at(transfer.ref).copy();
  transfer.slot_tier = &slots_.of(copy);
  transfer.slot = copy.slot;
  transfer.attempts = 0;
  return true;
}

// Returns the pages of the slot that the transfer reads or writes. Null: all of them.
SlotPages* Carrier::slot_pages_of(const Transfer& transfer) const {
  if (transfer.slot_tier == nullptr || transfer.slot_tier->has_files() ||
      transfer.kind == Transfer::Kind::gather) {
    return nullptr;
  }
  if (const auto* const destage = if_is<Destage>(&transfer)) {
    return destage->slot_pages.get();
  }
  const auto* const parts = if_is<DemoteParts>(&transfer);
  return parts != nullptr && parts->whole_again && transfer.writes()
             ? parts->slot_pages.get()
             : directory_.at(transfer.ref).copy().pages;
}

void Carrier::set_range(Transfer& transfer, std::uint64_t from, std::uint64_t length) {
  transfer.from = from;
  transfer.length = length;
  transfer.stored = 0;
  const SlotPages* const pages = slot_pages_of(transfer);
  if (pages != nullptr && length != 0) {
    const auto first = static_cast<unsigned>(from / pages->page_bytes);
    const auto last = static_cast<unsigned>((from + length) / pages->page_bytes);
    transfer.stored = std::uint64_t{pages->before(last) - pages->before(first)} * pages->page_bytes;
    assert(transfer.stored != 0);
  }
}

// Pages from a slot that lacks some lie one behind the other. Returns the step that brings them to
// their places.
JobStep Carrier::spreads(Transfer& transfer) const {
  if (transfer.stored == 0) {
    return 0;
  }
  Job& job = transfer.job;
  job.slot_pages = slot_pages_of(transfer);
  job.spread_first = static_cast<std::uint32_t>(transfer.from / job.slot_pages->page_bytes);
  job.spread_last =
      static_cast<std::uint32_t>((transfer.from + transfer.length) / job.slot_pages->page_bytes);
  return kSpread;
}

bool Carrier::take_staging(Transfer& transfer) {
  if (!transfer.staging) {
    transfer.staging =
        bounce_.take_staging(transfer.job.transfer, directory_.bytes_of(transfer.ref));
  }
  return static_cast<bool>(transfer.staging);
}

void Carrier::give_staging(Transfer& transfer) {
  if (transfer.staging) {
    bounce_.give_staging(std::exchange(transfer.staging, {}), directory_.bytes_of(transfer.ref));
  }
}

bool Carrier::take_bounce(Transfer& transfer, unsigned pages) {
  const Bounce::Place place = bounce_.take(transfer.job.transfer, pages);
  if (place) {
    set_bounce(transfer, place);
  }
  return static_cast<bool>(place);
}

void Carrier::set_bounce(Transfer& transfer, const Bounce::Place& place) {
  transfer.bounce = place;
  transfer.job.data = bounce_.data(place);
  if (transfer.kind == Transfer::Kind::promote_parts) {
    transfer.job.data -= transfer.from;
  }
}

}  // namespace tiermem
