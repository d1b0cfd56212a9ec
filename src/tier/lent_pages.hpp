// Pages of windows where the program has mapped memory of its own. The addresses belong to tiermem;
// the mapped memory does not. tiermem moves nothing to or from it, and neither registers nor
// empties it. The kernel does not detect this case: UFFDIO_MOVE takes private pages of a file from
// a range that is not registered.
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
  /// Whole pages. Throws std::bad_alloc and changes nothing on failure.
  void add(const std::byte* address, std::uint64_t bytes);
  /// Throws std::bad_alloc if the range splits a lent one in two and memory is short.
  void remove(const std::byte* address, std::uint64_t bytes);
  bool contains(const std::byte* page) const { return any(page, 1); }
  bool any(const std::byte* address, std::uint64_t bytes) const;
  /// Returns how many of the bytes from `address` on are of the same kind: lent, or not.
  std::uint64_t stretch(const std::byte* address, std::uint64_t bytes) const;

  /// Calls `each(address, bytes)` for the parts of the range that are not lent, in order, until a
  /// call returns a value other than 0.
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
    std::uint64_t before;  // Bytes before the first lent one.
    std::uint64_t lent;    // Lent bytes from there on, within the range.
  };
  Next next(const std::byte* address, std::uint64_t bytes) const;
  void remove_locked(std::uint64_t begin, std::uint64_t end);

  std::atomic<std::uint64_t> count_{0};  // Written under mutex_, read by any thread.
  mutable std::mutex mutex_;
  Map<std::uint64_t, std::uint64_t> ranges_;  // Address to end; ranges never overlap.
};

}  // namespace tiermem
