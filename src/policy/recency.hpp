// The order in which extents leave one memory: hints, then an order that resists scans and loops.
// Pure: events in, victims out; no I/O, clock, locks or randomness. The mover's thread only.
//
// An extent enters `fresh` and stays there while the next 4 % of the memory is inserted. References
// in that time are one use seen many times (a scan touches an extent once for each of its pages),
// and are ignored. It then waits in `probation`, a FIFO. If it has been referenced when its turn
// comes, it moves to `main`, a clock of one bit; otherwise it leaves. fresh + probation may hold
// `small_share` of the memory, 8 to 40 %. Victims come from there only above this share, and
// otherwise from main. This is S3-FIFO with one bit and an adaptive small queue. Fresh bytes are
// therefore not the first victim: at least 8 % of the memory must be inserted after them.
//
// Main holds at least a third of the memory. While it has less, the oldest of probation join it, so
// that the second pass of a loop already finds a part of the first.
//
// The record of an evicted extent stays, so remembering costs nothing and has no limit. When the
// extent returns after R bytes of insertions (R counts from its insertion, or its last reference
// seen):
//   - R <= the memory: a better share would have kept it. It enters main, and the share moves
//     towards the queue it was lost from (as ARC does).
//   - It was lost from main without a reference, or R > the memory: it enters main only if main has
//     less than its third, or if the oldest of main was not referenced for longer than R (as LIRS
//     does). In a loop larger than the memory all R are equal, none displaces another, and main
//     keeps its part.
//
// Touches of mapped memory are seen only when they miss: the references of these extents are
// hidden, so misses must teach (docs/decisions/terms.md). An extent that returns soon after it left
// has been in use, and its level rises, up to 3; if it stays away for longer, its level falls. From
// level 2 on it enters main, and stays there for 2 or 4 rounds without a reference. If most extents
// return soon, the program repeats a loop, and all levels are 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/arena.hpp"
#include "policy/extent_lists.hpp"
#include "policy/levels.hpp"
#include "policy/next_use_heap.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

class Recency {
 public:
  static constexpr std::uint64_t kUnitBytes = 4096;  ///< Unit of sizes.
  static constexpr std::uint64_t kLargestBytes = kUnitBytes * 0xFFFF;

  struct Hint {
    Advice advice = Advice::normal;
    std::uint64_t value = 0;
  };
  /// The mover's answer about an extent. The query reads and clears `referenced`.
  struct Candidate {
    bool movable = false;  ///< It has no pins, is in no transfer, and is not held.
    bool referenced = false;
    bool dirty = false;  ///< Its eviction costs a write.
    std::uint32_t bytes = 0;
  };
  struct Victim {
    ExtentRef ref = 0;
    bool dirty = false;
  };

  /// Whether references of a resident extent can be seen, so that Candidate::referenced tells them.
  enum class References : std::uint8_t { seen, hidden };

  Recency() : planned_(lists_) {}

  /// Sets the max number of extents. Call before the first reserve().
  void set_most(std::size_t n) { lists_.set_most(n); }
  /// Makes room for the extents 0 .. n-1, 16 bytes each, which cost memory once they are used.
  /// Errors: no_capacity: the allocation failed.
  Status reserve(std::size_t n);
  std::size_t capacity() const { return lists_.size(); }

