// The state word of an extent in one address space: its phase, its pins, and whether a slot has its
// bytes.
//
//                    promote            land, map              another space reads
//        ┌── none ─────────────▶ incoming ─────────▶ exclusive ◀────────────────▶ shared
//        │    ▲  ▲                 │    │             │    ▲      invalidate        │
//        │    │  └─────────────────┘    │             │    └── first write of zero   │
//        │    │     failed              ▼             ▼                             ▼
//        │    └──────────────────────  zero         outgoing ◀──────────────────────┘
//        │                      never written         │   evict: no pins, bytes elsewhere
//        │◀───────────────────────────────────────────┘
//        └──▶ lost   wrong checksum, twice, or dropped; overwriting all of it leads to incoming
//
//                     buffer freed             allocated again
//           exclusive ────────────▶ vacant ──────────────────────▶ incoming ─▶ exclusive
//                                     └──▶ outgoing ─▶ zero   evict: no bytes are lost
//
// Each arrow, and each rarer change that is not drawn, is a row of kPhaseChanges with the functions
// that make it. tests/model runs this word through every order of the steps of callers, mover and
// fork. It checks that each row is taken, that no other change occurs, and that the following
// statements hold in every state.
//
// Always true:
//
// * Only the mover changes the phase and clears `dirty`, except in the rows that name Residency.
//   Callers change pins, set `referenced` and `dirty`, and clear `copying`.
// * A pin counts only if the phase it was added to was readable (exclusive, for a writer). A pin
//   that the mover adds to `incoming` also counts: for a stream, or in the step that publishes the
//   extent. The thread that added any other pin removes it, and tells the mover as for a release.
// * `outgoing` is entered only with zero pins.
// * `dirty` means that no slot holds these bytes. All addressable copies of an extent agree on it.
// * `copying` means that no writer has come since the copy in progress began. The mover sets it
//   when it begins to copy this space's bytes and no writer is pinned. A writer clears it before
//   its pin is returned. A copy counts as these bytes only if the mover finds `copying` still set
//   and no writer pinned, in one CAS. It is a flag and not a count of writes: a count could wrap
//   during one slow copy, and the old bytes would count as the newest. An extent has at most one
//   transfer, so the flag has one owner; Carrier::end clears it.
// * `biased` means that a caller may pin the extent by its view's slot alone, without a change of
//   the word: it publishes the slot, runs the light half of a fence, and finds `biased` and a phase
//   that lets it in. `slot_pins` means that slots may hold such pins. It is set together with
//   `biased`, and counts as a writer's pin. Residency::count_slot_pins clears both: it clears
//   `biased`, runs the heavy half of the fence, reads the slots, and adds their pins to the counts.
//   A caller that published its slot before the fence is found there, and one that published it
//   later finds `biased` clear. A caller sets both flags while it holds a pin that counts, if
//   neither is set. It does not during a copy, which would then be in vain. Host space only.
// * `zero` (host space only) means never written: no frame, no slot, reads as zeros.
// * `vacant` (host space only) is the same with a frame that holds old bytes of the same domain. It
//   is never `dirty`. An extent is `booked`, and cannot become vacant, if its bytes have been in a
//   slot or in another space, or may be on their way there. The mover sets `booked` first, and
//   checks afterwards whether the extent is vacant.
// * `at_home` (host space only) means that the bytes are in the frame and the frame is not in its
//   window, or is moving to or from it. Devices can read it, and views cannot. It is entered only
//   with zero pins, and a pin that is added to it does not count.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>

