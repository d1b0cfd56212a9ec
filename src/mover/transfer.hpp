// One movement of one extent: from its start in the mover to its last completion. Each kind is a
// type of its own over a common head. Only the engine (mover/transfer_engine.hpp), its families and
// the carrier change transfers.
//
//   transfer.pages != 0  <=>  the kind is promote_parts, demote_parts or empty,
//                             or evict, and other pages of the extent stay
#pragma once

#include <cassert>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "mover/bounce.hpp"
#include "mover/gather.hpp"
#include "mover/job.hpp"
#include "mover/priority.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/stages.hpp"
#include "policy/route.hpp"
#include "residency/checksum.hpp"
#include "residency/directory.hpp"
#include "residency/slot_pages.hpp"
#include "tiermem/receipt.hpp"

namespace tiermem {

struct Request;

/// The head: what every transfer has.
struct Transfer {
  using Kind = TransferKind;
  enum class Outcome : std::uint8_t { undone, moved, failed };

  Kind kind = Kind::idle;
  Stage stage = Stage::start;  ///< Changed by advance() only.
  Priority priority = Priority::demand;
  Reason reason = Reason::none;
  Outcome outcome = Outcome::undone;  ///< So far: what its receipt says. Undone: it gets none.
  std::uint8_t space = kHost;
  std::uint8_t frees_in = 0;  ///< The index of the memory that its end gives `freeing` back to.
  std::uint8_t copied = kNoSpace;  ///< The space for which start_copy() was called.
  bool prefetch = false;
  ExtentRef ref = 0;
  FrameId frame{};
  PageMask pages = 0;  ///< The pages that come, leave, or are discarded. 0: a whole extent.

  // The slot, and the bytes of the extent that it reads or writes next.
  SlotTiers::Entry* slot_tier = nullptr;
  SlotId slot{};
  bool reading = false;                   ///< Its bytes come from the slot.
  Route::Way way = Route::Way::straight;  ///< How they travel.
  bool at_device = false;                 ///< `slot_tier` was given it, and has not answered.
  std::uint64_t from = 0;                 ///< The first byte, in the extent.
  std::uint64_t length = 0;               ///< How many.
  std::uint64_t stored = 0;  ///< How many of these a slot that lacks pages has. 0: all.
  std::uint32_t attempts = 0;

  Bounce::Place bounce;  ///< For pages that arrive, or for the whole extent.
  Staging::Place staging;
  std::uint64_t freeing =
      0;                   ///< Bytes that its end gives back, as counted in MemoryLedger::freeing.
  ErrorInfo undo_error{};  ///< For the waiters of a transfer that was undone; ok: none.

  // For its receipt.
  std::int64_t begun_ns = 0;
  std::uint64_t moved = 0;  ///< Bytes that devices have transferred.
  std::uint32_t requests = 0, retries = 0, depth = 0;
  bool buffered = false;
  Receipt::Path path = Receipt::Path::none;

  Job job;

  /// The bytes go between the slot and a device past the host.
  bool direct() const { return way == Route::Way::direct; }
  bool promotes() const { return kind == Kind::promote || kind == Kind::promote_parts; }
  bool demotes() const { return kind == Kind::demote || kind == Kind::demote_parts; }
  /// It writes to the slot, or will next.
  bool writes() const {
    return kind == Kind::destage ? stage == Stage::write : demotes() && stage != Stage::read;
  }
};

struct Promote : Transfer {
  static constexpr Kind kKind = Kind::promote;

  std::uint8_t source = kNoSpace;  ///< The space of the copied bytes; kNoSpace: a slot, or nothing.
  Phase origin = Phase::none;      ///< The phase to go to if it fails.
  bool clear = false;              ///< The frame is filled with zeros.
  bool discard = false;            ///< Nothing comes, the caller overwrites all.
  bool stock = false;              ///< For a spare buffer made ahead. The extent becomes vacant.
  bool spills = false;             ///< To the host: the source, a device's, is a victim.
  bool mapped = false;             ///< The frame is in its window.
  bool shows = false;              ///< To a device: it is wanted in its window there.
  bool at_home = false;            ///< To the host: the frame stays out of its window.
  bool takes_home = false;         ///< To a device: the source is on its way out of its window.
  bool by_host = false;            ///< From one device to another: the straight copy was refused.
  /// To a device: the copy's ordinal there, once it has begun. Streams that wait for it have views
  /// by now: the word is `incoming` and pinned.
  std::uint64_t arriving = 0;
  bool written = false;    ///< One of these streams writes: the slot's bytes will not be these.
  bool took_over = false;  ///< For one of them: the source is `outgoing`, and goes at the end.
  Request* parked_for = nullptr;
  ChecksumsOwner sums;  ///< First read of an adopted file: new checksums.
};

struct PromoteParts : Transfer {
  static constexpr Kind kKind = Kind::promote_parts;

