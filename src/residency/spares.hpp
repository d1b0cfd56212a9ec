// Spare buffers: freed ones that kept their record, their extents and their frames for the next of
// the same shape, so that allocating and freeing again need not visit the mover. Their extents are
// `vacant`.
//
// Threads: any; a short mutex for each of a few shards, a thread's own first. What is spare is
// charged to the budget and bounded by a limit that the mover sets; it takes the oldest away before
// it evicts anything else.
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
  /// Keeps a buffer's record; false when there is no room.
  bool put(std::uint32_t index, Shape shape) noexcept;
  /// The spare of this shape that was put last, by this thread rather than by another; or kNone.
  std::uint32_t take(Shape shape) noexcept;
  /// One to be given up, or kNone. [mover]
  std::uint32_t take_oldest() noexcept;

  std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  struct Count {
    std::uint64_t buffers = 0, extents = 0;
  };
  Count count() noexcept;

 private:
  struct Entry {
    std::uint32_t index;
    Shape shape;
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

  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> limit_{0};
  std::atomic<std::uint64_t> bytes_{0};
  unsigned next_victim_ = 0;  // The mover's: shards in turn.
};

}  // namespace tiermem
