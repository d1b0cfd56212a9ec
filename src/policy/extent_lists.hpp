// The records of the recency order: 16 bytes for each extent in one flat array, linked into lists
// by index. Recency owns them, and only the mover's thread uses them. Only reserve() allocates. A
// record costs memory from its first use on.
//
// Invariant: a record is in exactly one list. `planned` is the heap of next_use_heap.hpp, and keeps
// its position there in `prev`. units(l) is the sum of the units of the records of l.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "base/reserved_array.hpp"

namespace tiermem {

/// A dense extent number: the index of its record.
using ExtentRef = std::uint32_t;
inline constexpr ExtentRef kNoLink = ~ExtentRef{0};

/// The position of an extent in the order. An `absent` record is not linked: it is only remembered.
enum class Order : std::uint8_t {
  absent,     ///< Not resident.
  fresh,      ///< Just inserted, first seen: references do not count yet; ages into probation.
  returning,  ///< Just inserted, seen before: the same as fresh, but ages into main.
  probation,  ///< First seen; a reference moves it to main.
  main,       ///< Proved useful; a reference gives it another round.
  cold,       ///< Advised cold: first victims.
  streamed,   ///< First victims once they were used.
  kept,       ///< Advised keep: victims only when nothing else is left.
  planned,    ///< Its next use is known.
  leaving,    ///< Selected as a victim, and neither removed nor rejected yet.
};
inline constexpr std::size_t kOrders = 10;

struct ExtentRecord {
  ExtentRef prev = kNoLink;  ///< Towards the head; for `planned` the position in the heap.
  ExtentRef next = kNoLink;  ///< Towards the tail; for an evicted one the clock when it left.
  std::uint32_t stamp = 0;   ///< Clock at its insertion or its last known reference.
  std::uint16_t units = 0;   ///< Size in kUnitBytes, rounded up; 0 before its first insertion.
  Order order : 4 = Order::absent;
  std::uint8_t level : 2 = 0;   ///< Says how soon it returned; see recency.hpp.
  std::uint8_t rounds : 2 = 0;  ///< Further rounds in main that it has without a reference.
  std::uint8_t flags = 0;
};
static_assert(sizeof(ExtentRecord) == 16);

class ExtentLists {
 public:
  /// Sets the max number of extents: the first reserve() reserves address space for all of them.
  /// Call before it.
  void set_most(std::size_t n) { most_ = n; }
  /// Makes room for the extents 0 .. n-1, and possibly some more. Throws std::bad_alloc.
  void reserve(std::size_t n) {
    if (n <= size_) {
      return;
    }
    if (array_ == nullptr || n > array_->size()) {
      move_to(std::max(most_, 2 * n));
    }
    if (!array_->commit(n)) {
      throw std::bad_alloc();
    }
    size_ = n;
  }
  std::size_t size() const { return size_; }
  ExtentRecord& operator[](ExtentRef ref) { return records_[ref]; }
  const ExtentRecord& operator[](ExtentRef ref) const { return records_[ref]; }

  ExtentRef head(Order list) const { return ends(list).head; }
  ExtentRef tail(Order list) const { return ends(list).tail; }
  std::uint64_t units(Order list) const { return ends(list).units; }
  std::uint32_t count(Order list) const { return ends(list).count; }

  void push_head(Order list, ExtentRef ref) {
    Ends& l = ends(list);
    ExtentRecord& record = records_[ref];
    record.prev = kNoLink;
    record.next = l.head;
    (l.head != kNoLink ? records_[l.head].prev : l.tail) = ref;
    l.head = ref;
    enter(list, ref);
  }
  void push_tail(Order list, ExtentRef ref) {
    Ends& l = ends(list);
    ExtentRecord& record = records_[ref];
    record.next = kNoLink;
    record.prev = l.tail;
    (l.tail != kNoLink ? records_[l.tail].next : l.head) = ref;
    l.tail = ref;
    enter(list, ref);
  }
  /// Removes a linked record from its list; it is absent until pushed again.
  void unlink(ExtentRef ref) {
    ExtentRecord& record = records_[ref];
    Ends& l = ends(record.order);
    (record.prev != kNoLink ? records_[record.prev].next : l.head) = record.next;
    (record.next != kNoLink ? records_[record.next].prev : l.tail) = record.prev;
    leave(ref);
  }
  void rotate(ExtentRef ref) {
    const Order list = records_[ref].order;
    unlink(ref);
    push_head(list, ref);
  }

  void resize(ExtentRef ref, std::uint16_t units) {
    ExtentRecord& record = records_[ref];
    ends(record.order).units += units;
    ends(record.order).units -= record.units;
    record.units = units;
  }

  /// Updates only the accounting of a list, for the heap, which links in its own way.
  void enter(Order list, ExtentRef ref) {
    assert(records_[ref].order == Order::absent && list != Order::absent);
    records_[ref].order = list;
    ends(list).units += records_[ref].units;
    ++ends(list).count;
  }
  void leave(ExtentRef ref) {
    Ends& l = ends(records_[ref].order);
    l.units -= records_[ref].units;
    --l.count;
    records_[ref].order = Order::absent;
  }

 private:
  struct Ends {
    ExtentRef head = kNoLink, tail = kNoLink;
    std::uint32_t count = 0;
    std::uint64_t units = 0;
  };
  Ends& ends(Order list) { return ends_[static_cast<std::size_t>(list)]; }
  const Ends& ends(Order list) const { return ends_[static_cast<std::size_t>(list)]; }

  void move_to(std::size_t n) {
    if (n > kMost) {
      throw std::bad_alloc();
    }
    auto larger = std::make_unique<ReservedArray<ExtentRecord>>(n);
    if (!larger->commit(size_)) {
      throw std::bad_alloc();
    }
    std::copy_n(records_, size_, &(*larger)[0]);
    array_ = std::move(larger);
    records_ = &(*array_)[0];
  }
  // The number of values of an ExtentRef.
  static constexpr std::size_t kMost = std::size_t{1} << 32;

  // All-zero is the state of an absent record that was never used: its links are not read.
  std::unique_ptr<ReservedArray<ExtentRecord>> array_;
  ExtentRecord* records_ = nullptr;  // The data of array_.
  std::size_t size_ = 0;
  std::size_t most_ = 0;
  std::array<Ends, kOrders> ends_{};
};

}  // namespace tiermem
