// The taken pages of a chunk: runs of neighbouring pages, taken first fit and returned. This class
// does not know their content. For one thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace tiermem::heap {

inline constexpr std::uint32_t kMostPages = 512;

/// Invariant: longest() is the length of the longest run of free pages.
class PageRuns {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  /// `pages`: 1 to kMostPages, all free.
  explicit PageRuns(std::uint32_t pages);

  /// Takes `n` pages and returns the first, or kNone if longest() is less than `n`.
  std::uint32_t take(std::uint32_t n);
  /// Returns pages, all of which must be taken.
  void give_back(std::uint32_t first, std::uint32_t n);

  bool is_taken(std::uint32_t page) const { return (taken_[page / 64] >> (page % 64) & 1) != 0; }
  std::uint32_t longest() const { return longest_; }
  std::uint32_t pages() const { return pages_; }

 private:
  /// Returns the first page from `page` on that is taken, or is not; pages_ if there is none.
  std::uint32_t next(std::uint32_t page, bool taken) const;
  /// Flips a run of pages that are all taken or all free.
  void flip(std::uint32_t first, std::uint32_t n);
  void measure();

  std::uint32_t pages_;
  std::uint32_t longest_;
  // One bit for each page; none beyond pages_.
  std::array<std::uint64_t, kMostPages / 64> taken_{};
};

}  // namespace tiermem::heap
