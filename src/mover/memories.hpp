// The memories of all address spaces, as the mover sees them: a ledger for each. A space has one or
// several, ordered by rank: its first memory is the one that bytes are promoted to by default, and
// victims go towards higher ranks. An extent has at most one frame in each space, and the frame
// names its memory. The stepping thread only.
//
//   all ledgers are ordered by space, then by rank; ledger.index is the position among all of them
//   a ledger's rank is the number of its memory in AddressSpace::memories()
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/arena.hpp"
#include "mover/memory_ledger.hpp"
#include "residency/extents.hpp"
#include "tier/address_space.hpp"
#include "tier/memory.hpp"

namespace tiermem {

class Memories {
 public:
  /// Adds the next space with its memories. Call it before the first step. The records of victims
  /// are for up to `extents_max` extents.
  void add(AddressSpace& space, std::size_t extents_max) {
    assert(spaces_ < kMaxSpaces);
    Space& added = space_[spaces_];
    added.space = &space;
    for (Memory* const memory : space.memories()) {
      assert(memory->number() == added.count);
      MemoryLedger& ledger = ledgers_.emplace_back();
      ledger.tier = memory;
      ledger.space = spaces_;
      ledger.index = static_cast<unsigned>(ledgers_.size() - 1);
      ledger.recency.set_most(extents_max);
      added.ledgers[added.count++] = &ledger;
    }
    assert(added.count != 0);
    ++spaces_;
  }

  unsigned spaces() const { return spaces_; }
  AddressSpace& space(unsigned number) const { return *space_[number].space; }

  // ---- All memories

  auto begin() { return ledgers_.begin(); }
  auto end() { return ledgers_.end(); }
  auto begin() const { return ledgers_.begin(); }
  auto end() const { return ledgers_.end(); }
  /// Returns the number of memories of all spaces.
  unsigned count() const { return static_cast<unsigned>(ledgers_.size()); }
  MemoryLedger& at(unsigned index) { return ledgers_[index]; }
  const MemoryLedger& at(unsigned index) const { return ledgers_[index]; }

  // ---- The memories of one space

  /// Returns the memories of the space, by rank.
  std::span<MemoryLedger* const> in(unsigned space) {
    return {space_[space].ledgers.data(), space_[space].count};
  }
  std::span<const MemoryLedger* const> in(unsigned space) const {
    return {space_[space].ledgers.data(), space_[space].count};
  }
  /// Returns the memory of the lowest rank. The bounce memory, the stock and the charge for records
  /// are in the first memory of the host.
  MemoryLedger& first(unsigned space) { return *space_[space].ledgers[0]; }
  const MemoryLedger& first(unsigned space) const { return *space_[space].ledgers[0]; }
  /// Returns the memory of a frame of the space; the first one for an invalid frame.
  MemoryLedger& of(unsigned space, FrameId frame) { return *find(space, frame); }
  const MemoryLedger& of(unsigned space, FrameId frame) const { return *find(space, frame); }

  /// Returns whether each memory of the space is lost.
  bool lost(unsigned space) const {
    bool all = true;
    for (const MemoryLedger* const memory : in(space)) {
      all = all && memory->lost;
    }
    return all;
  }
  /// Returns whether some memory of the space takes extents: it is not lost, and has not refused
  /// one lately.
  bool any_open(unsigned space, std::int64_t now) const {
    bool any = false;
    for (const MemoryLedger* const memory : in(space)) {
      any = any || (!memory->lost && memory->entry_backoff.over(now));
    }
    return any;
  }
  /// Returns whether something is on its way to be free in the space.
  bool freeing(unsigned space) const {
    bool any = false;
    for (const MemoryLedger* const memory : in(space)) {
      any = any || memory->freeing != 0;
    }
    return any;
  }
  /// Returns the sum of the accounts of the memories of the space.
  FrameUsage usage(unsigned space) const {
    FrameUsage sum;
    for (const MemoryLedger* const memory : in(space)) {
      const FrameUsage its = memory->tier->usage();
      sum.budget += its.budget;
      sum.in_use += its.in_use;
      sum.cached += its.cached;
      sum.leaving += its.leaving;
    }
    return sum;
  }

  // A granted request waits for room in the space: no other request gets any there.
  bool awaited(unsigned space) const { return space_[space].awaited; }
  void set_awaited(unsigned space) { space_[space].awaited = true; }
  void clear_awaited() {
    for (Space& each : space_) {
      each.awaited = false;
    }
  }

 private:
  struct Space {
    AddressSpace* space = nullptr;
    std::array<MemoryLedger*, kMostMemories> ledgers{};  // By rank.
    unsigned count = 0;
    bool awaited = false;
  };

  MemoryLedger* find(unsigned space, FrameId frame) const {
    const Space& its = space_[space];
    const unsigned number = frame.valid() ? frame.memory() : 0;
    assert(number < its.count);
    return its.ledgers[number];
  }

  Deque<MemoryLedger> ledgers_;  // Stable addresses: workers hold `trim`.
  std::array<Space, kMaxSpaces> space_{};
  unsigned spaces_ = 0;
};

}  // namespace tiermem