  /// The extent became resident. `bytes` is at most kLargestBytes. The mover clears the reference
  /// bit before.
  void inserted(ExtentRef ref, std::uint64_t bytes, Hint hint,
                References references = References::seen);
  void inserted(ExtentRef ref, std::uint64_t bytes, References references = References::seen) {
    inserted(ref, bytes, Hint(), references);
  }
  /// The extent occupies more memory now. Its position in the order stays the same.
  void grown(ExtentRef ref, std::uint64_t bytes);
  /// The extent left the memory. `keep_ghost`: it was evicted and may return, so remember it.
  /// Otherwise it was freed: forget it and its hints, resident or not.
  void removed(ExtentRef ref, bool keep_ghost);
  /// Returns whether the extent is a victim because of the order, and not because of a hint.
  bool leaves_by_order(ExtentRef ref) const {
    return lists_[ref].order == Order::leaving && (lists_[ref].flags & kByRecency) != 0;
  }
  /// A victim could not leave: it returns to the order, but not as the next victim.
  void rejected(ExtentRef ref);
  /// A victim, of which a part may have left, stays for another turn, and has `bytes` now.
  void passed(ExtentRef ref, std::uint64_t bytes);
  /// Applies a hint. keep and streamed also hold for later residences. The others hold only while
  /// the extent is resident, and have no effect otherwise. With `cold` the mover clears the
  /// reference bit: a later reference means that the extent is not cold.
  void advised(ExtentRef ref, Advice advice, std::uint64_t value);
  /// The program reached this ordinal: uses planned before it are over.
  void tick(std::uint64_t ordinal);
  /// Extents with a next use at most this many ticks ahead are victims only when no others are
  /// left.
  void set_horizon(std::uint64_t ticks) { horizon_ = ticks; }

  /// Appends up to `limit` victims to `out`, best first, until they hold `bytes_needed`; returns
  /// their number. `probe(ref)` returns a Candidate. It is called up to 11 x (limit + 64) times,
  /// and the search continues where the last one stopped. If this was not enough, fewer victims are
  /// returned: call again unless exhausted(). A victim is not returned again before removed(),
  /// rejected() or inserted().
  template <class Probe>
  std::size_t choose(std::uint64_t bytes_needed, unsigned limit, Probe&& probe,
                     Vector<Victim>& out);
  /// Ends the fresh time of each extent that has reached its end. Probes each of them, up to
  /// `looks`. choose() does this too. A mover that calls it every step, after insertions,
  /// distinguishes early references from later ones even while the memory fills and nothing has to
  /// leave.
  template <class Probe>
  void settle(Probe&& probe, unsigned looks = 64);
  /// Returns whether the last choose() found nothing, and all extents were probed since the last
  /// victim: wait for an event.
  bool exhausted() const { return exhausted_; }

  /// Returns the units inserted so far, which wrap.
  std::uint32_t clock() const { return clock_; }
  /// Returns the units of the extents that recency governs: those without a hint, including leaving
  /// ones.
  std::uint64_t pool_units() const;

  /// Sets the clock of insertions, which wraps, before anything else.
  void test_begin_at(std::uint32_t clock) { clock_ = clock; }

  Order order(ExtentRef ref) const { return lists_[ref].order; }
  /// Returns the bytes that it is charged with; 0 if it is not resident.
  std::uint64_t bytes_of(ExtentRef ref) const {
    return ref >= lists_.size() || order(ref) == Order::absent ? 0 : lists_[ref].units * kUnitBytes;
  }
  std::uint64_t bytes(Order list) const { return lists_.units(list) * kUnitBytes; }
  std::uint32_t count(Order list) const { return lists_.count(list); }
  /// Returns the share of the memory that fresh and probation may hold before they provide victims.
  double small_share() const { return small_share_; }
  /// Derives the accounting again from the records. Returns `internal` with a message if it
  /// differs.
  Status check() const;

 private:
  enum Flag : std::uint8_t {
    kKeep = 1,
    kStreamed = 2,
    kTouched = 4,  ///< Counts as a reference at the next probe.
    /// Absent, and was evicted by recency: `stamp`, `next`, `level` and the next two flags are
    /// valid.
    kKnown = 8,
    kFromMain = 16,   ///< Left from main or returning.
    kFailed = 32,     ///< Left main without a reference there.
    kPassed = 64,     ///< Dirty, and skipped once for a clean one.
    kByRecency = 128  ///< Leaving because of the order, not because of a hint.
  };
  static constexpr double kFreshShare = 0.04, kSmallest = 0.08, kLargest = 0.40;
  static constexpr double kMainFloor = 1.0 / 3;  ///< Share of the memory.
  /// Number of dirty candidates held back while looking for clean ones.
  static constexpr unsigned kWindow = 8;