namespace tiermem {

enum class Phase : std::uint8_t {
  none = 0,
  zero,
  incoming,
  shared,
  exclusive,
  outgoing,
  lost,
  vacant
};

const char* phase_name(Phase phase) noexcept;

struct PhaseChange {
  Phase from, to;
  const char* by;  ///< The functions that make the change, of the mover where no class is named.
};

/// All changes of phase that exist.
inline constexpr PhaseChange kPhaseChanges[] = {
    {Phase::none, Phase::zero, "Extents::begin, settle, discard, empty_pages, move_slots"},
    {Phase::none, Phase::incoming, "Promoter::start, Parts::start"},
    {Phase::none, Phase::outgoing, "leave, start_withdraw: of an extent in parts"},
    {Phase::none, Phase::lost, "finish_evict: dropped; drop_from_slots; lose"},
    {Phase::zero, Phase::none, "move_slots, finish_free"},
    {Phase::zero, Phase::incoming, "Promoter::start"},
    {Phase::zero, Phase::lost, "lose: the copy on a device was the only one"},
    {Phase::incoming, Phase::none, "Promoter::undone, Parts::failed, Parts::publish"},
    {Phase::incoming, Phase::zero, "Promoter::undone"},
    {Phase::incoming, Phase::lost, "Promoter::undone"},
    {Phase::incoming, Phase::shared, "publish: copied from another space"},
    {Phase::incoming, Phase::exclusive, "Promoter::publish, Parts::publish, pin_vacant"},
    {Phase::incoming, Phase::outgoing, "Promoter::undo: the frame is in its window"},
    {Phase::incoming, Phase::vacant, "publish: made for the stock; Residency::pin_vacant undone"},
    {Phase::shared, Phase::exclusive, "settle: the other copies have gone"},
    {Phase::shared, Phase::outgoing, "leave, take_over"},
    {Phase::exclusive, Phase::shared, "publish, lets_in: another space has these bytes"},
    {Phase::exclusive, Phase::outgoing, "leave, start_withdraw, take_over"},
    {Phase::exclusive, Phase::vacant, "Residency::make_spare"},
    {Phase::outgoing, Phase::none, "finish_evict, finish_part, drop_ended, stay, Promoter::undone"},
    {Phase::outgoing, Phase::zero, "Promoter::undone"},
    {Phase::outgoing, Phase::lost, "Promoter::undone"},
    {Phase::outgoing, Phase::exclusive, "stay, give_back_source"},
    {Phase::lost, Phase::none, "publish: overwritten in another space; discard, finish_free"},
    {Phase::lost, Phase::zero, "discard"},
    {Phase::lost, Phase::incoming, "Promoter::start: to be overwritten"},
    {Phase::vacant, Phase::incoming, "Residency::pin_vacant"},
    {Phase::vacant, Phase::outgoing, "leave"},
};

constexpr bool may_change(Phase from, Phase to) noexcept {
  for (const PhaseChange& change : kPhaseChanges) {
    if (change.from == from && change.to == to) {
      return true;
    }
  }
  return from == to;
}

/// The thread that changes a phase calls it with the word just after the change. It is also called,
/// with from == to, when a frame is in its window again. Null except in tests, which count changes
/// and check what a caller would find at this instant. Set while no other thread runs.
using PhaseChanged = void (*)(const void* word, Phase from, Phase to) noexcept;
inline constinit PhaseChanged phase_changed = nullptr;

/// A value of the word, decoded: flags, then the count of writers, then the count of readers.
///
/// Each count has kMostAdders more values than a pin may reach. A thread adds its pin first and
/// removes it if the limit was reached. So each thread adds at most one pin beyond the limit, and
/// no count carries into its neighbour. The count of readers is at the top: a pin of either kind
/// that is removed once too often borrows from no count of writers.
template <unsigned kWriterBits, unsigned kReaderBits, std::uint32_t kMaxPins>
struct BasicExtentBits {
  std::uint64_t bits = 0;

