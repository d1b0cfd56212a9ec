// Poison by the kernel's marker or by a file.
#include "tier/poisoned_pages.hpp"

#include <cstring>

#include "base/log.hpp"
#include "os/host_memory.hpp"
#include "tier/window_arena.hpp"

namespace tiermem {

bool PoisonedPages::add(std::byte* page, const WindowArena* arena) {
  if (by_file_) {
    return add_file(page, arena);
  }
  // Record it before the kernel call: a thread that finds the page occupied then finds the record.
  note(page, arena);
  if (userfault_.poison(page, host::kPage) == 0) {
    return true;
  }
  remove(page, host::kPage);
  userfault_.wake(page, host::kPage);
  return false;
}

// A file would also replace bytes that are there.
bool PoisonedPages::add_file(std::byte* page, const WindowArena* arena) {
  bool done = false;
  {
    const std::lock_guard lock(arriving_);
    done = arena != nullptr && host::leading_bytes(page, host::kPage, false) == host::kPage &&
           host::map_no_bytes(page, host::kPage) == 0;
    if (done) {
      note(page, arena);
    }
  }
  userfault_.wake(page, host::kPage);
  return done;
}

bool PoisonedPages::take(std::byte* address, std::uint64_t bytes) {
  if (count_.load() == 0) {
    return false;
  }
  if (!by_file_) {
    return !remove(address, bytes).empty();
  }
  const std::lock_guard lock(arriving_);
  const Pages taken = remove(address, bytes);
  for (const auto& [page, arena] : taken) {
    if (const int error = arena->renew(page, host::kPage); error != 0) {
      log_error(
          "the page at {} cannot be unpoisoned after an error, and its touch raises SIGSEGV: {}",
          static_cast<void*>(page), std::strerror(error));
    }
  }
  return !taken.empty();
}

PoisonedPages::Bringing PoisonedPages::bringing_over(std::byte* address, std::uint64_t bytes) {
  for (;;) {
    Bringing bringing(arriving_);
    if (!any(address, bytes)) {
      return bringing;
    }
    bringing.unlock();
    take(address, bytes);
  }
}

// Without files the record of a page stays when its window is emptied.
bool PoisonedPages::has(std::byte* page) {
  return count_.load() != 0 && any(page, 1) &&
         (by_file_ || host::leading_bytes(page, host::kPage, true) == host::kPage);
}

bool PoisonedPages::any(std::byte* address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto first = pages_.lower_bound(address);
  return first != pages_.end() && first->first < address + bytes;
}

void PoisonedPages::note(std::byte* page, const WindowArena* arena) {
  const std::lock_guard lock(mutex_);
  pages_[page] = arena;
  count_.store(pages_.size());
}

PoisonedPages::Pages PoisonedPages::remove(std::byte* address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto first = pages_.lower_bound(address);
  const auto last = pages_.lower_bound(address + bytes);
  Pages removed(first, last);
  pages_.erase(first, last);
  count_.store(pages_.size());
  return removed;
}

}  // namespace tiermem
