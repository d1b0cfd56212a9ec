// Rows that gathers request repeatedly, kept apart from their extents. An extent of 2 MiB is not
// promoted for a row of 256 bytes, but a row that a third of all calls want need not be read by
// each of them.
//
// The content is a guess. Each row has the checksum of the block that it was read from. Before a
// caller uses the row, it asks the mover whether the slot still has that block (GatherList::known).
// Writing, freeing or moving a buffer therefore invalidates nothing here.
//
// The cache has sets of 16 KiB. Each is a ring of rows in the order of arrival, with its own mutex.
// A row enters when it is requested a second time while the set remembers the first. The oldest row
// leaves, unless it was requested since it entered or was last spared. Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/arena.hpp"
#include "residency/checksum.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

class RowCache {
 public:
  static constexpr std::uint64_t kSetBytes = std::uint64_t{16} << 10;
  static constexpr std::uint32_t kMostRow = 4096;

  struct Key {
    Handle buffer = 0;
    std::uint64_t from = 0;  ///< Offset in the buffer's window.
    std::uint32_t length = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  /// `memory` holds the rows and outlives this: one set or more.
  explicit RowCache(std::span<std::byte> memory);

  /// Copies the row to `to` and returns the hash of its block. False: the row is not cached.
  bool find(const Key& key, std::byte* to, Checksums::Hash& block);
  /// Offers a row from a block with a verified checksum. The cache may ignore it.
  void offer(const Key& key, const Checksums::Hash& block, const std::byte* row);

 private:
  static constexpr unsigned kMostRows = 128;  // Per set.
  static constexpr unsigned kRemembered = 64;
  static constexpr unsigned kMostSpared = 4;  // Per arriving row.
  static constexpr std::uint8_t kMostUses = 3;

  struct Row {  // In the set's memory, before the bytes.
    Key key;
    Checksums::Hash block;
    std::uint32_t bytes = 0;  // Including this header and the padding that aligns the next row.
    std::uint32_t uses = 0;   // Since it entered or was spared.
  };
  /// The rows are entries of `at` and `tags`, `rows` of them from `first` on, wrapping at the end.
  struct Set {
    std::mutex mutex;
    std::array<std::uint32_t, kMostRows> tags{};
    std::array<std::uint16_t, kMostRows> at{};
    std::uint32_t first = 0, rows = 0;
    std::uint32_t end = 0;  // End of the newest row.
    bool full = false;      // A row has had to leave.
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