  static constexpr std::uint64_t kPhaseMask = 7;
  static constexpr std::uint64_t kDirty = 1u << 3;
  static constexpr std::uint64_t kReferenced = 1u << 4;
  static constexpr std::uint64_t kKnownElsewhere = 1u << 5;
  static constexpr std::uint64_t kAtHome = 1u << 6;
  static constexpr std::uint64_t kCopying = 1u << 7;
  static constexpr std::uint64_t kBiased = 1u << 8;
  static constexpr std::uint64_t kSlotPins = 1u << 9;
  static constexpr unsigned kWriterShift = 10;
  static constexpr unsigned kReaderShift = kWriterShift + kWriterBits;
  static constexpr std::uint64_t kWriterOne = std::uint64_t{1} << kWriterShift;
  static constexpr std::uint64_t kReaderOne = std::uint64_t{1} << kReaderShift;
  static constexpr std::uint64_t kWriterMask = ((std::uint64_t{1} << kWriterBits) - 1)
                                               << kWriterShift;
  static constexpr std::uint64_t kReaderMask = ((std::uint64_t{1} << kReaderBits) - 1)
                                               << kReaderShift;
  static constexpr std::uint64_t kPinMask = kReaderMask | kWriterMask;
  static constexpr std::uint32_t kMaxReaders = kMaxPins;
  static constexpr std::uint32_t kMaxWriters = kMaxPins;
  /// Max threads that may be adding a pin to one word at the same time.
  static constexpr std::uint64_t kMostAdders =
      (std::uint64_t{1} << (kWriterBits < kReaderBits ? kWriterBits : kReaderBits)) - 1 - kMaxPins;
  static_assert(kReaderShift + kReaderBits <= 64);

  Phase phase() const { return static_cast<Phase>(bits & kPhaseMask); }
  bool dirty() const { return (bits & kDirty) != 0; }
  bool referenced() const { return (bits & kReferenced) != 0; }
  bool known_elsewhere() const { return (bits & kKnownElsewhere) != 0; }
  bool at_home() const { return (bits & kAtHome) != 0; }
  bool copying() const { return (bits & kCopying) != 0; }
  bool biased() const { return (bits & kBiased) != 0; }
  /// Returns whether slots of views may hold pins that the counts do not have.
  bool slot_pins() const { return (bits & kSlotPins) != 0; }
  std::uint32_t readers() const {
    return static_cast<std::uint32_t>((bits & kReaderMask) >> kReaderShift);
  }
  std::uint32_t writers() const {
    return static_cast<std::uint32_t>((bits & kWriterMask) >> kWriterShift);
  }
  bool pinned() const { return (bits & (kPinMask | kSlotPins)) != 0; }
  bool counted_pins() const { return (bits & kPinMask) != 0; }
  bool readable() const { return phase() == Phase::shared || phase() == Phase::exclusive; }
  bool writable() const { return phase() == Phase::exclusive; }
  /// For views: an extent at home counts as absent. One comparison, as in the hit path.
  bool view_readable() const {
    const std::uint64_t phase = bits & (kPhaseMask | kAtHome);
    return phase == static_cast<std::uint64_t>(Phase::shared) ||
           phase == static_cast<std::uint64_t>(Phase::exclusive);
  }
  bool view_writable() const {
    return (bits & (kPhaseMask | kAtHome)) == static_cast<std::uint64_t>(Phase::exclusive);
  }
  /// Returns whether a slot that was published before holds the extent for a view.
  bool readable_by_slot() const {
    const std::uint64_t phase = bits & (kPhaseMask | kAtHome | kBiased);
    return phase == (static_cast<std::uint64_t>(Phase::exclusive) | kBiased) ||
           phase == (static_cast<std::uint64_t>(Phase::shared) | kBiased);
  }
  bool writable_by_slot() const {
    return (bits & (kPhaseMask | kAtHome | kBiased | kDirty)) ==
           (static_cast<std::uint64_t>(Phase::exclusive) | kBiased | kDirty);
  }
  /// Returns whether there are writers: a pin that counts, or one that a slot may hold.
  bool writing() const { return (bits & (kWriterMask | kSlotPins)) != 0; }
  /// Returns whether a writer's pin counts. In another phase, its thread is about to remove the
  /// pin.
  bool has_writer() const { return view_writable() && writing(); }
  /// Returns whether the bytes are those that the copy in progress has read: no writer came since
  /// it began.
  bool unwritten() const { return copying() && !has_writer(); }
};
using ExtentBits = BasicExtentBits<26, 28, 1u << 20>;
/// Linux has at most 2^22 threads (PID_MAX_LIMIT).
static_assert(ExtentBits::kMostAdders >= std::uint64_t{1} << 22);
static_assert(ExtentBits::kReaderShift + 28 == 64);

enum class Pin : std::uint8_t { ok, miss, busy };

/// Memory orders. All changes of one word have one order on which every thread agrees. A relaxed
/// change of a flag is seen in the same value as the pins and the phase beside it. Nothing outside
/// the word depends on it. Loads are acquire: a thread that sees a phase sees everything done
/// before it was set, the frame and its bytes. As the first guess of a CAS they could be weaker. An
/// operation that precedes a read of another variable, the generation or pins_wanted, is
/// sequentially consistent.
///
/// Atomic is std::atomic, and in the model a type that makes every access a step. ExtentBits is the
/// type above, and in one test of the model a type with counts of two bits.
template <typename Atomic, typename ExtentBits = tiermem::ExtentBits>
class BasicExtentWord {
 public:
  // ---- Callers, any thread -------------------------------------------------------------------

