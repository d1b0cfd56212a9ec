// Transfers of the block tier: cutting into pieces, queueing, resuming, reporting. Only the mover
// calls this code.

#include <string.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "tier/block.hpp"

namespace tiermem {
namespace {

Code code_of(int native) {
  return native == ENOSPC || native == EDQUOT ? Code::no_capacity : Code::io_error;
}

}  // namespace

template <typename Record>
void BlockTier::push(Queue& queue, Vector<Record>& pool, std::uint32_t index) {
  pool[index].next = kNone;
  if (queue.empty()) {
    queue.head = index;
  } else {
    pool[queue.tail].next = index;
  }
  queue.tail = index;
}

template <typename Record>
std::uint32_t BlockTier::pop(Queue& queue, Vector<Record>& pool) {
  const std::uint32_t index = queue.head;
  queue.head = pool[index].next;
  return index;
}

void BlockTier::submit(const SlotTransfer& transfer) {
  const std::uint64_t whole = SlotAllocator::bytes_of(transfer.slot);
  assert(transfer.offset < whole && transfer.offset % kSmallestExtent == 0);
  const std::uint64_t room = whole - transfer.offset;
  assert(transfer.length > 0 && transfer.length <= room);
  assert(!transfer.to_program ||
         (reinterpret_cast<std::uintptr_t>(transfer.data) | transfer.length) % kSmallestExtent ==
             0);
  if (free_transfers_.empty()) {
    free_transfers_.push_back(static_cast<std::uint32_t>(transfers_.size()));
    transfers_.emplace_back();
  }
  const std::uint32_t index = free_transfers_.back();
  free_transfers_.pop_back();

  const std::uint16_t number = device_of(transfer.slot);
  Device& device = devices_[number];
  Transfer& record = transfers_[index];
  record = Transfer{};
  record.what = transfer;
  record.live = true;
  record.length = transfer.length;
  if (device.counters.direct && !transfer.to_program) {
    const std::uint64_t block = device.block;
    const std::uint64_t rounded = round_up(transfer.length, block);
    record.length = rounded <= room ? rounded : transfer.length;
  }
  record.result.cookie = transfer.cookie;
  record.result.device = number;
  record.result.device_offset = SlotAllocator::offset_of(transfer.slot) + transfer.offset;
  device.outstanding += record.length;
  if (transfer.write) {
    device.promised -= std::min(device.promised, whole);
  }
  push(device.waiting, transfers_, index);
}

void BlockTier::went_past(SlotId slot, std::uint64_t bytes, bool write) {
  Device& device = devices_[device_of(slot)];
  device.promised -= write ? std::min(device.promised, bytes) : 0;
  (write ? device.counters.bytes_written : device.counters.bytes_read) += bytes;
  ++device.counters.requests;
}

// It is not cut into pieces, and not repeated: what is not read at once is left to submit().
SlotCompletion BlockTier::read_here(const SlotTransfer& transfer) {
  SlotCompletion result{.cookie = transfer.cookie,
                        .device = device_of(transfer.slot),
                        .requests = 1,
                        .device_offset = SlotAllocator::offset_of(transfer.slot) + transfer.offset};
  const std::int32_t got = port_.read_here({.device = result.device,
                                            .data = transfer.data,
                                            .offset = result.device_offset,
                                            .length = static_cast<std::uint32_t>(transfer.length)});
  if (got < 0 || static_cast<std::uint64_t>(got) != transfer.length) {
    result.code = Code::io_error;
    result.native = got < 0 ? -got : 0;
  }
  return result;
}

std::size_t BlockTier::reap(std::span<SlotCompletion> completions) {
  IoCompletion batch[64];
  std::size_t n = 0;
  do {
    n = port_.reap(batch);
    for (std::size_t i = 0; i < n; ++i) {
      take(batch[i]);
    }
  } while (n == std::size(batch));
  issue();
  port_.flush();

  std::size_t reported = 0;
  while (reported < completions.size() && !done_.empty()) {
    const std::uint32_t index = pop(done_, transfers_);
    completions[reported++] = transfers_[index].result;
    transfers_[index].live = false;
    free_transfers_.push_back(index);
  }
  return reported;
}

void BlockTier::issue() {
  bool idle = true;
  for (std::uint16_t d = 0; d < devices_.size(); ++d) {
    issue(d);
    idle = idle && devices_[d].outstanding == 0;
  }
  if (idle) {
    // Slots that were freed before they were written leave promises behind; they end here.
    for (Device& device : devices_) {
      device.promised = 0;
    }
  }
}

void BlockTier::issue(std::uint16_t number) {
  Device& device = devices_[number];
  for (;;) {
    if (device.again.empty()) {
      if (device.waiting.empty() || device.open == options_.depth) {
        return;
      }
      if (!coalesce(device)) {
        cut_piece(device);
      }
    }
    const std::uint32_t piece = device.again.head;
    if (transfers_[pieces_[piece].transfer].result.code != Code::ok) {
      pop(device.again, pieces_);
      close_piece(piece);  // Another piece failed, so this one is not needed.
    } else if (send(number, piece)) {
      pop(device.again, pieces_);
    } else {
      return;  // The port is full; its completions call this function again.
    }
  }
}

std::uint32_t BlockTier::take_piece(Device& device) {
  const std::uint32_t record = free_pieces_.back();
  free_pieces_.pop_back();
  Piece& piece = pieces_[record];
  Vector<iovec> vectors = std::move(piece.vectors);  // Keeps its allocated memory.
  vectors.clear();
  piece = Piece{};
  piece.vectors = std::move(vectors);
  ++device.open;
  return record;
}

void BlockTier::give_piece(Device& device, std::uint32_t index) {
  pieces_[index].transfer = kNone;
  free_pieces_.push_back(index);
  --device.open;
}

bool BlockTier::may_run(const Device& device, const Transfer& transfer) const {
  const std::uint64_t at = SlotAllocator::offset_of(transfer.what.slot) + transfer.what.offset;
  const std::uint64_t bits =
      reinterpret_cast<std::uintptr_t>(transfer.what.data) | at | transfer.length;
  // A request is submitted in one way, so transfers to the program's memory are in no run.
  return !transfer.alone && transfer.cut == 0 && !transfer.what.to_program &&
         transfer.length <= kSmallTransfer && (!device.counters.direct || bits % device.block == 0);
}

bool BlockTier::continues(const Transfer& before, const Transfer& transfer) const {
  return transfer.what.write == before.what.write &&
         transfer.result.device_offset == before.result.device_offset + before.length;
}

/// Combines the first waiting transfer with those behind it that continue where it ends on the
/// device, as one piece. Returns false if there is no transfer, or only one.
bool BlockTier::coalesce(Device& device) {
  const std::uint32_t first = device.waiting.head;
  std::uint32_t last = first;
  std::uint32_t next = transfers_[first].next;
  const auto fits = [&](std::uint64_t bytes) {
    return next != kNone && bytes + transfers_[next].length <= options_.piece_bytes &&
           may_run(device, transfers_[next]) && continues(transfers_[last], transfers_[next]);
  };
  if (!may_run(device, transfers_[first]) || !fits(transfers_[first].length)) {
    return false;
  }
  const std::uint32_t record = take_piece(device);
  Piece& piece = pieces_[record];
  piece.transfer = first;
  const auto add = [&](std::uint32_t index) {
    Transfer& transfer = transfers_[index];
    iovec* back = piece.vectors.empty() ? nullptr : &piece.vectors.back();
    if (back != nullptr &&
        static_cast<std::byte*>(back->iov_base) + back->iov_len == transfer.what.data) {
      back->iov_len += transfer.length;  // They are neighbours in memory too.
    } else {
      piece.vectors.push_back({transfer.what.data, transfer.length});
    }
    piece.length += static_cast<std::uint32_t>(transfer.length);
    ++piece.run;
    transfer.cut = transfer.length;
    transfer.open = 1;
  };
  add(first);
  while (piece.run < kMostInRun && fits(piece.length)) {
    last = next;
    next = transfers_[last].next;
    add(last);
  }
  transfers_[first].result.requests = 1;
  device.waiting.head = next;  // The run stays linked from `first` to `last`.
  transfers_[last].next = kNone;
  push(device.again, pieces_, record);
  return true;
}

/// Cuts the next piece of the first waiting transfer, ready to be submitted.
void BlockTier::cut_piece(Device& device) {
  const std::uint32_t index = device.waiting.head;
  Transfer& transfer = transfers_[index];
  const std::uint32_t record = take_piece(device);
  Piece& piece = pieces_[record];
  piece.transfer = index;
  piece.begin = transfer.cut;
  piece.length =
      static_cast<std::uint32_t>(std::min(options_.piece_bytes, transfer.length - transfer.cut));
  transfer.cut += piece.length;
  ++transfer.open;
  ++transfer.result.requests;
  if (transfer.cut == transfer.length) {
    pop(device.waiting, transfers_);
  }
  push(device.again, pieces_, record);
}

bool BlockTier::send(std::uint16_t number, std::uint32_t index) {
  Device& device = devices_[number];
  Piece& piece = pieces_[index];
  const Transfer& transfer = transfers_[piece.transfer];
  const std::uint64_t at = piece.begin + piece.done;
  IoRequest request;
  request.cookie = index;
  request.device = number;
  request.write = transfer.what.write;
  request.data = piece.run == 0 ? transfer.what.data + at
                                : static_cast<std::byte*>(piece.vectors.front().iov_base);
  request.to_program = transfer.what.to_program;
  request.offset = SlotAllocator::offset_of(transfer.what.slot) + transfer.what.offset + at;
  request.length = piece.length - piece.done;
  const std::uint64_t bits =
      reinterpret_cast<std::uintptr_t>(request.data) | request.offset | request.length;
  request.buffered = !device.counters.direct || bits % device.block != 0;
  if (piece.vectors.size() > 1) {
    request.vectors = piece.vectors;
  }
  if (!port_.submit(request)) {
    port_.flush();
    if (!port_.submit(request)) {
      return false;
    }
  }
  piece.buffered = request.buffered;
  transfers_[piece.transfer].result.buffered |= request.buffered;
  ++device.counters.requests;
  return true;
}

void BlockTier::take(const IoCompletion& completion) {
  const auto index = static_cast<std::uint32_t>(completion.cookie);
  assert(completion.cookie < pieces_.size() && pieces_[index].transfer != kNone);
  const Piece& piece = pieces_[index];
  if (piece.run != 0) {
    if (completion.result == static_cast<std::int64_t>(piece.length)) {
      close_run(index);
    } else {
      break_up(index);
    }
  } else if (completion.result < 0) {
    refuse(index, -completion.result);
  } else if (completion.result == 0) {
    const bool write = transfers_[piece.transfer].what.write;
    fail_piece(index, EIO, write ? "no bytes written" : "unexpected end of file");
  } else if (static_cast<std::uint32_t>(completion.result) > piece.length - piece.done) {
    fail_piece(index, EIO, "more bytes than asked for");
  } else {
    advance(index, static_cast<std::uint64_t>(completion.result));
  }
}

void BlockTier::advance(std::uint32_t index, std::uint64_t bytes) {
  Piece& piece = pieces_[index];
  const Transfer& transfer = transfers_[piece.transfer];
  Device& device = devices_[transfer.result.device];
  if (bytes < piece.length - piece.done && !piece.buffered) {
    bytes = bytes / device.block * device.block;  // Direct I/O must resume at the start of a block.
  }
  (transfer.what.write ? device.counters.bytes_written : device.counters.bytes_read) += bytes;
  piece.done += static_cast<std::uint32_t>(bytes);
  if (piece.done == piece.length) {
    close_piece(index);
  } else if (bytes > 0) {
    piece.tries = 0;
    try_again(index);
  } else {
    refuse(index, EAGAIN);
  }
}

void BlockTier::refuse(std::uint32_t index, int native) {
  Piece& piece = pieces_[index];
  Device& device = devices_[transfers_[piece.transfer].result.device];
  if ((native == EINTR || native == EAGAIN) && ++piece.tries < kMostTries) {
    try_again(index);
  } else if (native == EINVAL && !piece.buffered && !options_.require_direct) {
    if (device.counters.direct) {
      device.counters.direct = false;
      set_text(device.counters.reason, "O_DIRECT refused by a transfer: Invalid argument");
    }
    try_again(index);
  } else {
    fail_piece(index, native, strerror(native));
  }
}

void BlockTier::try_again(std::uint32_t index) {
  Transfer& transfer = transfers_[pieces_[index].transfer];
  if (transfer.result.code != Code::ok) {
    close_piece(index);  // As in issue().
    return;
  }
  Device& device = devices_[transfer.result.device];
  ++transfer.result.retries;
  ++device.counters.retries;
  push(device.again, pieces_, index);
}

void BlockTier::fail_piece(std::uint32_t index, int native, const char* why) {
  const Piece& piece = pieces_[index];
  Transfer& transfer = transfers_[piece.transfer];
  Device& device = devices_[transfer.result.device];
  const std::uint64_t offset = SlotAllocator::offset_of(transfer.what.slot) + transfer.what.offset +
                               piece.begin + piece.done;
  ++device.counters.errors;
  device.last_native = native;
  const ErrorInfo text = error_info(Code::io_error, "{} at offset {}: {} (errno {})",
                                    transfer.what.write ? "write" : "read", offset, why, native);
  set_text(device.counters.last_error, text.text);
  if (transfer.result.code == Code::ok) {
    transfer.result.code = code_of(native);
    transfer.result.native = native;
    transfer.result.device_offset = offset;
  }
  close_piece(index);
}

void BlockTier::close_piece(std::uint32_t index) {
  const std::uint32_t owner = pieces_[index].transfer;
  Transfer& transfer = transfers_[owner];
  Device& device = devices_[transfer.result.device];
  give_piece(device, index);
  --transfer.open;
  const bool failed = transfer.result.code != Code::ok;
  if (failed && transfer.cut < transfer.length) {
    // The rest is not cut any more. The transfer is the head of its queue: see the top of
    // block.hpp.
    assert(device.waiting.head == owner);
    pop(device.waiting, transfers_);
    transfer.cut = transfer.length;
  }
  if (transfer.open == 0 && transfer.cut == transfer.length) {
    finish(owner);
  }
}

void BlockTier::close_run(std::uint32_t index) {
  Piece& piece = pieces_[index];
  std::uint32_t member = piece.transfer;
  Device& device = devices_[transfers_[member].result.device];
  const bool write = transfers_[member].what.write;
  (write ? device.counters.bytes_written : device.counters.bytes_read) += piece.length;
  while (member != kNone) {
    const std::uint32_t next = transfers_[member].next;
    transfers_[member].open = 0;
    finish(member);
    member = next;
  }
  give_piece(device, index);
}

/// Discards any progress of the run: each of its transfers is submitted again, alone.
void BlockTier::break_up(std::uint32_t index) {
  std::uint32_t member = pieces_[index].transfer;
  Device& device = devices_[transfers_[member].result.device];
  while (member != kNone) {
    Transfer& transfer = transfers_[member];
    const std::uint32_t next = transfer.next;
    transfer.open = 0;
    transfer.cut = 0;
    transfer.alone = true;
    transfer.result.requests = 0;
    ++transfer.result.retries;
    ++device.counters.retries;
    push(device.waiting, transfers_, member);
    member = next;
  }
  give_piece(device, index);
}

/// No piece of the transfer is in progress: its memory and its slot belong to the caller again.
void BlockTier::finish(std::uint32_t index) {
  Transfer& transfer = transfers_[index];
  devices_[transfer.result.device].outstanding -= transfer.length;
  push(done_, transfers_, index);
}

Status BlockTier::check_invariants() const {
  {
    const std::lock_guard lock(mutex_);
    Status status = slots_.check_invariants();
    if (!status.ok()) {
      return status;
    }
  }
  Vector<std::uint32_t> open(transfers_.size(), 0);
  Vector<std::uint32_t> device_open(devices_.size(), 0);
  for (const Piece& piece : pieces_) {
    if (piece.transfer != kNone) {
      std::uint32_t member = piece.transfer;
      do {
        ++open[member];
        member = transfers_[member].next;
      } while (piece.run != 0 && member != kNone);
      ++device_open[transfers_[piece.transfer].result.device];
    }
  }
  Vector<std::uint64_t> outstanding(devices_.size(), 0);
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    const Transfer& transfer = transfers_[i];
    const std::uint32_t expected = transfer.live ? transfer.open : 0;
    if (open[i] != expected) {
      return fail(Code::internal, "block tier: transfer {} has {} open pieces, not {}", i, open[i],
                  expected);
    }
    if (transfer.live && (transfer.open > 0 || transfer.cut < transfer.length)) {
      outstanding[transfer.result.device] += transfer.length;
    }
  }
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    const Device& device = devices_[d];
    if (device.open != device_open[d] || device.open > options_.depth ||
        device.outstanding != outstanding[d]) {
      return fail(Code::internal, "block tier: device {} has {} open pieces, {} bytes outstanding",
                  d, device.open, device.outstanding);
    }
  }
  return Code::ok;
}

}  // namespace tiermem
