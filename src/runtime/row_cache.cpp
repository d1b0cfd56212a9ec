#include "runtime/row_cache.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/checked.hpp"

namespace tiermem {

RowCache::RowCache(std::span<std::byte> memory)
    : memory_(memory.data()), sets_(memory.size() / kSetBytes) {
  assert(!sets_.empty());
}

// From SplitMix64 of Steele, Lea and Flood: a row's number changes every bit.
std::uint64_t RowCache::hash(const Key& key) {
  std::uint64_t x = key.from + key.buffer * 0x9E3779B97F4A7C15u + key.length;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

std::size_t RowCache::number(std::uint64_t hash) const {
  return static_cast<std::size_t>((hash >> 32) * sets_.size() >> 32);
}

std::byte* RowCache::memory(const Set& set) const {
  return memory_ + static_cast<std::size_t>(&set - sets_.data()) * kSetBytes;
}

RowCache::Row& RowCache::row(const Set& set, std::uint32_t position) const {
  return *reinterpret_cast<Row*>(memory(set) + set.at[position]);
}

RowCache::Row* RowCache::find(Set& set, std::uint32_t tag, const Key& key) const {
  for (std::uint32_t i = 0; i < set.rows; ++i) {
    const std::uint32_t position = (set.first + i) % kMostRows;
    if (set.tags[position] == tag && row(set, position).key == key) {
      return &row(set, position);
    }
  }
  return nullptr;
}

bool RowCache::find(const Key& key, std::byte* to, Checksums::Hash& block) {
  const std::uint64_t hashed = hash(key);
  Set& set = sets_[number(hashed)];
  const std::lock_guard lock(set.mutex);
  Row* const found = find(set, static_cast<std::uint32_t>(hashed), key);
  if (found == nullptr) {
    return false;
  }
  found->uses = std::min<std::uint32_t>(found->uses + 1, kMostUses);
  block = found->block;
  std::memcpy(to, found + 1, key.length);
  return true;
}

void RowCache::offer(const Key& key, const Checksums::Hash& block, const std::byte* bytes) {
  if (key.length == 0 || key.length > kMostRow) {
    return;
  }
  const std::uint64_t hashed = hash(key);
  const auto tag = static_cast<std::uint32_t>(hashed);
  Set& set = sets_[number(hashed)];
  const std::lock_guard lock(set.mutex);
  Row* kept = find(set, tag, key);
  if (kept == nullptr) {
    if (!worth(set, tag)) {
      return;
    }
    const auto whole = static_cast<std::uint32_t>(sizeof(Row) + round_up(key.length, alignof(Row)));
    make_room(set, whole, kMostSpared);
    kept = &place(set, tag, whole);
    kept->key = key;
  }
  kept->block = block;
  std::memcpy(kept + 1, bytes, key.length);
}

/// While there is room, any row is kept; later only a row that was requested before.
bool RowCache::worth(Set& set, std::uint32_t tag) {
  if (!set.full) {
    return true;
  }
  const auto seen = std::find(set.remembered.begin(), set.remembered.end(), tag);
  if (seen != set.remembered.end()) {
    *seen = 0;
    return true;
  }
  set.remembered[set.next_remembered++ % kRemembered] = tag;
  return false;
}

/// Behind the newest row, or at the beginning if the oldest rows have left it.
bool RowCache::fits(const Set& set, std::uint32_t bytes, std::uint32_t& at) {
  if (set.rows == kMostRows) {
    return false;
  }
  if (set.rows == 0) {
    at = 0;
    return true;
  }
  const std::uint32_t oldest = set.at[set.first];
  if (set.end > oldest && kSetBytes - set.end < bytes) {
    at = 0;
    return bytes <= oldest;
  }
  at = set.end;
  return set.end > oldest || oldest - set.end >= bytes;
}

void RowCache::drop_oldest(Set& set) {
  set.first = (set.first + 1) % kMostRows;
  --set.rows;
  set.full = true;
}

/// Evicts the oldest rows until `bytes` fit. Some rows that were used return as the newest.
void RowCache::make_room(Set& set, std::uint32_t bytes, unsigned spared) const {
  alignas(Row) std::array<std::byte, sizeof(Row) + kMostRow> moving;
  std::uint32_t at = 0;
  while (!fits(set, bytes, at)) {
    const std::uint32_t tag = set.tags[set.first];
    const Row& oldest = row(set, set.first);
    const std::uint32_t its = oldest.bytes;
    const std::uint32_t uses = oldest.uses;
    if (uses != 0 && spared != 0) {
      std::memcpy(moving.data(), &oldest, its);
    }
    drop_oldest(set);
    if (uses != 0 && spared != 0) {
      --spared;
      make_room(set, its, 0);
      Row& again = place(set, tag, its);
      std::memcpy(&again, moving.data(), its);
      again.uses = uses - 1;
    }
  }
}

/// The row must fit.
RowCache::Row& RowCache::place(Set& set, std::uint32_t tag, std::uint32_t bytes) const {
  std::uint32_t at = 0;
  [[maybe_unused]] const bool fit = fits(set, bytes, at);
  assert(fit);
  const std::uint32_t position = (set.first + set.rows++) % kMostRows;
  set.tags[position] = tag;
  set.at[position] = static_cast<std::uint16_t>(at);
  set.end = at + bytes;
  Row& made = row(set, position);
  made = {.bytes = bytes};
  return made;
}

}  // namespace tiermem
