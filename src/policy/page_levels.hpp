// The levels of the pages of an extent in parts: at the extent's turn to leave, some of its pages
// stay. Touches of mapped memory are seen only when they miss, so misses must teach, as they do for
// whole extents (levels.hpp). A page stays in memory for as many turns of its extent as its level
// says. Pages that came along with a missed page have no turns.
//
// docs/decisions/terms.md has the experiment.
//
// Pure: no clock, locks or randomness; the mover's thread only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "policy/levels.hpp"
#include "tier/frame.hpp"

namespace tiermem {

class PageLevels {
 public:
  /// The history of the pages of an extent, 16 bits each. All-zero: none.
  struct Memory {
    struct Page {
      std::uint16_t level : 2;
      std::uint16_t turns : 2;   ///< Turns that it will still stay.
      std::uint16_t stamp : 12;  ///< The clock when it left; 0: it has not, or is back.
    };
    std::array<Page, kMostParts> pages;
  };
  static_assert(sizeof(Memory) == 64);

  /// `least`: a missed page has at least this level, whatever it was before. For tests.
  explicit PageLevels(unsigned least = 0) : least_(least) {}

  /// Sets the clock and the size of the memory, both counted in pages. The clock counts the pages
  /// that came to the memory, and wraps.
  void set_time(std::uint32_t clock, std::uint64_t memory_pages) {
    clock_ = clock;
    memory_pages_ = memory_pages;
    // A stamp has 12 bits, in units of a 64th to a 128th of the memory. The unit changes only if
    // the size of the memory changes by a lot: earlier stamps lose their meaning.
    if (memory_pages_ < (std::uint64_t{32} << shift_) ||
        memory_pages_ > (std::uint64_t{256} << shift_)) {
      const auto log2 = static_cast<unsigned>(std::bit_width(memory_pages_));
      shift_ = std::max(log2, kUnitsLog2) - kUnitsLog2;
    }
  }

  /// The program has missed the page. A second call before it leaves has no effect.
  void missed(Memory& memory, unsigned page) {
    Memory::Page& of = memory.pages[page];
    const bool known = of.stamp != 0;
    const unsigned level = levels_.after_return(of.level, known, known ? away_of(of) : 0, 1,
                                                static_cast<double>(memory_pages_));
    of.level = std::max(level, least_) & Levels::kMost;
    of.turns = of.level;
    of.stamp = 0;
  }

  /// Returns the pages of `present` that have no turns left.
  static PageMask without_turns(const Memory& memory, PageMask present) {
    PageMask pages = present;
    for (PageMask left = present; left != 0; left &= left - 1) {
      const auto page = static_cast<unsigned>(std::countr_zero(left));
      pages &= memory.pages[page].turns != 0 ? ~(PageMask{1} << page) : ~PageMask{0};
    }
    return pages;
  }

  /// The extent's turn has come. Returns without_turns(); each other page has used one.
  static PageMask take_turn(Memory& memory, PageMask present) {
    const PageMask leaving = without_turns(memory, present);
    for (PageMask left = present & ~leaving; left != 0; left &= left - 1) {
      Memory::Page& of = memory.pages[static_cast<unsigned>(std::countr_zero(left))];
      of.turns = (of.turns - 1U) & Levels::kMost;
    }
    return leaving;
  }

  /// These pages cannot leave without the others: all leave at the next turn.
  static void end_turns(Memory& memory) {
    for (Memory::Page& page : memory.pages) {
      page.turns = 0;
    }
  }

  /// These pages have left.
  void left(Memory& memory, PageMask pages) const {
    for (; pages != 0; pages &= pages - 1) {
      memory.pages[static_cast<unsigned>(std::countr_zero(pages))].stamp = stamp() & kStampBits;
    }
  }

 private:
  static constexpr std::uint32_t kStamps = 4095;  // 1 .. 4095.
  static constexpr std::uint16_t kStampBits = 0xFFF;
  static constexpr unsigned kUnitsLog2 = 7;

  std::uint32_t stamp() const { return (clock_ >> shift_) % kStamps + 1; }
  // A page that is away for more than 16 memories may seem to have left later.
  double away_of(const Memory::Page& page) const {
    return static_cast<double>((stamp() + kStamps - page.stamp) % kStamps << shift_);
  }

  unsigned least_;
  std::uint32_t clock_ = 0;
  std::uint64_t memory_pages_ = 0;
  unsigned shift_ = 0;
  Levels levels_;
};

}  // namespace tiermem
