// Extents in windows that the program may only read. A store raises SIGSEGV; it never makes a
// change that eviction would undo. With write-protection by userfaultfd, an extent is watched as
// soon as it is in its window; this costs about a microsecond and no mapping. The first store waits
// for the fault reader, which closes the extent for stores by mprotect, reports the store, and lets
// it repeat. Without write-protection, mprotect closes the extent when it arrives.
//
// A closed extent cannot leave its window: UFFDIO_MOVE and mremap need pages that are writable at
// home. Therefore release() must precede its departure.
//
// Threads: the worker that holds the extent calls protect() and release(); the fault reader calls
// close(). One mutex, held across mprotect, keeps the set and the protections consistent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "base/arena.hpp"
#include "os/userfault.hpp"

namespace tiermem {

class ReadOnlyExtents {
 public:
  /// `map_limit`: max number of mappings of this process. Up to one eighth of it may be closed
  /// extents.
  ReadOnlyExtents(const Userfault& userfault, std::uint64_t map_limit)
      : userfault_(userfault), most_closed_(map_limit / 8) {}

  /// Protects the extent in the window at `at` after its pages have arrived, before a view shows
  /// them. `watches`: the window is registered for write-protection. Logs once if neither way is
  /// available.
  void protect(std::byte* at, std::uint64_t bytes, bool watches);
  /// Releases an extent that is about to leave, or has left. Watched pages stay watched until they
  /// leave. Returns true if it was closed.
  bool release(std::byte* at, std::uint64_t bytes);

  /// Closes the watched extent at `at`, where a store waits. Each store in it raises SIGSEGV from
  /// now on, and waiting stores are repeated. Returns 0 or errno; after an error they still wait.
  int close(std::byte* at, std::uint64_t bytes);
  /// Returns whether close() or protect() closed the extent with this address.
  bool is_closed(const std::byte* address);
  /// [child of fork, its only thread] Watches the range again: the kernel ends the watch of pages
  /// that a child inherits. Closed extents in it stay closed.
  void follow_fork(std::byte* at, std::uint64_t bytes);
  /// [child of fork, its only thread] Forgets the extents for which `inherited(at)` is false.
  template <typename Inherited>
  void leave_to_parent(Inherited&& inherited) {
    new (&mutex_) std::mutex;  // A thread that only looked an address up may have held it.
    std::erase_if(closed_, [&](const auto& each) { return !inherited(each.first); });
    count_.store(closed_.size());
  }

 private:
  int close_locked(std::byte* at, std::uint64_t bytes);

  const Userfault& userfault_;
  const std::uint64_t most_closed_;
  std::atomic<bool> told_{false};

  // Size of closed_; written under mutex_, read by any thread.
  std::atomic<std::uint64_t> count_{0};
  std::mutex mutex_;
  Map<std::byte*, std::uint64_t> closed_;  // Guarded by mutex_. Address and bytes.
};

}  // namespace tiermem
