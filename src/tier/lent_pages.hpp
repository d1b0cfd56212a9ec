// Pages of windows where the program has mapped something of its own: ours are the addresses, not
// what is there. Nothing is moved to or from there, registered there, or emptied there. The kernel
// does not tell: UFFDIO_MOVE takes private pages of a file from a range that is not registered.
//
// Threads: any; one mutex, never held across a system call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/arena.hpp"

namespace tiermem {

class LentPages {
 public:
  /// Whole pages. Throws std::bad_alloc, and nothing has changed.
  void add(const std::byte* address, std::uint64_t bytes);
  /// Throws std::bad_alloc where the range cuts a lent one in two.
  void remove(const std::byte* address, std::uint64_t bytes);
  bool contains(const std::byte* page) const { return any(page, 1); }
  bool any(const std::byte* address, std::uint64_t bytes) const;
  /// How many of the bytes from `address` on are alike: lent, or not.
  std::uint64_t stretch(const std::byte* address, std::uint64_t bytes) const;

  /// Calls `each(address, bytes)` for what is not lent of the range, in order, until one is not 0.
  template <typename Each>
  int for_own(std::byte* address, std::uint64_t bytes, Each&& each) const {
    if (count_.load() == 0) {
      return each(address, bytes);
    }
    while (bytes != 0) {
      const auto [before, lent] = next(address, bytes);
      if (before != 0) {
        if (const int error = each(address, before); error != 0) {
          return error;
        }
      }
      address += before + lent;
      bytes -= before + lent;
    }
    return 0;
  }

 private:
  struct Next {
    std::uint64_t before;  // Bytes in front of the first that is lent.
    std::uint64_t lent;    // Bytes that are lent from there on, within the range.
  };
  Next next(const std::byte* address, std::uint64_t bytes) const;
  void remove_locked(std::uint64_t begin, std::uint64_t end);

  std::atomic<std::uint64_t> count_{0};  // Written under mutex_, read by anyone.
  mutable std::mutex mutex_;
  Map<std::uint64_t, std::uint64_t> ranges_;  // Address to end; never overlapping.
};

}  // namespace tiermem
