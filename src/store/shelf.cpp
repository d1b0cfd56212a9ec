#include "store/shelf.hpp"

#include <new>

namespace tiermem {

Shelf::Shelf(std::uint64_t capacity, std::size_t most) : capacity_(capacity), most_(most) {
  order_.set_most(most);
}

bool Shelf::reserve(std::uint64_t bytes, Vector<Handle>& gone) {
  const std::uint64_t charge = charge_of(bytes);
  const std::lock_guard lock(mutex_);
  const auto probe = [&](ExtentRef number) { return look(number); };
  if (charge > capacity_) {
    return false;
  }
  while (charge > capacity_ - used_ || by_key_.size() + arriving_ >= most_) {
    constexpr unsigned kMost = 64;
    victims_.clear();
    victims_.reserve(kMost);
    gone.reserve(gone.size() + kMost);  // Before: what is chosen must leave.
    const std::uint64_t left = capacity_ - used_;
    order_.choose(charge > left ? charge - left : 1, kMost, probe, victims_);
    for (const Recency::Victim& victim : victims_) {
      gone.push_back(take_out(*entries_[victim.ref]));
      evicted_.fetch_add(1, std::memory_order_relaxed);
    }
    if (victims_.empty() && order_.exhausted()) {
      return false;
    }
  }
  used_ += charge;
  ++arriving_;
  return true;
}

Recency::Candidate Shelf::look(std::uint32_t number) {
  Entry& entry = *entries_[number];
  return {.movable = entry.pins == 0,
          .referenced = entry.used.exchange(false, std::memory_order_relaxed),
          .bytes = static_cast<std::uint32_t>(charge_of(entry.bytes))};
}

void Shelf::cancel(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= charge_of(bytes);
  --arriving_;
}

Handle Shelf::add(std::string_view key, Handle buffer, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  // Each insertion, so that early uses are told from later ones.
  order_.settle([&](ExtentRef number) { return look(number); });
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    Entry& entry = *found->second;
    used_ -= charge_of(entry.bytes);
    entry.bytes = bytes;
    order_.removed(entry.number, false);
    order_.inserted(entry.number, charge_of(bytes));
    --arriving_;
    return std::exchange(entry.buffer, buffer);
  }
  if (free_.empty()) {
    if (!order_.reserve(entries_.size() + 1).ok()) {
      throw std::bad_alloc();
    }
    free_.reserve(entries_.size() + 1);  // So that take_out() allocates nothing.
    entries_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(entries_.size() - 1));
  }
  auto entry = std::make_unique<Entry>();
  entry->key = String(key);
  entry->buffer = buffer;
  entry->bytes = bytes;
  entry->number = free_.back();
  by_key_.emplace(std::string_view(entry->key), entry.get());
  free_.pop_back();
  order_.inserted(entry->number, charge_of(bytes));
  entries_[entry->number] = std::move(entry);
  --arriving_;
  return 0;
}

Shelf::Found Shelf::use(std::string_view key) {
  const std::shared_lock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return {};
  }
  // Not written if it is set: readers of one object do not take its cache line from each other.
  if (!found->second->used.load(std::memory_order_relaxed)) {
    found->second->used.store(true, std::memory_order_relaxed);
  }
  return {found->second->buffer, found->second->bytes};
}

Shelf::Found Shelf::find(std::string_view key) const {
  const std::shared_lock lock(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? Found{} : Found{found->second->buffer, found->second->bytes};
}

bool Shelf::note_read(std::string_view key, std::uint64_t recent) {
  const std::shared_lock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return false;
  }
  Entry& entry = *found->second;
  const std::uint64_t now =
      read_bytes_.fetch_add(entry.bytes, std::memory_order_relaxed) + entry.bytes;
  const std::uint64_t before = entry.read_at.exchange(now, std::memory_order_relaxed);
  return before != 0 && now - before <= recent;
}

Handle Shelf::remove(std::string_view key, Handle only) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || (only != 0 && found->second->buffer != only)) {
    return 0;
  }
  return take_out(*found->second);
}

// The entry ends here.
Handle Shelf::take_out(Entry& entry) {
  const Handle buffer = entry.buffer;
  const std::uint32_t number = entry.number;
  used_ -= charge_of(entry.bytes);
  pinned_ -= entry.pins != 0 ? 1 : 0;
  order_.removed(number, false);
  by_key_.erase(std::string_view(entry.key));
  entries_[number].reset();
  free_.push_back(number);
  return buffer;
}

bool Shelf::pin(std::string_view key, int by) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return false;
  }
  std::uint32_t& pins = found->second->pins;
  if ((by < 0 && pins == 0) || (by > 0 && pins == UINT32_MAX)) {
    return false;
  }
  pinned_ -= pins != 0 ? 1 : 0;
  pins += by > 0 ? 1 : -1u;
  pinned_ += pins != 0 ? 1 : 0;
  return true;
}

Handle Shelf::remove_any() noexcept {
  const std::lock_guard lock(mutex_);
  return by_key_.empty() ? 0 : take_out(*by_key_.begin()->second);
}

void Shelf::count_into(StoreStats& stats) const {
  const std::shared_lock lock(mutex_);
  stats.capacity = capacity_;
  stats.used = used_;
  stats.objects = by_key_.size();
  stats.pinned = pinned_;
  stats.evicted = evicted();
}

}  // namespace tiermem
