// The extents with a known next use, farthest first: a binary heap over the records of
// extent_lists.hpp. Mover's thread only. It costs 16 more bytes for each extent in it, and none for
// the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "base/arena.hpp"
#include "policy/extent_lists.hpp"

namespace tiermem {

class NextUseHeap {
 public:
  struct Entry {
    std::uint64_t ordinal;  ///< Tick of the next use.
    ExtentRef ref;
  };

  explicit NextUseHeap(ExtentLists& lists) : lists_(lists) {}
  NextUseHeap(const NextUseHeap&) = delete;
  NextUseHeap& operator=(const NextUseHeap&) = delete;

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  const Entry& top() const { return entries_.front(); }
  const Entry& at(std::size_t i) const { return entries_[i]; }

  /// Returns false if the allocation fails: the hint then has no effect, and the record is absent.
  bool push(ExtentRef ref, std::uint64_t ordinal) {
    try {
      entries_.push_back({ordinal, ref});
    } catch (const std::bad_alloc&) {
      return false;
    }
    lists_.enter(Order::planned, ref);
    rise(entries_.size() - 1);
    return true;
  }
  /// Removes an extent from any position, and returns its ordinal.
  std::uint64_t erase(ExtentRef ref) {
    const std::size_t hole = lists_[ref].prev;
    const std::uint64_t ordinal = entries_[hole].ordinal;
    const Entry last = entries_.back();
    entries_.pop_back();
    lists_.leave(ref);
    if (last.ref != ref) {
      put(hole, last);
      rise(hole);
      sink(lists_[last.ref].prev);
    }
    return ordinal;
  }

 private:
  void put(std::size_t i, Entry entry) {
    entries_[i] = entry;
    lists_[entry.ref].prev = static_cast<ExtentRef>(i);
  }
  void rise(std::size_t i) {
    const Entry entry = entries_[i];
    while (i > 0 && entries_[(i - 1) / 2].ordinal < entry.ordinal) {
      put(i, entries_[(i - 1) / 2]);
      i = (i - 1) / 2;
    }
    put(i, entry);
  }
  void sink(std::size_t i) {
    const Entry entry = entries_[i];
    for (;;) {
      std::size_t child = 2 * i + 1;
      if (child >= entries_.size()) {
        break;
      }
      if (child + 1 < entries_.size() && entries_[child].ordinal < entries_[child + 1].ordinal) {
        ++child;
      }
      if (entries_[child].ordinal <= entry.ordinal) {
        break;
      }
      put(i, entries_[child]);
      i = child;
    }
    put(i, entry);
  }

  ExtentLists& lists_;
  Vector<Entry> entries_;
};

}  // namespace tiermem