  /// One fetch_add. Sequentially consistent, because the caller next reads the handle's generation,
  /// and the freeing thread changes the generation before it looks at pins. As an acquire it pairs
  /// with set_phase (the frame's bytes and its address are seen) and with a writer's unpin_write.
  Pin pin_read() noexcept {
    const ExtentBits old{bits_.fetch_add(ExtentBits::kReaderOne, std::memory_order_seq_cst)};
    if (!old.view_readable() || old.readers() >= ExtentBits::kMaxReaders) [[unlikely]] {
      bits_.fetch_sub(ExtentBits::kReaderOne, std::memory_order_seq_cst);
      return old.view_readable() ? Pin::busy : Pin::miss;
    }
    if (!old.referenced()) [[unlikely]] {
      // A hint: nothing depends on its order.
      bits_.fetch_or(ExtentBits::kReferenced, std::memory_order_relaxed);
    }
    return Pin::ok;
  }

  /// One fetch_add if the extent is dirty, referenced, and not being copied. Sets `dirty` and
  /// clears `copying` before it returns: from here on neither the slot nor a copy in progress
  /// counts as a copy of the bytes.
  Pin pin_write() noexcept {
    const ExtentBits old{bits_.fetch_add(ExtentBits::kWriterOne, std::memory_order_seq_cst)};
    if (!old.view_writable() || old.writers() >= ExtentBits::kMaxWriters) [[unlikely]] {
      bits_.fetch_sub(ExtentBits::kWriterOne, std::memory_order_seq_cst);
      return old.view_writable() ? Pin::busy : Pin::miss;
    }
    constexpr std::uint64_t kSet = ExtentBits::kDirty | ExtentBits::kReferenced;
    if ((old.bits & (kSet | ExtentBits::kCopying)) != kSet) [[unlikely]] {
      // Relaxed is enough. The mover clears `dirty` and sets `copying` only by a CAS that finds no
      // writer, so `old` is valid while our pin is there. Our unpin follows these two changes in
      // the order of the word's changes.
      if (old.copying()) {
        bits_.fetch_and(~ExtentBits::kCopying, std::memory_order_relaxed);
      }
      bits_.fetch_or(kSet, std::memory_order_relaxed);
    }
    return Pin::ok;
  }

  /// Returns false and changes nothing if there was no such pin: a view released twice.
  /// Sequentially consistent, because the thread next reads the flag with which the mover asks to
  /// report released pins.
  bool unpin_read() noexcept {
    const ExtentBits old{bits_.fetch_sub(ExtentBits::kReaderOne, std::memory_order_seq_cst)};
    if (old.readers() == 0) [[unlikely]] {
      bits_.fetch_add(ExtentBits::kReaderOne, std::memory_order_relaxed);  // Publishes nothing.
      return false;
    }
    return true;
  }

  /// The same as unpin_read. A copy in progress knows of the write since pin_write.
  bool unpin_write() noexcept {
    const ExtentBits old{bits_.fetch_sub(ExtentBits::kWriterOne, std::memory_order_seq_cst)};
    if (old.writers() == 0) [[unlikely]] {
      bits_.fetch_add(ExtentBits::kWriterOne, std::memory_order_relaxed);  // The same as above.
      return false;
    }
    return true;
  }

