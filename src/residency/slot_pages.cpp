// Records of the pages in slots.
#include "residency/slot_pages.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>

#include "base/arena.hpp"

namespace tiermem {
namespace {

std::size_t bytes_for(std::uint32_t count) {
  return sizeof(SlotPages) + (count - 1) / 64 * sizeof(std::uint64_t);
}

// Programs write unmapped extents while they are looked at, as while they are hashed. The result is
// then discarded, so this race is none to report.
#if defined(__GNUC__)
__attribute__((no_sanitize("thread"), noinline))
#endif
bool is_zero(const std::byte* bytes, std::size_t n) {
  // 64 bytes at a time, without a branch for each word.
  for (std::size_t at = 0; at < n; at += 64) {
    std::uint64_t words[8];
    __builtin_memcpy(words, bytes + at, sizeof(words));
    const std::uint64_t all =
        words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7];
    if (all != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

SlotPages* SlotPages::make(std::uint64_t extent_bytes) {
  const std::uint64_t page = std::max(extent_bytes / kMostPages, kSmallestExtent);
  const auto count = static_cast<std::uint32_t>(extent_bytes / page);
  void* memory = count > 1 ? arena_allocate(bytes_for(count)) : nullptr;
  if (memory == nullptr) {
    return nullptr;
  }
  auto* pages = new (memory) SlotPages;
  pages->count = count;
  pages->page_bytes = static_cast<std::uint32_t>(page);
  std::fill_n(pages->bits, (count + 63) / 64, 0);
  return pages;
}

void SlotPages::destroy(SlotPages* pages) {
  if (pages != nullptr) {
    arena_free(pages, bytes_for(pages->count));
  }
}

SlotPages* SlotPages::clone() const {
  SlotPages* const other = make(extent_bytes());
  if (other != nullptr) {
    other->stored = stored;
    std::copy_n(bits, (count + 63) / 64, other->bits);
  }
  return other;
}

bool SlotPages::look_full(const std::byte* extent, std::uint64_t extent_bytes) {
  constexpr unsigned kSamples = 16;
  constexpr unsigned kFull = 10;
  const auto pages = static_cast<unsigned>(extent_bytes / kSmallestExtent);
  const unsigned samples = std::min(pages, kSamples);
  unsigned full = 0;
  for (unsigned i = 0; i < samples; ++i) {
    full += is_zero(extent + std::uint64_t{pages / samples} * i * kSmallestExtent, 64) ? 0 : 1;
  }
  return full * kSamples >= samples * kFull;
}

void SlotPages::measure(const std::byte* extent) {
  std::fill_n(bits, (count + 63) / 64, 0);
  stored = 0;
  for (unsigned page = 0; page < count; ++page) {
    if (!is_zero(extent + std::uint64_t{page} * page_bytes, page_bytes)) {
      add(page);
    }
  }
}

void SlotPages::add(unsigned page) {
  assert(!has(page));
  bits[page / 64] |= std::uint64_t{1} << (page % 64);
  ++stored;
}

std::uint64_t SlotPages::slot_bytes() const {
  return std::uint64_t{std::bit_ceil(std::max(stored, 1u))} * page_bytes;
}

unsigned SlotPages::before(unsigned page) const {
  unsigned pages = 0;
  for (unsigned word = 0; word < page / 64; ++word) {
    pages += static_cast<unsigned>(std::popcount(bits[word]));
  }
  if (page % 64 != 0) {
    const std::uint64_t below = (std::uint64_t{1} << (page % 64)) - 1;
    pages += static_cast<unsigned>(std::popcount(bits[page / 64] & below));
  }
  return pages;
}

unsigned SlotPages::next(unsigned page, bool stored_ones) const {
  while (page < count) {
    const std::uint64_t word = stored_ones ? bits[page / 64] : ~bits[page / 64];
    const auto skip = static_cast<unsigned>(std::countr_zero(word >> (page % 64)));
    if (skip < 64 - page % 64) {
      return std::min(page + skip, count);
    }
    page += 64 - page % 64;
  }
  return count;
}

void SlotPages::spread(std::byte* extent, unsigned first, unsigned last) const {
  // From the end: a page's place is never before where it came, and all behind have moved.
  unsigned from = first + before(last) - before(first);
  for (unsigned page = last; page-- > first;) {
    std::byte* const to = extent + std::uint64_t{page} * page_bytes;
    if (!has(page)) {
      std::memset(to, 0, page_bytes);
    } else if (--from != page) {
      std::memcpy(to, extent + std::uint64_t{from} * page_bytes, page_bytes);
    }
  }
}

void SlotPages::pack(std::byte* extent) const {
  std::byte* to = extent;
  for (unsigned page = next(0, true); page < count; page = next(page + 1, true)) {
    const std::byte* const from = extent + std::uint64_t{page} * page_bytes;
    if (to != from) {
      std::memcpy(to, from, page_bytes);
    }
    to += page_bytes;
  }
}

}  // namespace tiermem
