// The order in which extents give up their slots in one bounded slot tier: those first that have
// been in their slots alone for the longest time. All operations are O(1), for any number of
// extents. Pure; the mover's thread only.
//
// The owner adds an extent when its last copy in memory leaves. It need not remove an extent that
// comes back: it looks at each extent before it drops one, and removes those that do not qualify.
#pragma once

#include <cstddef>
#include <new>

#include "policy/extent_lists.hpp"

namespace tiermem {

class SlotOrder {
 public:
  /// Sets the max number of extents. Call before the first add().
  void set_most(std::size_t n) { lists_.set_most(n); }

  /// Makes the extent the last of the order. Returns false if there is no memory for its record, of
  /// 16 bytes: the extent keeps its slot.
  bool add(ExtentRef ref) noexcept {
    if (ref >= lists_.size()) {
      try {
        lists_.reserve(std::size_t{ref} + 1);
      } catch (const std::bad_alloc&) {
        return false;
      }
    }
    remove(ref);
    lists_.push_tail(kList, ref);
    return true;
  }
  void remove(ExtentRef ref) noexcept {
    if (has(ref)) {
      lists_.unlink(ref);
    }
  }
  bool has(ExtentRef ref) const { return ref < lists_.size() && lists_[ref].order == kList; }
  std::size_t size() const { return lists_.count(kList); }
  /// Returns the first of the order, or kNoLink.
  ExtentRef first() const { return lists_.head(kList); }
  /// Returns the extent after `ref`, which is in the order, or kNoLink.
  ExtentRef after(ExtentRef ref) const { return lists_[ref].next; }

 private:
  static constexpr Order kList = Order::cold;  // Any list but `absent`: there is one only.

  ExtentLists lists_;
};

}  // namespace tiermem
