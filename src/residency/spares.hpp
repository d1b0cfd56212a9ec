// Spare buffers: freed buffers that keep their record, their extents and their frames for the next
// buffer of the same shape. Allocating after freeing then need not reach the mover. The mover also
// makes small spares ahead for a program that allocates many. Extents of spares are `vacant`.
//
// Threads: any. Each of a few shards has a short mutex; a thread uses its own shard first. Spares
// are charged to the budget and bounded by a limit that the mover sets. The mover takes the oldest
// spares before it evicts anything else. The counts outside the shards are relaxed: each is valid
// by itself, and a reader only decides whether a shard is worth a look.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace tiermem {

class Spares {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// The properties that must be equal for one buffer to replace another.
  struct Shape {
    std::uint32_t extents = 0;
    std::uint8_t extent_shift = 0;
    bool windowed = false;
    /// It is tiermem's own memory (kOwnDomain): it serves tiermem again and never a caller.
    bool own = false;
    std::uint64_t bytes() const noexcept { return std::uint64_t{extents} << extent_shift; }
    friend bool operator==(const Shape&, const Shape&) = default;
  };

  /// Sets the max bytes of spares from now on. [mover]
  void set_limit(std::uint64_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }
  /// Returns whether put() may succeed: cheap, and not a guarantee.
  bool has_room(Shape shape) const noexcept {
    return bytes_.load(std::memory_order_relaxed) + shape.bytes() <=
           limit_.load(std::memory_order_relaxed);
  }
  /// Keeps the record of a freed buffer. Returns false if there is no room.
  bool put(std::uint32_t index, Shape shape) noexcept;
  /// The same, for a buffer made ahead.
  bool put_made(std::uint32_t index, Shape shape) noexcept;
  /// Takes a spare of this shape. Prefers the one freed last, and of those one freed by this
  /// thread. Otherwise takes the one made first, so that consecutive allocations are neighbours.
  /// Returns kNone if there is none.
  std::uint32_t take(Shape shape) noexcept;
  /// Takes a spare to be given up, or returns kNone. [mover]
  std::uint32_t take_oldest() noexcept;

  /// Returns whether buffers of this shape are worth making ahead: for a small buffer of one
  /// extent, reaching the mover costs more than filling the buffer.
  static bool may_stock(Shape shape) noexcept {
    return shape.extents == 1 && !shape.windowed && !shape.own &&
           shape.extent_shift <= kLargestStocked;
  }
  /// Records an allocation of this shape, from the spares or not. Returns how many spares the
  /// caller must order from the mover now, or 0. No second order begins before end_order().
  unsigned to_order(Shape shape, bool found) noexcept;
  /// [mover] Ends an order. Not `wanted`: earlier spares are unused, so the next order comes much
  /// later.
  void end_order(unsigned extent_shift, bool wanted) noexcept;
  /// Returns the present number of spares of one extent of this size.
  unsigned in_stock(unsigned extent_shift) const noexcept {
    return stock_[extent_shift].spare.load(std::memory_order_relaxed);
  }

  std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  struct Count {
    std::uint64_t buffers = 0, extents = 0, bytes = 0;
  };
  Count count() noexcept;

 private:
  struct Entry {
    std::uint32_t index;
    Shape shape;
    bool made = false;  ///< Made ahead, and never used.
  };
  static constexpr unsigned kShards = 16;
  static constexpr unsigned kInShard = 16;
  struct alignas(64) Shard {
    std::mutex mutex;
    std::atomic<unsigned> n{0};             // Written under the mutex.
    std::array<Entry, kInShard> entries{};  // Oldest first.
  };
  static unsigned home_shard() noexcept;
  Entry remove(Shard& shard, unsigned at) noexcept;
  bool put_in(Shard& shard, Entry entry) noexcept;
  bool put_in(unsigned shards, Entry entry) noexcept;

  static constexpr std::uint8_t kLargestStocked = 18;
  static constexpr unsigned kShifts = 27;
  static constexpr int kMissesToOrder = 8;
  static constexpr int kMissesToPause = 1000;
  static constexpr unsigned kMostInOrder = 64;
  static constexpr std::uint64_t kMostBytesInOrder = std::uint64_t{1} << 20;
  /// Spares of one extent, by the logarithm of their size.
  struct Stock {
    std::atomic<unsigned> spare{0};
    std::atomic<int> missed{0};  ///< Number of allocations that found none.
    /// Acquired by the ordering thread, released by end_order().
    std::atomic<bool> ordered{false};
  };

  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> limit_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::array<Stock, kShifts> stock_;
  // Used by the mover: takes shards in turn. Wraps: 2^32 is a multiple of kShards.
  unsigned next_victim_ = 0;
};

}  // namespace tiermem
