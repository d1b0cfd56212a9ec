// One movement of one extent: from its start in the mover to its last completion. Only the mover
// touches it.
#pragma once

#include <cstdint>
#include <span>

#include "mover/bounce.hpp"
#include "mover/gather.hpp"
#include "mover/job.hpp"
#include "mover/priority.hpp"
#include "residency/directory.hpp"
#include "tiermem/receipt.hpp"

namespace tiermem {

struct Request;

struct Transfer {
  enum class Kind : std::uint8_t {
    idle,
    promote,  ///< Bytes come into a frame of `space`.
    demote,   ///< Bytes of `space` go to a slot; the frame stays.
    evict,    ///< The frame of `space` leaves its window.
    empty,    ///< Some of an extent's parts are discarded.
    show,     ///< The frame of `space` appears in its window; a device's pinned or not.
    gather,   ///< Blocks are read from a slot to elsewhere; the extent stays where it is.
  };
  /// Where it stands. Promote: staging → prepare → read → land → parked → (published); land →
  /// recopy → staging or land, where the source is written; land → abandoned → (undone), where
  /// streams have pins on what never came.
  /// Demote: (measure →) slot → staging → copy → hash → write → (published); `hash` only where the
  /// slot has the bytes of before, of which perhaps few have changed; `measure` only where a new
  /// slot may need less room than the extent.
  /// Evict, empty: unmap → (done). Show: prepare → (done). Gather: read → (done).
  /// Demote of a mapped extent: (drop →) withdraw → measure → slot → hash → write → (gone), or,
  /// recalled, → remap → (as before). Demote of a partial extent with a slot that cannot be
  /// written: → hash → read (the missing pages) → copy → slot → write, all of it, to another.
  enum class Stage : std::uint8_t {
    staging,
    prepare,
    read,
    land,
    recopy,
    abandoned,
    parked,
    measure,
    slot,
    copy,
    hash,
    write,
    unmap,
    drop,
    withdraw,
    remap
  };

  Kind kind = Kind::idle;
  Stage stage = Stage::prepare;
  Priority priority = Priority::demand;
  Reason reason = Reason::none;
  enum class Outcome : std::uint8_t { undone, moved, failed };
  Outcome outcome = Outcome::undone;  ///< So far: what its receipt says. Undone: it gets none.
  std::uint8_t space = kHost;
  std::uint8_t source =
      kNoSpace;  ///< Promote: the space of the copied bytes; kNoSpace: a slot, or nothing.
  Phase origin =
      Phase::none;       ///< Promote, evict: the phase to go to if it fails, or when it is done.
  bool reading = false;  ///< Promote: from a slot.
  bool clear = false;    ///< Promote: of an extent that was never written.
  bool discard = false;  ///< Promote: nothing comes, the caller overwrites all.
  bool evict_after = false;  ///< Demote: the frame is wanted.
  bool withdrawn = false;    ///< Demote of a mapped extent: the frame leaves its window first.
  bool recalled = false;     ///< Demote, withdrawn: back into the window as soon as may be.
  bool prefetch = false;
  bool stock = false;       ///< Promote: of a spare buffer made ahead. The extent becomes vacant.
  bool retreats = false;    ///< Promote to the host: the source, a device's, is a victim.
  bool mapped = false;      ///< Promote: the frame is in its window.
  bool shows = false;       ///< Promote to a device: it is wanted in its window there.
  bool at_home = false;     ///< Promote to the host: the frame stays out of its window.
  bool takes_home = false;  ///< Promote to a device: the source is on its way out of its window.
  bool by_host = false;     ///< Promote from one device to another: the straight copy was refused.
  bool direct = false;      ///< Its bytes go between the slot and a device past the host.
  /// Promote to a device: the copy's ordinal there, once it has begun. Streams that wait for it
  /// have views by now: the word is `incoming` and pinned.
  std::uint64_t arriving = 0;
  bool written = false;    ///< One of them writes: the slot's bytes will not be these.
  bool took_over = false;  ///< For one of them: the source is `outgoing`, and goes at the end.
  bool undone =
      false;  ///< Evict: of a promote that was given up; the extent goes back to `origin`.
  ExtentRef ref = 0;
  FrameId frame{};
  PageMask pages = 0;        ///< Promote: the parts that come. Demote: those there are. 0: whole.
  PageMask to_write = 0;     ///< Demote, in parts: changed pages that are not written yet.
  bool topping_up = false;   ///< Promote: others of its parts are there already.
  bool whole_again = false;  ///< Demote, in parts: all is put together in `bounce`.
  Bounce::Place bounce;      ///< For pages that arrive, or for the whole extent.
  Staging::Place staging;
  SlotTier* slot_tier = nullptr;
  SlotId slot{};
  bool at_device = false;   ///< `slot_tier` was given it, and has not answered.
  std::uint64_t avoid = 0;  ///< Demote: devices that failed this write.
  std::uint32_t attempts = 0;
  std::uint8_t copied = kNoSpace;  ///< The space for which start_copy() was called.
  Checksums* sums = nullptr;       ///< Demote, first read of an adopted file: new checksums; owned.
  bool rewrites = false;  ///< Demote: the slot has all of the bytes of before, and their checksums.
  std::uint64_t from = 0;           ///< Demote: the first byte written, in the extent.
  std::uint64_t length = 0;         ///< Demote: how many are written.
  std::uint64_t stored = 0;         ///< How many of these a slot that lacks pages has. 0: all.
  SlotPages* slot_pages = nullptr;  ///< Demote: of a slot that the extent does not have yet; owned.
  std::int64_t wear =
      0;  ///< Demote: reserved of the endurance and not written; less than 0 after retries.
  bool hashing = false;      ///< Demote: a hand computes `sums`, beside the write.
  bool write_ended = false;  ///< Demote: `ended` waits for the hand.
  SlotCompletion ended;
  ErrorInfo undo_error{};  ///< For the waiters of a promote that was undone; ok: none.
  Request* parked_for = nullptr;
  Request* gather = nullptr;  ///< The request of the reads; null: it has ended.
  std::span<GatherRead> reads;
  std::uint32_t issued = 0;  ///< Number of reads given to the device.
  std::uint32_t open = 0;    ///< Given and not ended. Demote: runs of pages, likewise.
  ExtentRef into = 0;        ///< Where they go: a pin of its own.
  // For its receipt.
  std::int64_t begun_ns = 0;
  std::uint64_t moved = 0;  ///< Bytes that devices have transferred.
  std::uint32_t requests = 0, retries = 0, depth = 0;
  bool buffered = false;
  Receipt::Path path = Receipt::Path::none;
  std::uint64_t freeing = 0;  ///< Bytes that its end gives back, as counted in Mover::freeing_.
  Job job;
};

}  // namespace tiermem
