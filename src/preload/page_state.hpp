// The state of a page of a region, as set by the program.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace tiermem::preload {

/// A range of addresses.
struct Part {
  std::byte* begin = nullptr;
  std::size_t length = 0;
  std::byte* end() const { return begin + length; }
};

struct PageState {
  enum class Kind : std::uint8_t {
    tiered,    ///< The program's memory, which tiermem moves.
    foreign,   ///< The program mapped something else there; tiermem never touches it.
    unmapped,  ///< The program unmapped it; a touch raises SIGSEGV.
  };
  Kind kind = Kind::tiered;
  std::uint8_t protection = PROT_READ | PROT_WRITE;  ///< PROT_ bits.
  bool locked = false;                               ///< By mlock.
  bool keyed = false;                                ///< Has a protection key (pkey_mprotect).
  std::uint16_t kept = 0;  ///< Number of reasons to keep it resident, such as stacks for signals.

  bool operator==(const PageState&) const = default;
  /// The page must be resident and must not move. The kernel does not bring in a locked page that
  /// is inaccessible.
  bool pinned() const {
    return kind == Kind::foreign || (locked && protection != PROT_NONE) || keyed || kept != 0;
  }
};

}  // namespace tiermem::preload
