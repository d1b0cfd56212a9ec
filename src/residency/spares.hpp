// Spare buffers: freed ones that kept their record, their extents and their frames for the next of
// the same shape, so that allocating and freeing again need not visit the mover; and small ones
// that the mover made ahead for a program that allocates many. Their extents are `vacant`.
//
// Threads: any; a short mutex for each of a few shards, a thread's own first. What is spare is
// charged to the budget and bounded by a limit that the mover sets; it takes the oldest away before
// it evicts anything else. The counts outside of the shards are changed relaxed: each is right by
// itself, and who reads one only decides whether a shard is worth a look.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace tiermem {

class Spares {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// What must be equal for one buffer to serve as another.
  struct Shape {
    std::uint32_t extents = 0;
    std::uint8_t extent_shift = 0;
    bool windowed = false;
    /// It is tiermem's own memory (kOwnDomain): it serves tiermem again and never a caller.
    bool own = false;
    std::uint64_t bytes() const noexcept { return std::uint64_t{extents} << extent_shift; }
    friend bool operator==(const Shape&, const Shape&) = default;
  };

  /// Most bytes that may be spare from now on. [mover]
  void set_limit(std::uint64_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }
  /// Worth trying to put: cheap, and not a promise.
  bool has_room(Shape shape) const noexcept {
    return bytes_.load(std::memory_order_relaxed) + shape.bytes() <=
           limit_.load(std::memory_order_relaxed);
  }
  /// Keeps the record of a freed buffer; false when there is no room.
  bool put(std::uint32_t index, Shape shape) noexcept;
  /// Same, for one made ahead.
  bool put_made(std::uint32_t index, Shape shape) noexcept;
  /// The spare of this shape that was freed last, by this thread rather than by another; else the
  /// one made first, so that those allocated one after the other lie side by side; or kNone.
  std::uint32_t take(Shape shape) noexcept;
  /// One to be given up, or kNone. [mover]
  std::uint32_t take_oldest() noexcept;

  /// Small buffers of one extent are worth making ahead: visiting the mover for each costs more
  /// than filling it.
  static bool may_stock(Shape shape) noexcept {
    return shape.extents == 1 && !shape.windowed && !shape.own &&
           shape.extent_shift <= kLargestStocked;
  }
  /// One of this shape was allocated, from the spares or not: how many the caller should order from
  /// the mover now, or 0. Until end_order() there is no second order.
  unsigned to_order(Shape shape, bool found) noexcept;
  /// [mover] Not `wanted`: what was made before lies unused. The next order comes much later.
  void end_order(unsigned extent_shift, bool wanted) noexcept;
  /// Of those of one extent, how many are spare now.
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
    bool made = false;  ///< Ahead, and never used.
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
  /// Of single extents, by the logarithm of their size.
  struct Stock {
    std::atomic<unsigned> spare{0};
    std::atomic<int> missed{0};        ///< Allocations that found none.
    std::atomic<bool> ordered{false};  ///< Acquired by who orders, released by end_order().
  };

  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> limit_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::array<Stock, kShifts> stock_;
  unsigned next_victim_ = 0;  // The mover's: shards in turn. Wraps: 2^32 is a multiple of kShards.
};

}  // namespace tiermem
