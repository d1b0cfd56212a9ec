// Extents in windows that the program may only read: a store is SIGSEGV, and never a change that
// eviction undoes. With write-protection by userfaultfd an extent is watched as soon as it is in
// its window, which costs about a microsecond and no mapping. The first store waits for the reader
// of faults, which closes the extent for stores by mprotect, says so, and lets the store be tried
// again. Elsewhere the extent is closed by mprotect when it comes.
//
// An extent that is closed cannot leave its window: UFFDIO_MOVE and mremap want pages at home that
// can be written. So release() comes before it leaves.
//
// Threads: protect() and release() by the hand that has the extent, close() by the reader of
// faults. One mutex, held across mprotect: the set and the protections agree.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/arena.hpp"
#include "os/userfault.hpp"

namespace tiermem {

class ReadOnlyExtents {
 public:
  /// `map_limit`: mappings this process may have. An eighth of it may be closed extents.
  ReadOnlyExtents(const Userfault& userfault, std::uint64_t map_limit)
      : userfault_(userfault), most_closed_(map_limit / 8) {}

  /// The extent's pages have come to the window at `at`, and no view shows them yet. `watches`: the
  /// window is registered for write-protection. Logs once where neither way can be had.
  void protect(std::byte* at, std::uint64_t bytes, bool watches);
  /// The extent is about to leave, or has left. Pages that are watched stay so until they leave.
  /// True: it was closed.
  bool release(std::byte* at, std::uint64_t bytes);

  /// A store to the watched extent at `at` waits. Each store in it is SIGSEGV from now on, and
  /// waiting ones are tried again. Returns 0 or errno; then they still wait.
  int close(std::byte* at, std::uint64_t bytes);
  /// Whether close() or protect() closed the extent that has this address.
  bool is_closed(const std::byte* address);

 private:
  int close_locked(std::byte* at, std::uint64_t bytes);

  const Userfault& userfault_;
  const std::uint64_t most_closed_;
  std::atomic<bool> told_{false};

  std::atomic<std::uint64_t> count_{0};  // Of closed_; written under mutex_, read by any.
  std::mutex mutex_;
  Map<std::byte*, std::uint64_t> closed_;  // Guarded by mutex_. Address and bytes.
};

}  // namespace tiermem
