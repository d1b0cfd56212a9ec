// The list of all rivals.
#include "policy/rivals/rival.hpp"

#include <algorithm>
#include <array>

#include "policy/rivals/arc.hpp"
#include "policy/rivals/clock.hpp"
#include "policy/rivals/lirs.hpp"
#include "policy/rivals/lru.hpp"
#include "policy/rivals/s3_fifo.hpp"
#include "policy/rivals/sieve.hpp"
#include "policy/rivals/two_q.hpp"
#include "policy/rivals/w_tiny_lfu.hpp"

namespace tiermem {

namespace {

template <class Policy, auto... settings>
std::unique_ptr<Rival> make(std::uint32_t blocks, std::uint32_t capacity) {
  return std::make_unique<Policy>(blocks, std::max(capacity, 1u), settings...);
}

constexpr std::array kKinds = {
    RivalKind{"lru", "least recently used", make<Lru>},
    RivalKind{"clock", "CLOCK, one bit", make<Clock, 1u>},
    RivalKind{"gclock", "CLOCK, two-bit counters that the hand cools", make<Clock, 3u>},
    RivalKind{"2q", "2Q, full version (VLDB 1994)", make<TwoQ>},
    RivalKind{"lirs", "LIRS, 1 % (SIGMETRICS 2002)", make<Lirs>},
    RivalKind{"arc", "ARC (FAST 2003)", make<Arc>},
    RivalKind{"w-tinylfu", "W-TinyLFU, window 1 % (ToS 2017)", make<WTinyLfu>},
    RivalKind{"s3-fifo", "S3-FIFO, small queue 10 % (SOSP 2023)", make<S3Fifo>},
    RivalKind{"sieve", "SIEVE (NSDI 2024)", make<Sieve>},
};

}  // namespace

std::span<const RivalKind> rival_kinds() {
  return kKinds;
}

const RivalKind* find_rival(std::string_view name) {
  const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const RivalKind& kind) { return kind.name == name; });
  return found == kKinds.end() ? nullptr : &*found;
}

std::uint64_t rival_hits(const RivalKind& kind, std::span<const Reference> references,
                         std::uint32_t blocks, std::uint32_t capacity) {
  const std::unique_ptr<Rival> rival = kind.make(blocks, capacity);
  std::uint64_t hits = 0;
  for (const Reference& reference : references) {
    hits += rival->access(reference.block) ? 1 : 0;
  }
  return hits;
}

}  // namespace tiermem
