// Slots that are read by another process too, since a fork. As long as a child lives its parent
// neither writes the slots that it had at the fork nor gives them to another extent; to the child
// they are for reading only, for ever. Bookkeeping: no call of the system, no slot tier.
//
// Threads: the mover's only.
//
// Forks are counted from 1, and a slot is stamped with how many there had been when it was
// allocated.
//   Child k reads a slot  iff  stamp < k, and it was not given up before fork k.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/arena.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class SharedSlots {
 public:
  struct Kept {
    SlotId slot{};
    std::uint32_t stamp = 0;  ///< Forks at the allocation of the slot.
    std::uint32_t until = 0;  ///< Forks at the time when the extent gave it up.
  };

  /// Forks that may be counted: a stamp has 32 bits, and a count that begins anew would let the
  /// parent write slots that a child reads. At 1 ms for a fork that is followed, this is 49 days of
  /// nothing but forks.
  static constexpr std::uint32_t kMostForks = ~std::uint32_t{0} - 1;

  /// No further fork can be followed.
  bool is_full() const { return forks_ >= kMostForks; }
  /// For tests, before any slot is stamped: begins at this number of forks.
  void test_begin_at(std::uint32_t forks) { forks_ = forks; }

  /// Returns the stamp for slots that are allocated now.
  std::uint32_t stamp() const { return forks_; }

  /// In the parent, after a fork: a child lives. Its number, for ended().
  std::uint32_t parent_of_child() {
    children_.push_back(++forks_);
    return forks_;
  }
  /// In the child, after the same fork: all slots are the parent's, and so are its other children.
  void child_of_parent() {
    inherited_ = ++forks_;
    children_.clear();
    kept_.clear();
  }

  /// Its bytes may not change: another process reads them.
  bool is_shared(std::uint32_t stamp) const {
    return is_inherited(stamp) || (!children_.empty() && stamp < children_.back());
  }
  /// Its extent gives a slot up. True: the caller frees it. False: it is kept, or the parent's.
  bool give_up(SlotId slot, std::uint32_t stamp) {
    if (is_shared(stamp) && !is_inherited(stamp)) {
      kept_.push_back({slot, stamp, forks_});
    }
    return !is_shared(stamp);
  }
  /// A child has ended. Calls `free(slot)` for each kept slot that no other child reads.
  template <typename Free>
  void ended(std::uint32_t child, Free&& free) {
    std::erase(children_, child);
    std::erase_if(kept_, [&](const Kept& each) {
      const bool over = !is_read(each);
      if (over) {
        free(each.slot);
      }
      return over;
    });
  }

  const Vector<Kept>& kept() const { return kept_; }
  /// Some slots may be the parent's: they are not charged here.
  bool any_inherited() const { return inherited_ != 0; }
  /// Some living child reads it.
  bool is_read(const Kept& each) const {
    const auto first = std::upper_bound(children_.begin(), children_.end(), each.stamp);
    return first != children_.end() && *first <= each.until;
  }

 private:
  bool is_inherited(std::uint32_t stamp) const { return stamp < inherited_; }

  std::uint32_t forks_ = 0;
  std::uint32_t inherited_ = 0;     // Slots stamped below are the parent's.
  Vector<std::uint32_t> children_;  // Those alive, ascending.
  Vector<Kept> kept_;
};

}  // namespace tiermem