  /// Lets callers pin by their slots alone from now on. The caller holds a pin that counts. A hint:
  /// it may do nothing.
  void bias() noexcept {
    std::uint64_t seen = bits_.load(std::memory_order_acquire);
    const ExtentBits now{seen};
    if (now.view_readable() && !now.copying() && !now.slot_pins()) {
      // Partner: end_bias. Nothing else depends on the order.
      bits_.compare_exchange_weak(seen, seen | ExtentBits::kBiased | ExtentBits::kSlotPins,
                                  std::memory_order_relaxed);
    }
  }

  /// exclusive → vacant: the buffer was freed, and only this frame has its bytes.
  bool try_vacate() noexcept {
    std::uint64_t seen = bits_.load(std::memory_order_acquire);
    for (;;) {
      const ExtentBits now{seen};
      if (now.phase() != Phase::exclusive || now.pinned() || now.known_elsewhere()) {
        return false;
      }
      constexpr std::uint64_t kGone = ExtentBits::kPhaseMask | ExtentBits::kDirty |
                                      ExtentBits::kReferenced | ExtentBits::kCopying;
      const std::uint64_t next = (seen & ~kGone) | static_cast<std::uint64_t>(Phase::vacant);
      if (bits_.compare_exchange_weak(seen, next, std::memory_order_seq_cst)) {
        changed(Phase::exclusive, Phase::vacant);
        return true;
      }
    }
  }
  /// vacant → incoming, for the caller alone. The caller must call end_claim.
  bool try_claim() noexcept {
    std::uint64_t seen = bits_.load(std::memory_order_acquire);
    for (;;) {
      if (ExtentBits{seen}.phase() != Phase::vacant) {
        return false;
      }
      constexpr std::uint64_t kGone = ExtentBits::kPhaseMask | ExtentBits::kKnownElsewhere;
      const std::uint64_t next = (seen & ~kGone) | static_cast<std::uint64_t>(Phase::incoming);
      if (bits_.compare_exchange_weak(seen, next, std::memory_order_seq_cst)) {
        changed(Phase::vacant, Phase::incoming);
        return true;
      }
    }
  }
  /// Returns the claimed extent to its earlier state.
  void undo_claim() noexcept {
    bits_.fetch_add(
        static_cast<std::uint64_t>(Phase::vacant) - static_cast<std::uint64_t>(Phase::incoming),
        std::memory_order_seq_cst);
    changed(Phase::incoming, Phase::vacant);
  }
  /// Publishes the claimed extent with its new bytes, pinned. Release: publishes them.
  void end_claim(bool writes) noexcept {
    bits_.fetch_or(ExtentBits::kReferenced | (writes ? ExtentBits::kDirty : 0),
                   std::memory_order_relaxed);
    bits_.fetch_add(static_cast<std::uint64_t>(Phase::exclusive) -
                        static_cast<std::uint64_t>(Phase::incoming) +
                        (writes ? ExtentBits::kWriterOne : ExtentBits::kReaderOne),
                    std::memory_order_seq_cst);
    changed(Phase::incoming, Phase::exclusive);
  }

  void touch() noexcept { bits_.fetch_or(ExtentBits::kReferenced, std::memory_order_relaxed); }
  ExtentBits load() const noexcept { return {bits_.load(std::memory_order_acquire)}; }

  // ---- The mover only ------------------------------------------------------------------------

