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
  if (entry.shape.extents == 1 && !entry.shape.own) {
    stock_[entry.shape.extent_shift].spare.fetch_sub(1, std::memory_order_relaxed);
  }
  return entry;
}

bool Spares::put_in(Shard& shard, Entry entry) noexcept {
  std::lock_guard lock(shard.mutex);
  const unsigned n = shard.n.load(std::memory_order_relaxed);
  if (n == kInShard) {
    return false;
  }
  shard.entries[n] = entry;
  shard.n.store(n + 1, std::memory_order_relaxed);
  if (entry.shape.extents == 1 && !entry.shape.own) {
    stock_[entry.shape.extent_shift].spare.fetch_add(1, std::memory_order_relaxed);
  }
  return true;
}

// Tries the thread's own shard first.
bool Spares::put_in(unsigned shards, Entry entry) noexcept {
  const std::uint64_t bytes = entry.shape.bytes();
  // Add first: if two threads both see room for one, at least one of them sees too much.
  if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes <=
      limit_.load(std::memory_order_relaxed)) {
    for (unsigned i = 0; i < shards; ++i) {
      if (put_in(shards_[(home_shard() + i) % kShards], entry)) {
        return true;
      }
    }
  }
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

bool Spares::put(std::uint32_t index, Shape shape) noexcept {
  return put_in(1, {index, shape});
}

bool Spares::put_made(std::uint32_t index, Shape shape) noexcept {
  return put_in(kShards, {index, shape, true});
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
      continue;  // Another thread uses this shard: it is not worth waiting for.
    }
    unsigned found = kInShard;
    for (unsigned at = shard.n.load(std::memory_order_relaxed); at-- > 0;) {
      if (shard.entries[at].shape == shape) {
        found = at;
        if (!shard.entries[at].made) {
          break;
        }
      }
    }
    if (found != kInShard) {
      return remove(shard, found).index;
    }
  }
  return kNone;
}

std::uint32_t Spares::take_oldest() noexcept {
  for (unsigned i = 0; bytes() != 0 && i < kShards; ++i) {
    Shard& shard = shards_[next_victim_++ % kShards];
    std::lock_guard lock(shard.mutex);
    if (shard.n.load(std::memory_order_relaxed) > 0) {
      const Entry entry = remove(shard, 0);
      stock_[entry.shape.extent_shift].missed.store(0, std::memory_order_relaxed);
      return entry.index;
    }
  }
  return kNone;
}

unsigned Spares::to_order(Shape shape, bool found) noexcept {
  if (!may_stock(shape)) {
    return 0;
  }
  Stock& stock = stock_[shape.extent_shift];
  // Counts only up to the limit: without room for an order the count would overflow.
  int missed = stock.missed.load(std::memory_order_relaxed);
  if (!found && missed < kMissesToOrder) {
    missed = stock.missed.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  const auto most = static_cast<unsigned>(
      std::min<std::uint64_t>(kMostInOrder, kMostBytesInOrder / shape.bytes()));
  if (missed < kMissesToOrder || stock.spare.load(std::memory_order_relaxed) > most / 2 ||
      !has_room(shape) || stock.ordered.load(std::memory_order_relaxed) ||
      stock.ordered.exchange(true, std::memory_order_acquire)) {
    return 0;
  }
  return most;
}

void Spares::end_order(unsigned extent_shift, bool wanted) noexcept {
  Stock& stock = stock_[extent_shift];
  if (!wanted) {
    stock.missed.store(-kMissesToPause, std::memory_order_relaxed);
  }
  stock.ordered.store(false, std::memory_order_release);
}

Spares::Count Spares::count() noexcept {
  Count count;
  for (Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    const unsigned n = shard.n.load(std::memory_order_relaxed);
    count.buffers += n;
    for (unsigned i = 0; i < n; ++i) {
      count.extents += shard.entries[i].shape.extents;
      count.bytes += shard.entries[i].shape.bytes();
    }
  }
  return count;
}

}  // namespace tiermem
