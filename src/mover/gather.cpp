// The reads of gathers, and their ends.
#include <algorithm>
#include <cassert>

#include "mover/gatherer.hpp"

namespace tiermem {

void Gatherer::start(Request& request, std::span<GatherRead> reads) {
  const ExtentRef ref = reads.front().ref;
  Gather& transfer = carrier_.create<Gather>(ref, kHost, Priority::demand);
  advance(transfer, Stage::read);
  transfer.request = &request;
  transfer.reads = reads;
  transfer.into = request.gather->into;
  for (const GatherRead& read : reads) {
    journal_.count(&Stats::demanded, read.rows);
  }
  if (transfer.into != kNoExtent) {
    [[maybe_unused]] const Pin pin = directory_.word(kHost, transfer.into).pin_read();
    assert(pin == Pin::ok);  // The caller has a view of it.
  }
  const SlotCopy copy = directory_.slot_copy(ref);
  transfer.slot_tier = &slots_.of(copy);
  transfer.slot = copy.slot;
  transfer.slot_tier->channel.queue_gather(transfer.job.transfer, transfer.reads);
}

void Gatherer::send_read(Gather& transfer, std::uint32_t number) {
  const GatherRead& read = transfer.reads[number];
  transfer.issued = std::max(transfer.issued, number + 1);
  ++transfer.open;
  transfer.weight += Channel::weight(read);
  journal_.count(&Stats::gather_reads);
  journal_.count(&Stats::gather_bytes, read.length);
  // A file's slots are numbered by the block; others are read from an offset.
  const bool file = transfer.slot_tier->has_files();
  transfer.slot_tier->tier->submit(
      {.cookie = std::uint64_t{number + 1} << 32 | transfer.job.transfer,
       .slot = file ? SlotId{transfer.slot.value + read.offset / kSmallestExtent} : transfer.slot,
       .data = read.data,
       .length = read.length,
       .offset = file ? 0 : read.offset,
       .to_program = read.to_program});
}

namespace {

// The bytes of an adopted file at its first read are those that every later read must find, as in a
// promote. The stepping thread computes this once for each block, in less time than the read took.
void note_first_read(const Directory& directory, ExtentRef ref, const GatherRead& read,
                     std::uint32_t block_bytes) {
  Checksums* const sums = directory.checksums_of_file(ref, block_bytes);
  if (sums == nullptr) {
    return;  // The blocks stay unread.
  }
  const std::uint32_t first = read.offset / sums->block_bytes;
  for (std::uint32_t i = 0; i < read.length / sums->block_bytes; ++i) {
    Checksums::Hash& seen = sums->blocks[first + i];
    if (seen == Checksums::Hash{}) {
      seen = Checksums::hash(read.data + std::uint64_t{i} * sums->block_bytes, sums->block_bytes);
    }
  }
}

}  // namespace

void Gatherer::read_done(const SlotCompletion& completion) {
  Gather& transfer = carrier_.at<Gather>(static_cast<std::uint32_t>(completion.cookie));
  const auto number = static_cast<std::uint32_t>(completion.cookie >> 32) - 1;
  Channel& channel = transfer.slot_tier->channel;
  // Without a request there are no records of the reads, and none went to the program.
  const unsigned weight = transfer.request != nullptr ? Channel::weight(transfer.reads[number])
                                                      : Channel::kGatherWeight;
  channel.read_ended(weight);
  transfer.weight -= weight;
  --transfer.open;
  if (transfer.request == nullptr) {
    if (transfer.open == 0) {
      end(transfer);  // It has left the queue: see desert().
    }
    return;
  }
  GatherRead& read = transfer.reads[number];
  if (completion.code != Code::ok && !read.again) {
    read.again = true;
    journal_.count(&Stats::io_retries);
    channel.read_again(weight);
    send_read(transfer, number);
    return;
  }
  if (completion.code != Code::ok) {
    journal_.count(&Stats::io_errors);
    read.found = GatherRead::Found::failed;
    if (transfer.request->status.ok()) {
      transfer.request->status = carrier_.io_error(transfer, completion);
    }
  } else {
    journal_.note_slot_bytes(*transfer.slot_tier, false, read.length);
    if (checksums_ && transfer.slot_tier->has_files() && !read.to_program) {
      note_first_read(directory_, transfer.ref, read, parts_.checksum_block(transfer.ref));
    }
    const Checksums* const sums = checksums_ ? directory_.at(transfer.ref).copy().sums : nullptr;
    read.sum_bytes = sums != nullptr ? sums->block_bytes : 0;
    if (sums != nullptr) {
      std::copy_n(sums->blocks + read.offset / sums->block_bytes, read.length / sums->block_bytes,
                  read.sums);
    }
    read.found = GatherRead::Found::bytes;
  }
  if (transfer.open == 0 && transfer.issued == transfer.reads.size()) {
    end(transfer);
  }
}

void Gatherer::end(Gather& transfer) {
  const ExtentRef ref = transfer.ref;
  if (transfer.into != kNoExtent) {
    residency_.unpin(PinnedRun::of(transfer.into, 1, kHost, false));
  }
  carrier_.end(transfer);
  carrier_.extent_changed(ref, kHost);
}

bool Gatherer::reads_for(const Request& request, ExtentRef ref) const {
  const Gather* const gather = if_is<Gather>(carrier_.transfer_of(ref));
  return gather != nullptr && gather->request == &request;
}

bool Gatherer::desert(const Request& request) {
  bool awaited = false;
  if (request.kind != RequestKind::gather) {
    return awaited;
  }
  for (const Need& need : request.needs) {
    if (!reads_for(request, need.ref)) {
      continue;
    }
    Gather& transfer = as<Gather>(*carrier_.transfer_of(need.ref));
    const std::uint32_t number = transfer.job.transfer;
    transfer.slot_tier->channel.forget_gather(number);
    const bool to_program = std::any_of(transfer.reads.begin(), transfer.reads.end(),
                                        [](const GatherRead& read) { return read.to_program; });
    if (to_program && transfer.open != 0) {
      transfer.reads = transfer.reads.first(transfer.issued);
      awaited = true;
      continue;
    }
    transfer.request = nullptr;
    transfer.reads = {};
    transfer.issued = 0;
    if (transfer.open == 0) {
      deserted_.push_back(number);  // Not from here: the waiters for the extent would run.
    }
  }
  return awaited;
}

void Gatherer::end_deserted() {
  Vector<std::uint32_t> ended;
  ended.swap(deserted_);
  for (const std::uint32_t at : ended) {
    end(carrier_.at<Gather>(at));
  }
}

}  // namespace tiermem