  /// Pins an extent that is `incoming`. The owner of the pin waits for the bytes by other means.
  void pin_incoming(bool writes) noexcept {
    bits_.fetch_add(writes ? ExtentBits::kWriterOne : ExtentBits::kReaderOne,
                    std::memory_order_seq_cst);
    bits_.fetch_or(ExtentBits::kReferenced | (writes ? ExtentBits::kDirty : 0),
                   std::memory_order_relaxed);
  }
  /// Sets the phase, from any phase that callers cannot pin concurrently: see try_outgoing.
  /// Release: publishes the bytes and the address to pin_read and pin_write.
  void set_phase(Phase to) noexcept {
    const Phase from = load().phase();
    assert(may_change(from, to));
    bits_.fetch_add(static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from),
                    std::memory_order_acq_rel);
    changed(from, to);
  }
  /// Marks that the bytes exist elsewhere too from now on. Returns the earlier word: if it was
  /// vacant, the call came too late.
  ExtentBits note_known_elsewhere() noexcept {
    return {bits_.fetch_or(ExtentBits::kKnownElsewhere, std::memory_order_seq_cst)};
  }
  /// Ends the extent's life: it begins the next one in phase none and without flags.
  void end_life() noexcept {
    const Phase from = load().phase();
    assert(may_change(from, Phase::none));
    bits_.fetch_and(~(ExtentBits::kPhaseMask | ExtentBits::kDirty | ExtentBits::kReferenced |
                      ExtentBits::kKnownElsewhere | ExtentBits::kAtHome | ExtentBits::kCopying),
                    std::memory_order_acq_rel);
    changed(from, Phase::none);
  }
  /// From here on callers add pins that count. Sequentially consistent, because the heavy half of a
  /// fence follows, and a look at the slots.
  void end_bias() noexcept { bits_.fetch_and(~ExtentBits::kBiased, std::memory_order_seq_cst); }
  /// The counts have all pins, and no slot can hold another one since end_bias(). One thread at a
  /// time. As an acquire it sees the bytes of each writer that was found to have released.
  void clear_slot_pins() noexcept {
    assert(!load().biased());
    bits_.fetch_and(~ExtentBits::kSlotPins, std::memory_order_acq_rel);
  }
  /// In a child of fork, for an extent that does not follow: the threads that held or were adding
  /// pins do not exist. A thread that had claimed the extent does not exist either.
  void drop_pins(bool claimed) noexcept {
    bits_.fetch_and(~(ExtentBits::kPinMask | ExtentBits::kBiased | ExtentBits::kSlotPins),
                    std::memory_order_relaxed);
    if (claimed) {
      undo_claim();
    }
  }
  void set_dirty() noexcept { bits_.fetch_or(ExtentBits::kDirty, std::memory_order_relaxed); }
  /// For bytes that no caller can reach: phases other than shared and exclusive.
  void clear_dirty() noexcept { bits_.fetch_and(~ExtentBits::kDirty, std::memory_order_relaxed); }
  bool take_referenced() noexcept {
    return (bits_.load(std::memory_order_relaxed) & ExtentBits::kReferenced) != 0 &&
           (bits_.fetch_and(~ExtentBits::kReferenced, std::memory_order_relaxed) &
            ExtentBits::kReferenced) != 0;
  }
  /// Begins a copy of the bytes and sets `copying`. Returns false, with `copying` clear, if a
  /// writer is pinned: a copy made now will not count. Ends an earlier copy of the same transfer.
  /// As an acquire it precedes the copy's reads, and it sees the bytes of each earlier writer.
  bool start_copy() noexcept {
    std::uint64_t seen = bits_.load(std::memory_order_acquire);
    for (;;) {
      const bool written = ExtentBits{seen}.has_writer();
      const std::uint64_t next =
          written ? seen & ~ExtentBits::kCopying : seen | ExtentBits::kCopying;
      if (bits_.compare_exchange_weak(seen, next, std::memory_order_acq_rel)) {
        return !written;
      }
    }
  }
  /// The transfer that began the copy has ended.
  void end_copy() noexcept { bits_.fetch_and(~ExtentBits::kCopying, std::memory_order_relaxed); }
  /// Clears `dirty` if the copied bytes are those of the frame: no writer is pinned, and none has
  /// come since start_copy. As a release it follows the copy's reads, which thus precede the bytes
  /// of any writer that pins after it.
  bool publish_clean() noexcept {
    std::uint64_t seen = bits_.load(std::memory_order_acquire);
    for (;;) {
      if (!ExtentBits{seen}.unwritten()) {
        return false;
      }
      if (bits_.compare_exchange_weak(seen, seen & ~ExtentBits::kDirty,
                                      std::memory_order_acq_rel)) {
        return true;
      }
    }
  }
  /// Enters `outgoing` if no pin holds the extent and, unless `even_dirty`, a slot has its bytes or
  /// it has none.
  bool try_outgoing(bool even_dirty) noexcept {
    std::uint64_t seen = bits_.load(std::memory_order_acquire);
    for (;;) {
      const ExtentBits now{seen};
      const bool leaves = now.readable() || now.phase() == Phase::vacant;
      if (!leaves || now.pinned() || (now.dirty() && !even_dirty)) {
        return false;
      }
      const std::uint64_t next =
          (seen & ~ExtentBits::kPhaseMask) | static_cast<std::uint64_t>(Phase::outgoing);
      if (bits_.compare_exchange_weak(seen, next, std::memory_order_seq_cst)) {
        changed(now.phase(), Phase::outgoing);
        return true;
      }
    }
  }
  /// Enters `at_home` from a readable phase, if no pin holds the extent. The frame may then leave
  /// its window, and the bytes stay readable for the mover.
  bool try_at_home() noexcept {
    std::uint64_t seen = bits_.load(std::memory_order_acquire);
    for (;;) {
      const ExtentBits now{seen};
      if (!now.view_readable() || now.pinned()) {
        return false;
      }
      if (bits_.compare_exchange_weak(seen, seen | ExtentBits::kAtHome,
                                      std::memory_order_seq_cst)) {
        return true;
      }
    }
  }
  /// For bytes that no caller can reach, before a phase publishes them.
  void set_at_home() noexcept { bits_.fetch_or(ExtentBits::kAtHome, std::memory_order_relaxed); }
  /// The frame is in its window, or does not exist any more. Release: publishes the address, like
  /// set_phase.
  void clear_at_home() noexcept {
    const ExtentBits old{bits_.fetch_and(~ExtentBits::kAtHome, std::memory_order_acq_rel)};
    changed(old.phase(), old.phase());
  }
  /// Enters `shared` if the copied bytes are those of the frame: another space has a copy. A
  /// transfer may call it more than once, because a writer cannot pin a shared extent.
  bool try_share() noexcept {
    std::uint64_t seen = bits_.load(std::memory_order_acquire);
    for (;;) {
      const ExtentBits now{seen};
      if (!now.unwritten() || !now.readable()) {
        return false;
      }
      const std::uint64_t next =
          (seen & ~ExtentBits::kPhaseMask) | static_cast<std::uint64_t>(Phase::shared);
      if (bits_.compare_exchange_weak(seen, next, std::memory_order_seq_cst)) {
        changed(now.phase(), Phase::shared);
        return true;
      }
    }
  }
  /// Enters `outgoing` if no pin holds the extent and the copied bytes are those of the frame: the
  /// copy replaces this one.
  bool try_take_over() noexcept {
    std::uint64_t seen = bits_.load(std::memory_order_acquire);
    for (;;) {
      const ExtentBits now{seen};
      if (!now.readable() || now.pinned() || !now.copying()) {
        return false;
      }
      const std::uint64_t next =
          (seen & ~ExtentBits::kPhaseMask) | static_cast<std::uint64_t>(Phase::outgoing);
      if (bits_.compare_exchange_weak(seen, next, std::memory_order_seq_cst)) {
        changed(now.phase(), Phase::outgoing);
        return true;
      }
    }
  }

 protected:         // Accessible to the intentionally wrong words of the model.
  Atomic bits_{0};  // Callers add pins and change flags; the mover changes phase and flags.

 private:
  void changed(Phase from, Phase to) const noexcept {
    if (phase_changed != nullptr) [[unlikely]] {
      phase_changed(this, from, to);
    }
  }
};
using ExtentWord = BasicExtentWord<std::atomic<std::uint64_t>>;
static_assert(sizeof(ExtentWord) == 8);

}  // namespace tiermem
