// Shards of spare buffers.
#include "residency/spares.hpp"

#include <algorithm>

namespace tiermem {

unsigned Spares::home_shard() noexcept {
  static std::atomic<unsigned> next{0};
  static __thread unsigned t_home __attribute__((tls_model("initial-exec"))) = 0;  // + 1
  if (t_home == 0) {
    t_home = next.fetch_add(1, std::memory_order_relaxed) % kShards + 1;
  }
  return t_home - 1;
}

Spares::Entry Spares::remove(Shard& shard, unsigned at) noexcept {
  const unsigned n = shard.n.load(std::memory_order_relaxed);
  const Entry entry = shard.entries[at];
  std::copy(shard.entries.begin() + at + 1, shard.entries.begin() + n, shard.entries.begin() + at);
  shard.n.store(n - 1, std::memory_order_relaxed);
  bytes_.fetch_sub(entry.shape.bytes(), std::memory_order_relaxed);
  return entry;
}

bool Spares::put(std::uint32_t index, Shape shape) noexcept {
  // Added first: of two threads that both see room for one, at least one sees too much.
  if (bytes_.fetch_add(shape.bytes(), std::memory_order_relaxed) + shape.bytes() <=
      limit_.load(std::memory_order_relaxed)) {
    Shard& shard = shards_[home_shard()];
    std::lock_guard lock(shard.mutex);
    const unsigned n = shard.n.load(std::memory_order_relaxed);
    if (n < kInShard) {
      shard.entries[n] = {index, shape};
      shard.n.store(n + 1, std::memory_order_relaxed);
      return true;
    }
  }
  bytes_.fetch_sub(shape.bytes(), std::memory_order_relaxed);
  return false;
}

std::uint32_t Spares::take(Shape shape) noexcept {
  if (bytes() == 0) {
    return kNone;
  }
  const unsigned home = home_shard();
  for (unsigned i = 0; i < kShards; ++i) {
    Shard& shard = shards_[(home + i) % kShards];
    if (shard.n.load(std::memory_order_relaxed) == 0) {
      continue;
    }
    std::unique_lock lock(shard.mutex, std::defer_lock);
    if (i == 0) {
      lock.lock();
    } else if (!lock.try_lock()) {
      continue;  // Another's, and in use: not worth waiting for.
    }
    for (unsigned at = shard.n.load(std::memory_order_relaxed); at-- > 0;) {
      if (shard.entries[at].shape == shape) {
        return remove(shard, at).index;
      }
    }
  }
  return kNone;
}

std::uint32_t Spares::take_oldest() noexcept {
  for (unsigned i = 0; bytes() != 0 && i < kShards; ++i) {
    Shard& shard = shards_[next_victim_++ % kShards];
    std::lock_guard lock(shard.mutex);
    if (shard.n.load(std::memory_order_relaxed) > 0) {
      return remove(shard, 0).index;
    }
  }
  return kNone;
}

Spares::Count Spares::count() noexcept {
  Count count;
  for (Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    const unsigned n = shard.n.load(std::memory_order_relaxed);
    count.buffers += n;
    for (unsigned i = 0; i < n; ++i) {
      count.extents += shard.entries[i].shape.extents;
    }
  }
  return count;
}

}  // namespace tiermem
