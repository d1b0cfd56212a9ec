// The slot tiers of the mover: for each its ledger, its channel, its number and its rank. Up to
// seven tiers that take writes, in the order of demotion, and the tier of adopted files, which
// takes none. The stepping thread only; never waits.
//
//   the number of a tier that takes writes == its rank: bytes are demoted to the lowest that has
//   room
//   tiers that compress have the lowest ranks; another tier that takes writes follows them
//   the number of the tier of adopted files == kFileTier
//   SlotCopy::tier and Transfer::slot_tier name a tier by this number, or by its entry here
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/arena.hpp"
#include "mover/channel.hpp"
#include "mover/slot_ledger.hpp"
#include "policy/compression.hpp"
#include "policy/slot_order.hpp"
#include "residency/slot_copy.hpp"
#include "tier/slot_tier.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

class SlotTiers {
 public:
  struct Entry {
    Entry(SlotTier* of, std::uint8_t at, Workers& workers, const SlotLedger::Options& options)
        : tier(of), number(at), ledger(of, workers, options), channel(of) {}

    SlotTier* const tier;
    const std::uint8_t number;
    SlotLedger ledger;
    Channel channel;
    // Where a tier of higher rank follows. Extents that have changed since may still be in the
    // first order.
    SlotOrder below_memory;  ///< Extents that left memory and have their only slot here.
    SlotOrder replicated;    ///< Extents with their slot here and a replica elsewhere.
    std::uint64_t replicated_bytes = 0;
    std::uint64_t destaging_bytes =
        0;  ///< Slots that will have replicas when transfers have ended.

    /// The tier of adopted files: it is never a destination.
    bool has_files() const { return number == kFileTier; }
    bool takes_writes() const { return !has_files(); }
    /// Position in the order of demotion.
    unsigned rank() const { return number; }
  };

  /// `extents`: the most that there can be. `by_rank`: the tiers that take writes, at most
  /// kMostWritableTiers. `files` may be null. The endurance of `options` is that of the first tier
  /// that does not compress.
  SlotTiers(std::size_t extents, std::span<SlotTier* const> by_rank, SlotTier* files,
            Workers& workers, const SlotLedger::Options& options);
  SlotTiers(const SlotTiers&) = delete;
  SlotTiers& operator=(const SlotTiers&) = delete;

  // ---- Lookups

  Entry& at(std::uint8_t number) { return entries_[position(number)]; }
  const Entry& at(std::uint8_t number) const { return entries_[position(number)]; }
  Entry& of(const SlotCopy& copy) { return at(copy.tier); }
  const Entry& of(const SlotCopy& copy) const { return at(copy.tier); }
  /// Returns the tier with that place, or null.
  Entry* find(Place place);
  /// Returns whether any tier takes writes of every extent.
  bool any_writable() const { return writable_ != compressing_; }

  /// All tiers in the order of their ranks, the files last.
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  /// Those that take writes.
  std::span<Entry* const> writable() { return {by_rank_, writable_}; }
  std::span<const Entry* const> writable() const { return {by_rank_, writable_}; }
  /// Those that take writes of every extent.
  std::span<const Entry* const> lasting() const { return writable().subspan(compressing_); }
  std::span<Entry* const> lasting() { return writable().subspan(compressing_); }
  /// Those of higher rank that take writes. None for adopted files.
  std::span<Entry* const> after(const Entry& entry) {
    return entry.takes_writes() ? writable().subspan(entry.rank() + 1) : std::span<Entry* const>{};
  }

  /// Which extents tiers that compress are offered.
  Compression& compression() { return compression_; }
  /// Returns the bits of the tiers that compress, as in Demote::tried.
  unsigned compressing() const { return (1u << compressing_) - 1; }

  // ---- Answers over all tiers that take writes of every extent

  /// Returns the error of the tier that was asked last, if all of them have one. ok: one has none.
  const ErrorInfo& last_error() const;
  /// Returns whether all tiers have an error, and some of them because no slot is free.
  bool full() const;
  void note_error(Entry& entry, const ErrorInfo& error) {
    entry.ledger.note_error(error);
    note_asked(entry);
  }
  /// Bytes could not leave, before any tier was asked.
  void note_error(const ErrorInfo& error);
  /// The tier has been asked for a slot, or for a write. One that compresses decides no refusal.
  void note_asked(const Entry& entry) {
    asked_last_ = entry.tier->compresses() ? asked_last_ : entry.number;
  }
  /// Writes to all tiers are paused.
  bool paused(std::int64_t now) const;
  /// Returns the first time at which writes to one of the tiers are no longer paused.
  std::int64_t paused_until() const;
  /// Writes are paused, and some request may wait for the next try of some tier.
  bool tries_again(std::int64_t now) const;
  /// Jobs of workers in progress.
  unsigned jobs() const;
  /// Returns when paused writes are tried again, else kNever.
  std::int64_t next(std::int64_t now) const;

  // ---- Snapshots. All tiers that do not compress count the same forks.

  bool can_follow_fork() const;
  std::uint32_t parent_of_child();
  void child_of_parent();
  void child_ended(std::uint32_t child);
  /// Slots wait for the end of a child.
  bool waits_for_child() const;
  void test_begin_near_wrap(std::uint32_t left);

  /// Checks the invariants of the ledgers. Empty, or the breach.
  std::string check() const;

 private:
  std::size_t position(std::uint8_t number) const {
    return number == kFileTier ? writable_ : number;
  }

  Deque<Entry> entries_;  // Stable addresses: workers hold the jobs of ledgers.
  Entry* by_rank_[kMostWritableTiers] = {};
  std::size_t writable_ = 0;
  std::size_t compressing_ = 0;  // The first tiers: those that compress.
  Compression compression_;
  std::uint8_t asked_last_ = 0;
  ErrorInfo error_{};  // For a mover without tiers that take writes.
};

}  // namespace tiermem
