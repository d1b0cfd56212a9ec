// The policies that Recency is compared with, as their papers define them, for equal blocks. For
// replay only, never in the library: the program and the tests link this folder. Pure: no clock,
// and no randomness except with fixed seeds. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "policy/trace.hpp"

namespace tiermem {

/// A memory of a fixed number of blocks, and the rule that selects the blocks that stay.
class Rival {
 public:
  virtual ~Rival() = default;
  /// Processes a reference; returns true for a hit. Afterwards the block is resident, or was
  /// refused by the rule.
  virtual bool access(std::uint32_t block) = 0;
};

struct RivalKind {
  const char* name;   ///< Name on the command line.
  const char* about;  ///< Its source.
  /// Creates a memory of `capacity` blocks, at least 1, for blocks < `blocks`. May throw
  /// std::bad_alloc.
  std::unique_ptr<Rival> (*make)(std::uint32_t blocks, std::uint32_t capacity);
};

/// Returns all kinds, the oldest first.
std::span<const RivalKind> rival_kinds();
/// Returns null if no kind has this name.
const RivalKind* find_rival(std::string_view name);

/// Returns the hits of all references in order.
std::uint64_t rival_hits(const RivalKind& kind, std::span<const Reference> references,
                         std::uint32_t blocks, std::uint32_t capacity);

}  // namespace tiermem
