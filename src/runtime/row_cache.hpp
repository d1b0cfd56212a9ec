// Rows that gathers ask for again and again, kept apart from the extents that they are parts of:
// an extent of 2 MiB is not brought up for a row of 256 bytes, but a row that a third of all calls
// want need not be read by each of them.
//
// What is here is a guess. With each row comes the checksum of the block that it was read from;
// whoever takes it asks the mover whether the slot still has that block (GatherList::known). So
// nothing has to be withdrawn when a buffer is written, freed or moved.
//
// Sets of 16 KiB, each a ring of rows in the order in which they came, under a mutex of its own. A
// row comes in when it is asked for a second time while the set remembers the first; the oldest
// leaves, unless it was asked for since it came or was last spared. Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/arena.hpp"
#include "mover/checksum.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

class RowCache {
 public:
  static constexpr std::uint64_t kSetBytes = std::uint64_t{16} << 10;
  static constexpr std::uint32_t kMostRow = 4096;

  struct Key {
    Handle buffer = 0;
    std::uint64_t from = 0;  ///< In the buffer's window.
    std::uint32_t length = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  /// `memory` holds the rows and outlives this: at least one set.
  explicit RowCache(std::span<std::byte> memory);

  /// Copies the row to `to` and tells of which block it was. False: it is not here.
  bool find(const Key& key, std::byte* to, Checksums::Hash& block);
  /// The row as it was read from a block whose checksum has been compared. Kept or not.
  void offer(const Key& key, const Checksums::Hash& block, const std::byte* row);

 private:
  static constexpr unsigned kMostRows = 128;  // Of a set.
  static constexpr unsigned kRemembered = 64;
  static constexpr unsigned kMostSpared = 4;  // For one row that comes.
  static constexpr std::uint8_t kMostUses = 3;

  struct Row {  // In the set's memory, before the bytes.
    Key key;
    Checksums::Hash block;
    std::uint32_t bytes = 0;  // With this, and what is needed for the next to be aligned.
    std::uint32_t uses = 0;   // Since it came or was spared.
  };
  /// The rows are those of `at` and `tags` from `first` on, `rows` of them, around the end.
  struct Set {
    std::mutex mutex;
    std::array<std::uint32_t, kMostRows> tags{};
    std::array<std::uint16_t, kMostRows> at{};
    std::uint32_t first = 0, rows = 0;
    std::uint32_t end = 0;  // Of the newest row.
    bool full = false;      // A row had to leave once.
    std::array<std::uint32_t, kRemembered> remembered{};
    std::uint32_t next_remembered = 0;
  };

  static std::uint64_t hash(const Key& key);
  std::size_t number(std::uint64_t hash) const;
  std::byte* memory(const Set& set) const;
  Row& row(const Set& set, std::uint32_t position) const;
  Row* find(Set& set, std::uint32_t tag, const Key& key) const;
  static bool worth(Set& set, std::uint32_t tag);
  void make_room(Set& set, std::uint32_t bytes, unsigned spared) const;
  static void drop_oldest(Set& set);
  static bool fits(const Set& set, std::uint32_t bytes, std::uint32_t& at);
  Row& place(Set& set, std::uint32_t tag, std::uint32_t bytes) const;

  std::byte* const memory_;
  Vector<Set> sets_;
};

}  // namespace tiermem
