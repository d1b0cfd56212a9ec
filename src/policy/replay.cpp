// See replay.hpp.
#include "policy/replay.hpp"

#include <algorithm>
#include <vector>

#include "policy/recency.hpp"

namespace tiermem {

ReplayResult replay_recency(std::span<const Reference> references, std::uint32_t blocks,
                            const ReplayOptions& options) {
  Recency recency;
  if (!recency.reserve(blocks).ok()) {
    throw std::bad_alloc();
  }
  constexpr std::uint32_t kBytes = Recency::kUnitBytes;
  struct State {
    bool resident = false, referenced = false, dirty = false;
  };
  Vector<State> state(blocks);
  Vector<Recency::Victim> victims;
  std::uint32_t resident = 0;
  ReplayResult result;
  const auto probe = [&](ExtentRef ref) {
    Recency::Candidate candidate{true, state[ref].referenced, state[ref].dirty, kBytes};
    state[ref].referenced = false;
    return candidate;
  };
  // The same as the mover: dont_need frees the room at once, a cold extent has no reference bit.
  const auto advise = [&](const ReplayHint& hint) {
    if (hint.advice == Advice::dont_need) {
      resident -= state[hint.block].resident ? 1 : 0;
      state[hint.block] = {};
      recency.removed(hint.block, false);
      return;
    }
    if (hint.advice == Advice::cold) {
      state[hint.block].referenced = false;
    }
    recency.advised(hint.block, hint.advice, 0);
  };
  const std::uint32_t capacity = std::max(options.capacity, 1u);
  const std::uint32_t batch = std::clamp(options.batch, 1u, capacity);
  for (std::uint32_t round = 0; round < options.repeat; ++round) {
    result.last_hits = 0;
    auto hint = options.hints.begin();
    std::uint64_t done = 0;
    for (const Reference& reference : references) {
      for (; hint != options.hints.end() && hint->after <= done; ++hint) {
        advise(*hint);
      }
      ++done;
      State& block = state[reference.block];
      ++result.references;
      if (block.resident) {
        ++result.hits;
        ++result.last_hits;
        block.referenced = !options.hidden;
      } else {
        while (resident >= capacity) {
          victims.clear();
          (void)recency.choose(std::uint64_t{batch} * kBytes, batch, probe, victims);
          for (const Recency::Victim& victim : victims) {
            result.written_back += victim.dirty ? 1 : 0;
            state[victim.ref] = {};
            recency.removed(victim.ref, true);
            --resident;
          }
        }
        block = {true, options.touches > 1 && !options.hidden, false};
        recency.inserted(reference.block, kBytes,
                         options.hidden ? Recency::References::hidden : Recency::References::seen);
        recency.settle(probe);
        ++resident;
      }
      block.dirty |= reference.write;
    }
  }
  return result;
}

}  // namespace tiermem