  /// The state of one call of choose().
  struct Search {
    std::uint64_t needed;
    unsigned limit;
    unsigned looks;  ///< Probes left in this stage.
    Vector<Victim>& out;
    std::uint64_t bytes = 0;
    unsigned count = 0;
    bool done() const { return bytes >= needed || count >= limit; }
    bool look() { return looks > 0 && looks-- > 0; }
  };
  struct Aside {
    ExtentRef ref;
    Order from;
    std::uint32_t bytes;
  };

  std::uint64_t small_units() const {
    return lists_.units(Order::fresh) + lists_.units(Order::probation);
  }
  bool main_is_short() const {
    return static_cast<double>(lists_.units(Order::main) + lists_.units(Order::returning)) <
           kMainFloor * static_cast<double>(pool_units());
  }
  Order place_of_newcomer(ExtentRef ref);
  void learn(bool lost_from_main);
  void detach(ExtentRef ref);
  void note_origin(ExtentRef ref);
  void to_main(ExtentRef ref);
  unsigned room_for(Vector<Victim>& out, unsigned limit) const;
  std::uint64_t first_far_ordinal() const;
  void expire(std::size_t entries);
  void give(Search& search, ExtentRef ref, bool dirty, std::uint32_t bytes);

  template <class Probe>
  void take_cold(Search& search, Probe& probe);
  template <class Probe>
  void take_streamed(Search& search, Probe& probe);
  template <class Probe>
  void take_planned(Search& search, std::uint64_t from, Probe& probe);
  template <class Probe>
  void take_recent(Search& search, Probe& probe);
  template <class Probe>
  void take_any(Search& search, Order list, Probe& probe);

  ExtentLists lists_;
  NextUseHeap planned_;
  /// Units inserted so far. Wraps after 16 TiB: an extent that was not referenced for that long
  /// looks younger than it is, and leaves later. Only the order of victims depends on it.
  std::uint32_t clock_ = 0;
  double small_share_ = kSmallest;
  Levels levels_;                          ///< For extents with hidden references.
  double lost_small_ = 1, lost_main_ = 1;  ///< Units evicted recently from each, decaying.
  std::uint64_t ordinal_ = 0, horizon_ = 32;
  std::size_t expiry_cursor_ = 0, planned_cursor_ = 0;
  std::uint64_t barren_small_ = 0, barren_main_ = 0;  ///< Probes since one was movable.
  std::uint64_t barren_rest_ = 0;                     ///< The same for the lists of last resort.
  bool exhausted_ = false;
};

template <class Probe>
std::size_t Recency::choose(std::uint64_t bytes_needed, unsigned limit, Probe&& probe,
                            Vector<Victim>& out) {
  Search search{bytes_needed, room_for(out, limit), 0, out};
  const unsigned looks = search.limit + 64;
  exhausted_ = lists_.size() == 0;  // No extent was ever inserted, so there is none to probe.
  expire(64);
  settle(probe, looks);
  search.looks = looks;
  take_cold(search, probe);
  search.looks = looks;
  take_streamed(search, probe);
  search.looks = looks;
  take_planned(search, first_far_ordinal(), probe);
  search.looks = 4 * looks;
  take_recent(search, probe);
  const bool searched_all =
      barren_small_ >= lists_.count(Order::probation) && barren_main_ >= lists_.count(Order::main);
  if (search.count == 0 && searched_all && !search.done()) {
    search.looks = looks;
    take_planned(search, 0, probe);
    unsigned asked = looks - search.looks;
    search.looks = looks;
    take_any(search, Order::fresh, probe);
    take_any(search, Order::returning, probe);
    asked += looks - search.looks;
    search.looks = looks;
    take_any(search, Order::streamed, probe);
    asked += looks - search.looks;
    search.looks = looks;
    take_any(search, Order::kept, probe);
    barren_rest_ = search.count > 0 ? 0 : barren_rest_ + asked + looks - search.looks;
    const std::uint64_t rest = std::uint64_t{lists_.count(Order::planned)} +
                               lists_.count(Order::fresh) + lists_.count(Order::returning) +
                               lists_.count(Order::streamed) + lists_.count(Order::kept);
    exhausted_ = search.count == 0 && barren_rest_ >= rest;
  }
  return search.count;
}

