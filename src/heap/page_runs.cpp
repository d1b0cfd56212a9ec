// Runs of pages. A chunk has eight words of bits, so a scan of all of them is cheap.
#include "heap/page_runs.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace tiermem::heap {

PageRuns::PageRuns(std::uint32_t pages) : pages_(pages), longest_(pages) {
  assert(pages > 0 && pages <= kMostPages);
}

std::uint32_t PageRuns::take(std::uint32_t n) {
  if (n > longest_) {
    return kNone;
  }
  std::uint32_t first = next(0, false);
  std::uint32_t end = next(first, true);
  while (end - first < n) {
    first = next(end, false);
    end = next(first, true);
  }
  flip(first, n);
  measure();
  return first;
}

void PageRuns::give_back(std::uint32_t first, std::uint32_t n) {
  flip(first, n);
  measure();
}

std::uint32_t PageRuns::next(std::uint32_t page, bool taken) const {
  while (page < pages_) {
    const std::uint64_t word = taken ? taken_[page / 64] : ~taken_[page / 64];
    const std::uint64_t rest = word >> (page % 64);
    if (rest != 0) {
      return std::min(pages_, page + static_cast<std::uint32_t>(std::countr_zero(rest)));
    }
    page = (page / 64 + 1) * 64;
  }
  return pages_;
}

void PageRuns::flip(std::uint32_t first, std::uint32_t n) {
  for (std::uint32_t page = first; page < first + n;) {
    const std::uint32_t in_word = std::min(64 - page % 64, first + n - page);
    const std::uint64_t ones = ~std::uint64_t{0} >> (64 - in_word) << (page % 64);
    assert((taken_[page / 64] & ones) == 0 || (~taken_[page / 64] & ones) == 0);
    taken_[page / 64] ^= ones;
    page += in_word;
  }
}

void PageRuns::measure() {
  longest_ = 0;
  for (std::uint32_t page = next(0, false); page < pages_;) {
    const std::uint32_t end = next(page, true);
    longest_ = std::max(longest_, end - page);
    page = next(end, false);
  }
}

}  // namespace tiermem::heap
