// The registry of tags: one bit for each.
#include "residency/context_tag.hpp"

#include <array>
#include <atomic>

namespace tiermem {
namespace {

constexpr unsigned kInWord = 64;
// Relaxed everywhere: the change of a bit decides which context owns the tag, and orders nothing
// else.
constinit std::array<std::atomic<std::uint64_t>, (ContextTag::kMost + 1) / kInWord> g_taken{};
constinit std::atomic<std::uint32_t> g_next{1};

constexpr std::uint64_t bit_of(std::uint32_t tag) {
  return std::uint64_t{1} << tag % kInWord;
}

std::uint32_t take_tag() noexcept {
  for (unsigned tried = 0; tried <= ContextTag::kMost; ++tried) {
    const std::uint32_t tag =
        g_next.fetch_add(1, std::memory_order_relaxed) % (ContextTag::kMost + 1);
    if (tag != 0 && (g_taken[tag / kInWord].fetch_or(bit_of(tag), std::memory_order_relaxed) &
                     bit_of(tag)) == 0) {
      return tag;
    }
  }
  return 0;
}

}  // namespace

ContextTag::ContextTag() noexcept : value_(take_tag()) {}

ContextTag::~ContextTag() {
  if (value_ != 0) {
    g_taken[value_ / kInWord].fetch_and(~bit_of(value_), std::memory_order_relaxed);
  }
}

bool ContextTag::is_live(std::uint64_t value) noexcept {
  return value != 0 && value <= kMost &&
         (g_taken[value / kInWord].load(std::memory_order_relaxed) &
          bit_of(static_cast<std::uint32_t>(value))) != 0;
}

}  // namespace tiermem