  bool topping_up = false;  ///< Other pages of the extent are there already.
  bool by_toucher = false;  ///< The touching thread runs the job, which reads, too.
};

struct Demote : Transfer {
  static constexpr Kind kKind = Kind::demote;

  bool evict_after = false;  ///< The frame is wanted.
  bool withdrawn = false;    ///< The extent is mapped: the frame leaves its window first.
  bool recalled = false;     ///< Withdrawn: back into the window as soon as may be.
  bool rewrites = false;     ///< The slot has all of the bytes of before, and their checksums.
  bool hashing = false;      ///< A worker computes `sums`, beside the write.
  bool write_ended = false;  ///< `ended` waits for the worker.
  std::uint8_t tried = 0;    ///< A bit for each tier that has refused the bytes.
  SlotTiers::Entry* to = nullptr;  ///< The tier that gets the bytes.
  std::uint32_t open = 0;   ///< Runs of pages that were given to the device and have not ended.
  SlotCompletion ended;     ///< The sum of the runs that have ended.
  std::uint64_t avoid = 0;  ///< Devices of `to` that failed this write.
  std::int64_t wear = 0;  ///< Reserved of the endurance of `to` and not written; < 0 after retries.
  ChecksumsOwner sums;    ///< For the bytes that it writes.
  SlotPagesOwner slot_pages;  ///< For a slot that the extent does not have yet.
};

/// Always withdrawn. If other pages of the extent stay, `frame` is the extent's own while pages are
/// dropped. For a withdrawal it is one that was split off it.
struct DemoteParts : Demote {
  static constexpr Kind kKind = Kind::demote_parts;

  PageMask to_write = 0;     ///< Changed pages that are not written yet.
  bool whole_again = false;  ///< All is put together in `bounce`, for another slot.
};

struct Evict : Transfer {
  static constexpr Kind kKind = Kind::evict;
};

struct Empty : Transfer {
  static constexpr Kind kKind = Kind::empty;
};

struct Show : Transfer {
  static constexpr Kind kKind = Kind::show;
};

/// `frame` is the frame that is given up.
struct Relocate : Transfer {
  static constexpr Kind kKind = Kind::relocate;

  FrameId to{};         ///< The frame in another memory of the space. The transfer owns it.
  bool climbs = false;  ///< Towards the preferred memory, because it is used or a hint says so.
};

/// From the extent's slot to a slot in another tier, through `frame`. The transfer owns the frame
/// and the other slot.
struct Destage : Transfer {
  static constexpr Kind kKind = Kind::destage;

  SlotTiers::Entry* source = nullptr;
  SlotTiers::Entry* to = nullptr;
  SlotId to_slot{};
  std::uint64_t slot_bytes = 0;  ///< The charge of each slot.
  /// The extent was wanted: it has no transfer any more, and may have been freed. This one ends
  /// with what is under way. So it has its own records of the slot.
  bool deserted = false;
  ChecksumsOwner sums;        ///< Null: the bytes are not checked.
  SlotPagesOwner slot_pages;  ///< Null: the slot has all pages.
};

struct Gather : Transfer {
  static constexpr Kind kKind = Kind::gather;

  Request* request = nullptr;  ///< The request of the reads; null: it has ended.
  std::span<GatherRead> reads;
  std::uint32_t issued = 0;  ///< Number of reads given to the device.
  std::uint32_t open = 0;    ///< Given and not ended.
  unsigned weight = 0;       ///< The weight of the open ones: see Channel.
  ExtentRef into = 0;        ///< Where they go: a pin of its own. kNoExtent: to the program.
};

/// Returns the transfer as its kind. It must be of this kind.
template <typename T>
T& as(Transfer& transfer) {
  assert(transfer.kind == T::kKind);
  return static_cast<T&>(transfer);
}
/// Returns the demote of a whole or of a partial extent.
template <>
inline Demote& as<Demote>(Transfer& transfer) {
  assert(transfer.demotes());
  return static_cast<Demote&>(transfer);
}
/// Returns the transfer as this kind; null if it is of another, or null.
template <typename T>
const T* if_is(const Transfer* transfer) {
  return transfer != nullptr && transfer->kind == T::kKind ? static_cast<const T*>(transfer)
                                                           : nullptr;
}
template <>
inline const Demote* if_is<Demote>(const Transfer* transfer) {
  return transfer != nullptr && transfer->demotes() ? static_cast<const Demote*>(transfer)
                                                    : nullptr;
}

template <typename T, std::derived_from<Transfer> Head>
requires(!std::is_const_v<Head>) T* if_is(Head* transfer) {
  const Transfer* const same = transfer;
  return if_is<T>(same) != nullptr ? &as<T>(*transfer) : nullptr;
}

/// Changes the stage. Asserts that the change exists.
inline void advance(Transfer& transfer, Stage to) {
  assert(may_advance(transfer.kind, transfer.stage, to));
  if (stage_changed != nullptr) [[unlikely]] {
    stage_changed(transfer.kind, transfer.stage, to);
  }
  transfer.stage = to;
}

}  // namespace tiermem
