// What Recency is compared with: policies of the literature as their papers give them, for equal
// blocks. For replay only, never in the library: the program and the tests link this folder. Pure:
// no clock, and no randomness but that of fixed seeds. Any one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "policy/trace.hpp"

namespace tiermem {

/// A memory of so many blocks and the rule that decides which of them stay.
class Rival {
 public:
  virtual ~Rival() = default;
  /// A reference; true for a hit. The block is resident afterwards, or was refused by the rule.
  virtual bool access(std::uint32_t block) = 0;
};

struct RivalKind {
  const char* name;   ///< As on the command line.
  const char* about;  ///< Where it comes from.
  /// A memory of `capacity` blocks, at least 1, for blocks < `blocks`. May throw std::bad_alloc.
  std::unique_ptr<Rival> (*make)(std::uint32_t blocks, std::uint32_t capacity);
};

/// All of them, the oldest first.
std::span<const RivalKind> rival_kinds();
/// Null when there is none of this name.
const RivalKind* find_rival(std::string_view name);

/// Hits of all references in order.
std::uint64_t rival_hits(const RivalKind& kind, std::span<const Reference> references,
                         std::uint32_t blocks, std::uint32_t capacity);

}  // namespace tiermem
