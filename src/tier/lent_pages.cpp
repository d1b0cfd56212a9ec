#include "tier/lent_pages.hpp"

#include <algorithm>
#include <iterator>

namespace tiermem {
namespace {

std::uint64_t number(const std::byte* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

}  // namespace

void LentPages::add(const std::byte* address, std::uint64_t bytes) {
  const std::uint64_t begin = number(address);
  Map<std::uint64_t, std::uint64_t> made;
  made.emplace(begin, begin + bytes);
  const std::lock_guard lock(mutex_);
  remove_locked(begin, begin + bytes);
  ranges_.merge(made);
  count_.store(ranges_.size());
}

void LentPages::remove(const std::byte* address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  remove_locked(number(address), number(address) + bytes);
  count_.store(ranges_.size());
}

void LentPages::remove_locked(std::uint64_t begin, std::uint64_t end) {
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second > begin) {
    --at;
  }
  if (at != ranges_.end() && at->first < begin && at->second > end) {
    ranges_.emplace(end, at->second);
    at->second = begin;
    return;
  }
  if (at != ranges_.end() && at->first < begin) {
    at->second = begin;
    ++at;
  }
  while (at != ranges_.end() && at->first < end) {
    if (at->second > end) {
      auto rest = ranges_.extract(at);
      rest.key() = end;
      ranges_.insert(std::move(rest));
      return;
    }
    at = ranges_.erase(at);
  }
}

bool LentPages::any(const std::byte* address, std::uint64_t bytes) const {
  return count_.load() != 0 && next(address, bytes).lent != 0;
}

std::uint64_t LentPages::stretch(const std::byte* address, std::uint64_t bytes) const {
  const Next there = next(address, bytes);
  return there.before != 0 ? there.before : there.lent;
}

LentPages::Next LentPages::next(const std::byte* address, std::uint64_t bytes) const {
  const std::uint64_t begin = number(address);
  const std::uint64_t end = begin + bytes;
  const std::lock_guard lock(mutex_);
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second > begin) {
    --at;
  }
  if (at == ranges_.end() || at->first >= end) {
    return {bytes, 0};
  }
  const std::uint64_t first = std::max(at->first, begin);
  return {first - begin, std::min(at->second, end) - first};
}

}  // namespace tiermem
