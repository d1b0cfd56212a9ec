// The records of a store: which objects there are, how many bytes they have, and which leave first.
// It moves no byte and knows no context: it answers with the buffers that the caller must free. One
// mutex, held for lookups and changes of records only.
//
//   used == the sum of the charges of all objects, and of those that are being stored
//   used <= capacity
//   objects + those that are being stored <= most
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>

#include "base/arena.hpp"
#include "policy/recency.hpp"
#include "tiermem/store.hpp"

namespace tiermem {

class Shelf {
 public:
  /// The order reserves address space for this many objects.
  static constexpr std::size_t kMostObjects = std::size_t{1} << 24;

  /// `most`: the max number of objects.
  explicit Shelf(std::uint64_t capacity, std::size_t most = kMostObjects);

  /// An object as a reader needs it.
  struct Found {
    Handle buffer = 0;
    std::uint64_t bytes = 0;
    explicit operator bool() const { return buffer != 0; }
  };

  static std::uint64_t charge_of(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

  /// Reserves room for an object of `bytes`. Objects that are dropped for it are appended to
  /// `gone`. Returns false without room. Throws std::bad_alloc: some may have been dropped then.
  bool reserve(std::uint64_t bytes, Vector<Handle>& gone);
  /// The object was not stored.
  void cancel(std::uint64_t bytes);
  /// The object is stored, in room that was reserved. Returns the buffer that it replaces, or 0.
  /// Throws std::bad_alloc; the room is still reserved then.
  Handle add(std::string_view key, Handle buffer, std::uint64_t bytes);
  /// Finds an object for a get, which counts as a use.
  Found use(std::string_view key);
  Found find(std::string_view key) const;
  /// Notes that the object is read from below memory. Returns whether it was read so before, and
  /// not more than `recent` bytes of objects since then.
  bool note_read(std::string_view key, std::uint64_t recent);
  /// Removes the object, or only if it has this buffer. Returns its buffer, or 0.
  Handle remove(std::string_view key, Handle only = 0);
  /// Adds to the pins of an object. Returns false if it does not exist, or has no pin to remove.
  bool pin(std::string_view key, int by);
  /// Removes some object. Returns its buffer, or 0 if there is none. Needs no memory.
  Handle remove_any() noexcept;
  void count_into(StoreStats& stats) const;
  std::uint64_t evicted() const { return evicted_.load(std::memory_order_relaxed); }

 private:
  struct Entry : InArena {
    String key;
    Handle buffer = 0;
    std::uint64_t bytes = 0;
    std::uint32_t number = 0;  // In `entries_`, and in the order.
    std::uint32_t pins = 0;
    std::atomic<bool> used{false};  // Since the order last looked.
    // The bytes of all objects that had been read from below memory after its last such read.
    std::atomic<std::uint64_t> read_at{0};
  };

  Handle take_out(Entry& entry);
  Recency::Candidate look(std::uint32_t number);

  const std::uint64_t capacity_;
  const std::size_t most_;
  mutable std::shared_mutex mutex_;
  // Guarded by mutex_; a reader holds it shared.
  HashMap<std::string_view, Entry*> by_key_;
  Vector<std::unique_ptr<Entry>> entries_;
  Vector<std::uint32_t> free_;
  Recency order_;
  Vector<Recency::Victim> victims_;
  std::uint64_t used_ = 0;
  std::size_t arriving_ = 0;  // Objects that are being stored.
  std::uint64_t pinned_ = 0;  // Objects.
  std::atomic<std::uint64_t> evicted_{0};
  std::atomic<std::uint64_t> read_bytes_{0};  // By all reads from below memory.
};

}  // namespace tiermem
