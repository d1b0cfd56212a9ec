// Which pages of a chunk are taken: runs of neighbours, taken first fit and given back. Knows
// nothing of what is in them. For one thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace tiermem::heap {

inline constexpr std::uint32_t kMostPages = 512;

/// longest() is the length of the longest run of free pages at all times.
class PageRuns {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// `pages`: 1 to kMostPages, all free.
  explicit PageRuns(std::uint32_t pages);

  /// The first page of `n`, which are taken now; kNone when longest() is less.
  std::uint32_t take(std::uint32_t n);
  /// All of them are taken.
  void give_back(std::uint32_t first, std::uint32_t n);

  bool is_taken(std::uint32_t page) const { return (taken_[page / 64] >> (page % 64) & 1) != 0; }
  std::uint32_t longest() const { return longest_; }
  std::uint32_t pages() const { return pages_; }

 private:
  /// The first page from `page` on that is taken, or is not; pages_ when there is none.
  std::uint32_t next(std::uint32_t page, bool taken) const;
  /// All of the run are taken, or none is: now it is the other way.
  void flip(std::uint32_t first, std::uint32_t n);
  void measure();

  std::uint32_t pages_;
  std::uint32_t longest_;
  std::array<std::uint64_t, kMostPages / 64> taken_{};  // A bit for each; none beyond pages_.
};

}  // namespace tiermem::heap
