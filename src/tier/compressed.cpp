#include "tier/compressed.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/checked.hpp"
#include "base/error.hpp"

namespace tiermem {
namespace {

// Returns whether one word fills the page.
bool is_filled(const std::byte* page, std::uint32_t& word) {
  std::memcpy(&word, page, sizeof word);
  // Each word is the same as the next one.
  return std::memcmp(page, page + sizeof word, kSmallestExtent - sizeof word) == 0;
}

}  // namespace

CompressedTier::CompressedTier(std::uint64_t budget)
    : budget_(budget),
      most_(budget),
      cells_((budget + budget / kShare) / kCellBytes),
      next_(cells_.size()),
      slots_(budget / kSmallestExtent * kSlotsPerPage) {
  assert(budget % kSmallestExtent == 0);
}

CompressedTier::~CompressedTier() {
  for (const Slot& slot : std::span(&slots_[0], fresh_slot_)) {
    if (slot.pages != nullptr) {
      arena_free(slot.pages, slot.count * sizeof(Page), alignof(Page));
    }
  }
}

Result<SlotId> CompressedTier::allocate(std::uint64_t bytes, std::uint64_t avoid) {
  const std::uint64_t budget = budget_.load();
  if ((avoid & 1) != 0 || degraded_ || bytes > budget || in_use_ > budget - bytes) {
    return fail(Code::no_capacity,
                "compressed: {} of {} are in use, and an extent needs {}; raise compressed",
                human_bytes(in_use_), human_bytes(budget), human_bytes(bytes));
  }
  if (in_use_ + bytes > physical_.load()) {
    return fail(Code::busy, "compressed: it must grow by {} first; tiermem grows it",
                human_bytes(bytes));
  }
  const std::size_t count = bytes / kSmallestExtent;
  auto* const pages = static_cast<Page*>(arena_allocate(count * sizeof(Page), alignof(Page)));
  if (pages == nullptr) {
    return fail(Code::no_capacity,
                "compressed: allocation of the records of {} failed; free memory",
                human_bytes(bytes));
  }
  std::uint32_t at = unused_slot_ - 1;
  if (unused_slot_ != 0) {
    unused_slot_ = slots_[at].next;
  } else {
    if (fresh_slot_ == slots_.size() || !slots_.commit(fresh_slot_ + 1)) {
      arena_free(pages, count * sizeof(Page), alignof(Page));
      return fail(Code::no_capacity,
                  "compressed: there is no record for one more slot than {}; free memory, or raise "
                  "compressed",
                  fresh_slot_);
    }
    at = fresh_slot_++;
  }
  std::uninitialized_fill_n(pages, count, Page{});
  slots_[at] = {.pages = pages, .count = static_cast<std::uint32_t>(count), .charge = bytes};
  in_use_ += bytes;
  return SlotId{at};
}

void CompressedTier::free(SlotId id) {
  Slot& slot = slots_[id.value];
  for (const Page& page : std::span(slot.pages, slot.count)) {
    give_cells(page);
  }
  in_use_ -= slot.charge;
  arena_free(slot.pages, slot.count * sizeof(Page), alignof(Page));
  slot = {.next = unused_slot_};
  unused_slot_ = static_cast<std::uint32_t>(id.value) + 1;
}

Status CompressedTier::grow(std::uint64_t bytes) {
  constexpr std::uint64_t kStep = std::uint64_t{1} << 20;
  const std::lock_guard lock(mutex_);
  const std::uint64_t physical = physical_.load();
  const std::uint64_t budget = budget_.load();
  if (physical >= budget || bytes > budget - physical) {
    return fail(Code::no_capacity,
                "compressed: it cannot grow by {}, because its budget is {}; raise compressed",
                human_bytes(bytes), human_bytes(budget));
  }
  const std::uint64_t grown = std::min(budget, physical + std::max(bytes, kStep));
  const std::size_t cells = std::min(cells_.size(), (grown + grown / kShare) / kCellBytes);
  if (!cells_.commit(cells) || !next_.commit(cells)) {
    return fail_native(Code::no_capacity, errno,
                       "compressed: allocation of {} failed; lower compressed, or free memory",
                       human_bytes(bytes));
  }
  committed_ = static_cast<std::uint32_t>(cells);
  physical_ = grown;
  return {};
}

// ---- Transfers

void CompressedTier::submit(const SlotTransfer& transfer) {
  assert(!transfer.to_program && transfer.offset % kSmallestExtent == 0);
  (transfer.write ? writes_ : reads_).push_back({.what = transfer});
}

// Reads go first: a request may wait for them.
std::size_t CompressedTier::reap(std::span<SlotCompletion> completions) {
  std::size_t n = 0;
  for (unsigned work = 0; work < kWork && n < completions.size() && pending();) {
    Deque<Running>& queue = reads_.empty() ? writes_ : reads_;
    Running& running = queue.front();
    work += running.what.write ? kWriteWork : 1;
    const bool ok = run_page(running);
    if (!ok || running.done >= running.what.length) {
      completions[n++] = {.cookie = running.what.cookie,
                          .code = ok ? Code::ok : Code::io_error,
                          .native = ok                   ? 0
                                    : running.what.write ? ENOSPC
                                                         : EIO,
                          .requests = 1,
                          .device_offset = running.what.offset + running.done};
      queue.pop_front();
    }
  }
  return n;
}

SlotCompletion CompressedTier::read_here(const SlotTransfer& transfer) {
  SlotCompletion result{.cookie = transfer.cookie, .requests = 1};
  for (std::uint64_t done = 0; done < transfer.length; done += kSmallestExtent) {
    result.device_offset = transfer.offset + done;
    if (!read(page_at(transfer, done), transfer.data + done)) {
      result.code = Code::io_error;
      result.native = EIO;
      break;
    }
  }
  return result;
}

CompressedTier::Page& CompressedTier::page_at(const SlotTransfer& transfer, std::uint64_t done) {
  const Slot& slot = slots_[transfer.slot.value];
  const std::uint64_t number = (transfer.offset + done) / kSmallestExtent;
  assert(slot.pages != nullptr && number < slot.count);
  return slot.pages[number];
}

bool CompressedTier::run_page(Running& running) {
  const SlotTransfer& what = running.what;
  Page& page = page_at(what, running.done);
  const bool ok = what.write ? write(slots_[what.slot.value], page, what.data + running.done)
                             : read(page, what.data + running.done);
  running.done += ok ? kSmallestExtent : 0;
  ++pages_;
  return ok;
}

bool CompressedTier::write(Slot& slot, Page& page, const std::byte* from) {
  std::uint32_t word = 0;
  if (is_filled(from, word)) {
    give_cells(page);
    charge(slot, page.charge(), 0);
    page = {.first = word, .form = Page::Form::filled};
    return true;
  }
  std::array<std::byte, PageCodec::kMostPacked> packed;
  const std::size_t bytes = codec_.pack(from, packed.data());
  return bytes != 0 ? store(slot, page, Page::Form::packed, packed.data(), bytes)
                    : store(slot, page, Page::Form::plain, from, kSmallestExtent);
}

// The cells of the bytes before are taken first. Other slots never lose room to this one.
bool CompressedTier::store(Slot& slot, Page& page, Page::Form form, const std::byte* from,
                           std::size_t bytes) {
  Page stored{.first = kNoCell, .bytes = static_cast<std::uint16_t>(bytes), .form = form};
  const std::uint64_t room = std::uint64_t{committed_.load()} * kCellBytes;
  if (in_use_ - page.charge() + stored.charge() > room) {
    return false;
  }
  give_cells(page);
  charge(slot, page.charge(), stored.charge());
  std::uint32_t* link = &stored.first;
  for (std::size_t at = 0; at < bytes; at += kCellBytes) {
    const std::uint32_t cell = unused_ != kNoCell ? unused_ : fresh_++;
    unused_ = unused_ != kNoCell ? next_[unused_] : kNoCell;
    std::memcpy(cells_[cell].bytes, from + at, std::min<std::size_t>(kCellBytes, bytes - at));
    *link = cell;
    link = &next_[cell];
  }
  page = stored;
  return true;
}

bool CompressedTier::read(const Page& page, std::byte* to) const {
  switch (page.form) {
    case Page::Form::unwritten:
      std::memset(to, 0, kSmallestExtent);
      return true;
    case Page::Form::filled:
      for (std::size_t at = 0; at < kSmallestExtent; at += sizeof page.first) {
        std::memcpy(to + at, &page.first, sizeof page.first);
      }
      return true;
    case Page::Form::plain:
      load(page, to);
      return true;
    case Page::Form::packed:
      break;
  }
  std::array<std::byte, PageCodec::kMostPacked> packed;
  load(page, packed.data());
  return PageCodec::unpack(packed.data(), page.bytes, to);
}

void CompressedTier::load(const Page& page, std::byte* to) const {
  std::uint32_t cell = page.first;
  for (std::size_t at = 0; at < page.bytes; at += kCellBytes) {
    std::memcpy(to + at, cells_[cell].bytes, std::min<std::size_t>(kCellBytes, page.bytes - at));
    cell = next_[cell];
  }
}

void CompressedTier::charge(Slot& slot, std::uint64_t before, std::uint64_t after) {
  slot.charge += after - before;
  in_use_ += after - before;
}

void CompressedTier::give_cells(const Page& page) {
  if (page.form != Page::Form::packed && page.form != Page::Form::plain) {
    return;
  }
  std::uint32_t last = page.first;
  for (std::uint64_t i = 1; i < page.cells(); ++i) {
    last = next_[last];
  }
  next_[last] = unused_;
  unused_ = page.first;
}

Status CompressedTier::check_invariants() const {
  std::uint64_t in_use = 0, cells = 0;
  for (const Slot& slot : std::span(&slots_[0], fresh_slot_)) {
    std::uint64_t charge = 0;
    for (const Page& page : std::span(slot.pages, slot.pages != nullptr ? slot.count : 0)) {
      charge += page.charge();
      cells += page.form == Page::Form::unwritten ? 0 : page.cells();
    }
    if (charge != slot.charge) {
      return fail(Code::internal, "compressed: a slot is charged {} bytes, and {} are found",
                  slot.charge, charge);
    }
    in_use += charge;
  }
  std::uint64_t unused = 0;
  for (std::uint32_t cell = unused_; cell != kNoCell; cell = next_[cell]) {
    ++unused;
  }
  if (in_use != in_use_ || cells + unused != fresh_ || fresh_ > committed_.load()) {
    return fail(
        Code::internal,
        "compressed: {} bytes are charged, {} found; {} cells are used, {} unused, of {} and {}",
        in_use_, in_use, cells, unused, fresh_, committed_.load());
  }
  return {};
}

}  // namespace tiermem
