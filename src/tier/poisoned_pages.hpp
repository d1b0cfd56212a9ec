// Pages of windows that raise SIGBUS when touched, because their bytes are not available. They are
// marked by UFFDIO_POISON, or by a file without bytes that is mapped in the page's place:
// UFFDIO_POISON came with Linux 6.6, later than the other calls that mapped buffers need.
//
// Threads: any. One mutex guards the set and is never held across a system call. A second lock, for
// files only, is held while a file takes a page's place or leaves it. No page arrives during this
// time, because threads that bring pages hold bringing().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

#include "base/arena.hpp"
#include "os/userfault.hpp"

namespace tiermem {

class WindowArena;

class PoisonedPages {
 public:
  /// `by_file`: use files instead of UFFDIO_POISON.
  PoisonedPages(const Userfault& userfault, bool by_file)
      : userfault_(userfault), by_file_(by_file) {}

  /// Makes the page raise SIGBUS from now on, and lets its waiters continue. Returns false if a
  /// page has arrived since: the waiters continue to it. `arena`: the owner of the window. Null (a
  /// frame's home) works only with UFFDIO_POISON.
  bool add(std::byte* page, const WindowArena* arena);
  /// Forgets all poisoned pages of the range, and replaces files by absent memory. Returns true if
  /// a page was poisoned. With UFFDIO_POISON the page stays poisoned until the caller drops the
  /// range. Do not call while holding bringing().
  bool take(std::byte* address, std::uint64_t bytes);

  /// Returns whether touches of the page raise SIGBUS by this.
  bool has(std::byte* page);

  using Bringing = std::shared_lock<std::shared_mutex>;
  /// Calls take() and returns the lock of bringing(). For bytes that would take the place of files:
  /// no page of the range is poisoned while the lock is held. Only with files.
  Bringing bringing_over(std::byte* address, std::uint64_t bytes);
  /// Returns a lock to hold while pages enter a window. Locks nothing without files.
  Bringing bringing() { return by_file_ ? Bringing(arriving_) : Bringing(); }

 private:
  using Pages = Map<std::byte*, const WindowArena*>;

  bool add_file(std::byte* page, const WindowArena* arena);
  void note(std::byte* page, const WindowArena* arena);
  bool any(std::byte* address, std::uint64_t bytes);
  Pages remove(std::byte* address, std::uint64_t bytes);

  const Userfault& userfault_;
  const bool by_file_;

  std::atomic<std::uint64_t> count_{0};  // Written under mutex_, read by any thread.
  std::mutex mutex_;
  Pages pages_;  // Guarded by mutex_. With files: exactly the pages that have one.

  std::shared_mutex arriving_;
};

}  // namespace tiermem