/// Clears the reference bit, because all references so far belong to the use that brought the
/// extent in.
template <class Probe>
void Recency::settle(Probe&& probe, unsigned looks) {
  const auto least = static_cast<std::uint32_t>(kFreshShare * static_cast<double>(pool_units()));
  for (const auto& [from, to] :
       {std::pair(Order::fresh, Order::probation), std::pair(Order::returning, Order::main)}) {
    while (lists_.count(from) > 0 && clock_ - lists_[lists_.tail(from)].stamp >= least) {
      if (looks-- == 0) {
        return;
      }
      const ExtentRef ref = lists_.tail(from);
      (void)probe(ref);
      lists_[ref].flags &= static_cast<std::uint8_t>(~kTouched);
      lists_.unlink(ref);
      lists_.push_head(to, ref);
    }
  }
  for (; looks > 0 && lists_.count(Order::probation) > 0 && main_is_short(); --looks) {
    const ExtentRef oldest = lists_.tail(Order::probation);
    lists_.unlink(oldest);
    lists_.push_head(Order::main, oldest);
  }
}

template <class Probe>
void Recency::take_cold(Search& search, Probe& probe) {
  for (std::uint32_t n = lists_.count(Order::cold); n > 0 && !search.done() && search.look(); --n) {
    const ExtentRef ref = lists_.tail(Order::cold);
    const Candidate candidate = probe(ref);
    if (candidate.referenced || (lists_[ref].flags & kTouched) != 0) {
      to_main(ref);
    } else if (candidate.movable) {
      give(search, ref, candidate.dirty, candidate.bytes);
    } else {
      lists_.rotate(ref);
    }
  }
}

/// A prefetched extent that was not used yet waits for its use, but not forever.
template <class Probe>
void Recency::take_streamed(Search& search, Probe& probe) {
  const auto patience = static_cast<std::uint32_t>(pool_units() / 2);
  for (std::uint32_t n = lists_.count(Order::streamed); n > 0 && !search.done() && search.look();
       --n) {
    const ExtentRef ref = lists_.tail(Order::streamed);
    const Candidate candidate = probe(ref);
    ExtentRecord& record = lists_[ref];
    if (candidate.referenced) {
      record.flags |= kTouched;
    }
    const bool spent = (record.flags & kTouched) != 0 || clock_ - record.stamp > patience;
    if (spent && candidate.movable) {
      give(search, ref, candidate.dirty, candidate.bytes);
    } else {
      lists_.rotate(ref);
    }
  }
}

/// The farthest next use first, but a clean extent among about the eight farthest before a dirty
/// one. If none of these can move, tries the rest in parts.
template <class Probe>
void Recency::take_planned(Search& search, std::uint64_t from, Probe& probe) {
  while (!search.done() && !planned_.empty() && planned_.top().ordinal >= from) {
    ExtentRef found = kNoLink;
    std::uint64_t farthest = 0;
    Candidate chosen;
    const auto consider = [&](const NextUseHeap::Entry& entry) {
      if (entry.ordinal < from) {
        return;
      }
      const Candidate candidate = probe(entry.ref);
      const bool better = found == kNoLink || (chosen.dirty && !candidate.dirty) ||
                          (chosen.dirty == candidate.dirty && entry.ordinal > farthest);
      if (candidate.movable && better) {
        found = entry.ref;
        farthest = entry.ordinal;
        chosen = candidate;
      }
    };
    const std::size_t front = std::min<std::size_t>(kWindow, planned_.size());
    for (std::size_t i = 0; i < front && (found == kNoLink || chosen.dirty); ++i) {
      if (!search.look()) {
        break;
      }
      consider(planned_.at(i));
    }
    for (std::size_t n = planned_.size(); found == kNoLink && n > 0 && search.look(); --n) {
      planned_cursor_ = (planned_cursor_ + 1) % planned_.size();
      consider(planned_.at(planned_cursor_));
    }
    if (found == kNoLink) {
      return;
    }
    give(search, found, chosen.dirty, chosen.bytes);
  }
}

