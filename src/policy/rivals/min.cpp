// Two passes: next uses backwards, then forwards with a heap of (next use, block) that skips stale
// entries. See min.hpp.
#include "policy/rivals/min.hpp"

#include <algorithm>
#include <queue>
#include <utility>
#include <vector>

namespace tiermem {

std::uint64_t min_hits(std::span<const Reference> references, std::uint32_t blocks,
                       std::uint32_t capacity) {
  const std::uint64_t never = references.size();
  std::vector<std::uint64_t> next_use(references.size());
  std::vector<std::uint64_t> upcoming(blocks, never);
  for (std::size_t i = references.size(); i-- > 0;) {
    next_use[i] = std::exchange(upcoming[references[i].block], i);
  }
  // From here on `upcoming` is the next use of a resident block, and 0 marks an absent one: no next
  // use is at 0.
  std::fill(upcoming.begin(), upcoming.end(), 0);
  std::priority_queue<std::pair<std::uint64_t, std::uint32_t>> farthest;
  std::uint64_t hits = 0;
  std::uint32_t resident = 0;
  for (std::size_t i = 0; i < references.size(); ++i) {
    const std::uint32_t block = references[i].block;
    if (upcoming[block] != 0) {
      ++hits;
    } else if (resident < std::max(capacity, 1u)) {
      ++resident;
    } else {
      while (upcoming[farthest.top().second] != farthest.top().first) {
        farthest.pop();
      }
      upcoming[farthest.top().second] = 0;
      farthest.pop();
    }
    upcoming[block] = next_use[i];
    farthest.emplace(next_use[i], block);
  }
  return hits;
}

}  // namespace tiermem
