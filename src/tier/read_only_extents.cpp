// The implementation by UFFDIO_WRITEPROTECT and mprotect.
#include "tier/read_only_extents.hpp"

#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>

#include "base/log.hpp"
#include "base/results.hpp"
#include "os/host_memory.hpp"

namespace tiermem {

void ReadOnlyExtents::protect(std::byte* at, std::uint64_t bytes, bool watches) {
  int error = watches ? userfault_.watch_writes(at, bytes) : ENOTSUP;
  if (error != 0) {
    const std::lock_guard lock(mutex_);
    error = close_locked(at, bytes);
  }
  if (error != 0 && !told_.exchange(true)) {
    log_warn(
        "adopted files: views at {} can be written, since the kernel refuses to close them: {}; "
        "raise vm.max_map_count. Bytes that are stored there are lost at the next eviction",
        static_cast<void*>(at), std::strerror(error));
  }
}

int ReadOnlyExtents::close_locked(std::byte* at, std::uint64_t bytes) {
  if (closed_.size() >= most_closed_) {
    return ENOMEM;
  }
  try {
    closed_[at] = bytes;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  const int error = host::close_for_stores(at, bytes);
  if (error != 0) {
    closed_.erase(at);
  }
  count_.store(closed_.size());
  return error;
}

bool ReadOnlyExtents::release(std::byte* at, std::uint64_t bytes) {
  if (count_.load() == 0) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  const auto first = closed_.lower_bound(at);
  const auto last = closed_.lower_bound(at + bytes);
  const bool any = first != last;
  for (auto each = first; each != last;) {
    // If it cannot be opened, it stays closed and recorded as closed.
    const bool open = host::open_range(each->first, each->second) == 0;
    each = open ? closed_.erase(each) : std::next(each);
  }
  count_.store(closed_.size());
  return any;
}

// The protection by userfaultfd stays: the repeated store then meets the protection of the mapping,
// and the extent is watched again as soon as it is open.
int ReadOnlyExtents::close(std::byte* at, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int error = closed_.contains(at) ? 0 : close_locked(at, bytes);
  if (error == 0) {
    userfault_.wake(at, bytes);
  }
  return error;
}

void ReadOnlyExtents::follow_fork(std::byte* at, std::uint64_t bytes) {
  if (userfault_.watch_writes(at, bytes) != 0) {
    must(host::close_for_stores(at, bytes));
  }
}

bool ReadOnlyExtents::is_closed(const std::byte* address) {
  if (count_.load() == 0) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  const auto after = closed_.upper_bound(const_cast<std::byte*>(address));
  if (after == closed_.begin()) {
    return false;
  }
  const auto& [begin, bytes] = *std::prev(after);
  return address < begin + bytes;
}

}  // namespace tiermem