template <class Probe>
void Recency::take_recent(Search& search, Probe& probe) {
  std::array<Aside, kWindow> aside;
  unsigned waiting = 0;
  Aside spare{kNoLink, Order::absent, 0};
  bool spare_dirty = false;
  // If all probes of a list were blocked, the other list gets the second half of the probes.
  const unsigned patience = search.looks / 2;
  unsigned blocked_small = 0, blocked_main = 0;
  while (!search.done()) {
    const bool small_open =
        lists_.count(Order::probation) > 0 &&
        blocked_small < std::min<std::uint64_t>(lists_.count(Order::probation), patience);
    const bool main_open =
        lists_.count(Order::main) > 0 &&
        blocked_main < std::min<std::uint64_t>(lists_.count(Order::main), patience);
    const bool small_full =
        static_cast<double>(small_units()) >= small_share_ * static_cast<double>(pool_units());
    const bool from_small = small_open && (small_full || !main_open);
    if ((!from_small && !main_open) || !search.look()) {
      break;
    }
    const ExtentRef ref = lists_.tail(from_small ? Order::probation : Order::main);
    ExtentRecord& record = lists_[ref];
    const Candidate candidate = probe(ref);
    const bool has_round = !from_small && record.rounds != 0;
    if (candidate.referenced || (record.flags & kTouched) != 0 || has_round) {
      if (has_round) {
        --record.rounds;
      }
      (from_small ? blocked_small : blocked_main) = 0;
      if (candidate.movable) {
        (from_small ? barren_small_ : barren_main_) = 0;
        if (spare.ref == kNoLink) {
          spare = {ref, Order::main, candidate.bytes};
          spare_dirty = candidate.dirty;
        }
      }
      to_main(ref);
    } else if (!candidate.movable) {
      ++(from_small ? blocked_small : blocked_main);
      ++(from_small ? barren_small_ : barren_main_);
      lists_.rotate(ref);
    } else {
      (from_small ? barren_small_ : barren_main_) = 0;
      if (!candidate.dirty || (record.flags & kPassed) != 0) {
        give(search, ref, candidate.dirty, candidate.bytes);
        continue;
      }
      if (waiting == kWindow) {  // No clean one is near: the first dirty one pays its write.
        const Aside first = aside[0];
        std::move(aside.begin() + 1, aside.end(), aside.begin());
        --waiting;
        lists_.push_tail(first.from, first.ref);
        give(search, first.ref, true, first.bytes);
      }
      aside[waiting++] = {ref, record.order, candidate.bytes};
      lists_.unlink(ref);
    }
  }
  for (unsigned i = 0; i < waiting && !search.done(); ++i) {
    lists_.push_tail(aside[i].from, aside[i].ref);
    give(search, aside[i].ref, true, aside[i].bytes);
    aside[i].ref = kNoLink;
  }
  for (unsigned i = waiting; i-- > 0;) {  // Return the rest in their order, the oldest last.
    if (aside[i].ref != kNoLink) {
      lists_[aside[i].ref].flags |= kPassed;
      lists_.push_tail(aside[i].from, aside[i].ref);
    }
  }
  // All were referenced recently: the first one probed leaves, so that a call makes progress.
  if (search.count == 0 && !search.done() && spare.ref != kNoLink &&
      lists_[spare.ref].order == Order::main) {
    give(search, spare.ref, spare_dirty, spare.bytes);
  }
}

/// Oldest first, regardless of references.
template <class Probe>
void Recency::take_any(Search& search, Order list, Probe& probe) {
  for (std::uint32_t n = lists_.count(list); n > 0 && !search.done() && search.look(); --n) {
    const ExtentRef ref = lists_.tail(list);
    const Candidate candidate = probe(ref);
    if (candidate.movable) {
      give(search, ref, candidate.dirty, candidate.bytes);
    } else {
      lists_.rotate(ref);
    }
  }
}

}  // namespace tiermem
