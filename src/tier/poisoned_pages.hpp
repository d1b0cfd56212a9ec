// Pages of windows whose touch is SIGBUS, because their bytes could not be had. By UFFDIO_POISON;
// or by a file without bytes that is mapped in the page's place: UFFDIO_POISON came with Linux 6.6,
// after what mapped buffers need.
//
// Threads: any. One mutex for the set, never held across a system call; and one, for files only,
// held while a file takes a page's place or leaves it, so that no page arrives meanwhile: who
// brings pages holds bringing().
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
  /// `by_file`: without UFFDIO_POISON.
  PoisonedPages(const Userfault& userfault, bool by_file)
      : userfault_(userfault), by_file_(by_file) {}

  /// The page raises SIGBUS from now on, and its waiters go on. False when a page arrived
  /// meanwhile: they go on to that. `arena`: whose window it is in; null (a frame's home): only by
  /// UFFDIO_POISON.
  bool add(std::byte* page, const WindowArena* arena);
  /// Nothing poisoned is remembered of the range; where a file was, absent memory is again. True:
  /// something was poisoned. By UFFDIO_POISON it still is, until the caller drops the range. Not
  /// while holding bringing().
  bool take(std::byte* address, std::uint64_t bytes);

  using Bringing = std::shared_lock<std::shared_mutex>;
  /// The same, where what is brought would take the place of files: nothing of the range is
  /// poisoned while it is held. By files only.
  Bringing bringing_over(std::byte* address, std::uint64_t bytes);
  /// Held while pages come into a window, where files are used.
  Bringing bringing() { return by_file_ ? Bringing(arriving_) : Bringing(); }

 private:
  using Pages = Map<std::byte*, const WindowArena*>;

  bool add_file(std::byte* page, const WindowArena* arena);
  void note(std::byte* page, const WindowArena* arena);
  bool any(std::byte* address, std::uint64_t bytes);
  Pages remove(std::byte* address, std::uint64_t bytes);

  const Userfault& userfault_;
  const bool by_file_;

  std::atomic<std::uint64_t> count_{0};  // Written under mutex_, read by anyone.
  std::mutex mutex_;
  Pages pages_;  // Guarded by mutex_. By file: exactly the pages that have one.

  std::shared_mutex arriving_;
};

}  // namespace tiermem
