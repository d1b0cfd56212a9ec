// The program's memory calls: mmap, and the calls that change mappings. Large private anonymous
// memory becomes a region. Calls on parts of regions do what the kernel would have done. All other
// calls go to the kernel unchanged, and so do all calls that tiermem makes itself.
//
// Threads: any. Errors are the kernel's, by errno.
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <span>
#include <utility>

#include "base/arena.hpp"
#include "base/checked.hpp"
#include "base/log.hpp"
#include "base/no_cancel.hpp"
#include "base/plain_mapping.hpp"
#include "base/results.hpp"
#include "preload/kernel.hpp"
#include "preload/region.hpp"
#include "preload/start.hpp"
#include "preload/tiering.hpp"
#include "residency/buffer_limits.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;
// Allocators and virtual machines reserve at least this much; smaller reservations are guards and
// stacks.
constexpr std::size_t kLeastReservation = std::size_t{4} << 20;

std::size_t whole_pages(std::size_t bytes) {
  return round_up(bytes, kPage);
}

bool ours(const void* address, std::size_t length) {
  return !inside_tiermem() && touches_regions(address, length);
}

Part part_of(const void* address, std::size_t length) {
  return {static_cast<std::byte*>(const_cast<void*>(address)), whole_pages(length)};
}

bool bad_range(const void* address, std::size_t length) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  // The kernel refuses a range that ends above the addresses of any processor, and changes nothing.
  constexpr std::uintptr_t kEnd = std::uintptr_t{1} << 56;
  return length == 0 || at % kPage != 0 || !in_range(at, length, kEnd);
}

// A large mapping is probably touched in order, and a small one at random. No mapping may take more
// than a quarter of all extents, so reservations of terabytes (MariaDB's 8) get larger ones.
std::size_t extent_for(std::size_t bytes) {
  std::size_t extent = bytes >= 2 * kHugePage ? large_extent() : kSmallExtent;
  while (bytes / extent > kMostExtents / 4 && extent < kHugePage) {
    extent *= 2;
  }
  return extent;
}

// Mappings too small for a buffer of their own share one, the newest pool.
std::byte* small_mapping(std::size_t bytes) {
  static constinit std::atomic<std::byte*> newest{nullptr};
  constexpr std::size_t kPool = std::size_t{16} << 20;
  std::byte* const pool = newest.load();
  std::byte* mapping = pool != nullptr ? map_in_pool(pool, whole_pages(bytes)) : nullptr;
  if (mapping == nullptr) {
    mapping = create_pool(whole_pages(bytes), kPool, kSmallExtent);
    newest.store(mapping);
  }
  return mapping;
}

std::byte* new_mapping(std::size_t bytes) {
  return create_region(Use::mapping, whole_pages(bytes), whole_pages(bytes), extent_for(bytes));
}

bool may_be_tiered(std::size_t bytes, int protection, int flags) {
  constexpr int kPlainOnly = kLeaveToKernel | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN |
                             MAP_STACK | MAP_HUGETLB | MAP_LOCKED | MAP_32BIT;
  // A reservation (PROT_NONE) needs no memory until the program makes parts of it accessible.
  const bool usable = (protection & ~PROT_EXEC) == (PROT_READ | PROT_WRITE) ||
                      (protection == PROT_NONE && bytes >= kLeastReservation);
  return bytes >= settings().small && bytes < (std::size_t{1} << 46) && usable &&
         (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_TYPE) == MAP_PRIVATE &&
         (flags & kPlainOnly) == 0;
}

// Private memory of the program's own, which is tiered if it replaces tiered memory.
bool is_fresh_memory(int flags) {
  return (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_TYPE) == MAP_PRIVATE &&
         (flags & (MAP_HUGETLB | MAP_GROWSDOWN)) == 0;
}

int plain_protect(std::byte* begin, std::size_t length, int protection) {
  return tiermem_plain_mprotect(begin, length, protection);
}
int plain_advise(std::byte* begin, std::size_t length, int advice) {
  return tiermem_plain_madvise(begin, length, advice);
}
int plain_lock(std::byte* begin, std::size_t length, int flags) {
  return plain_mlock(begin, length, static_cast<unsigned>(flags));
}
int plain_unlock(std::byte* begin, std::size_t length, int) {
  return plain_munlock(begin, length);
}

struct MapCall {
  void* address;
  std::size_t bytes;
  int protection;
  int flags;
  int fd;
  off_t offset;
};

void* plain_map(const MapCall& call) {
  return tiermem_plain_mmap(call.address, call.bytes, call.protection, call.flags, call.fd,
                            call.offset);
}

// A driver may give an address a meaning (CUDA's managed memory), so the kernel must map a device
// in place.
bool is_device(int fd) {
  struct stat status {};
  return fd >= 0 && ::fstat(fd, &status) == 0 && S_ISCHR(status.st_mode);
}

// The kernel makes the mapping elsewhere first. If it refuses, nothing has been given up.
void* map_over(const MapCall& call) {
  if ((call.flags & MAP_ANONYMOUS) == 0 && is_device(call.fd)) {
    MapCall in_place = call;
    return lend_parts(
        part_of(call.address, call.bytes), call.protection,
        [](Part, void* argument) { return plain_map(*static_cast<const MapCall*>(argument)); },
        &in_place);
  }
  MapCall elsewhere = call;
  elsewhere.address = nullptr;
  elsewhere.flags &= ~(MAP_FIXED | MAP_POPULATE);
  struct Move {
    const MapCall& call;
    void* made;  // MAP_FAILED once it is unmapped.
  } move{call, plain_map(elsewhere)};
  if (move.made == MAP_FAILED) {
    return MAP_FAILED;
  }
  void* const placed = lend_parts(
      part_of(call.address, call.bytes), call.protection,
      [](Part range, void* argument) -> void* {
        Move& to = *static_cast<Move*>(argument);
        void* const moved = plain_mremap(to.made, range.length, range.length,
                                         MREMAP_MAYMOVE | MREMAP_FIXED, range.begin);
        if (moved != MAP_FAILED) {
          return moved;
        }
        best_effort(tiermem_plain_munmap(std::exchange(to.made, MAP_FAILED), range.length),
                    "addresses are all that it costs");
        return plain_map(to.call);  // Some mappings cannot be moved.
      },
      &move);
  if (placed == MAP_FAILED && move.made != MAP_FAILED) {
    const int error = errno;
    best_effort(tiermem_plain_munmap(move.made, call.bytes), "addresses are all that it costs");
    errno = error;
  }
  return placed;
}

int plain_renew(std::byte* begin, std::size_t length, int protection) {
  return tiermem_plain_mmap(begin, length, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                            0) == MAP_FAILED
             ? -1
             : 0;
}

void* map_fixed(const MapCall& call) {
  const Part part = part_of(call.address, call.bytes);
  if ((call.flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE) {
    if (!claim_unmapped(part, plain_claim, plain_unmap)) {
      return plain_map(call);  // EEXIST
    }
    MapCall over = call;
    over.flags = (call.flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
    void* const mapped = map_fixed(over);
    if (mapped == MAP_FAILED) {
      const int error = errno;
      give_back_claims(part, plain_unmap);
      errno = error;
    }
    return mapped;
  }
  if (!is_fresh_memory(call.flags)) {
    return map_over(call);
  }
  if (renew_parts(part, call.protection, plain_renew) != 0) {
    return MAP_FAILED;
  }
  if ((call.flags & MAP_LOCKED) != 0) {
    best_effort(mlock(call.address, call.bytes), "MAP_LOCKED does not say so either");
  }
  return call.address;
}

void* map(const MapCall& call) {
  const bool fixed = (call.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
  // Before the process has started, the environment may be missing. In that case the program uses
  // another malloc, because ours would have started the process. The library reports that later.
  if (inside_tiermem() || call.bytes == 0 || call.offset % static_cast<off_t>(kPage) != 0 ||
      !process_has_started()) {
    return plain_map(call);
  }
  if (fixed && touches_regions(call.address, call.bytes) && !bad_range(call.address, call.bytes)) {
    return map_fixed(call);
  }
  if (!fixed && may_be_tiered(call.bytes, call.protection, call.flags) && tiered(call.bytes)) {
    const bool small = call.bytes < settings().mapping;
    std::byte* const mapping = small ? small_mapping(call.bytes) : new_mapping(call.bytes);
    if (mapping != nullptr) {
      if (call.protection != (PROT_READ | PROT_WRITE)) {
        (void)protect_parts(part_of(mapping, call.bytes), call.protection, plain_protect);
      }
      return mapping;
    }
  }
  return plain_map(call);
}

int lock(const void* address, std::size_t length, unsigned flags) {
  // The kernel rounds the start down.
  const std::size_t head = reinterpret_cast<std::uintptr_t>(address) % kPage;
  if (!ours(address, length) || bad_range(static_cast<const std::byte*>(address) - head, length)) {
    return plain_mlock(address, length, flags);
  }
  return lock_parts(part_of(static_cast<const std::byte*>(address) - head, length + head),
                    static_cast<int>(flags), plain_lock);
}

// A range that the kernel would move as one mapping, and its new length.
struct Moved {
  Part from;
  std::size_t to = 0;
  PageState state;
};

// Moves the bytes to writable memory, and sets the protection afterwards.
void move_bytes(const Moved& moved, std::byte* target, bool tiered_target) {
  const std::size_t bytes = std::min(moved.from.length, moved.to);
  if ((moved.state.protection & PROT_READ) == 0 || (moved.state.protection & PROT_WRITE) == 0) {
    (void)protect_parts(moved.from, PROT_READ | PROT_WRITE, plain_protect);
  }
  if (tiered_target) {
    move_part({moved.from.begin, bytes}, target);
  } else {
    memcpy(target, moved.from.begin, bytes);
  }
  (void)protect_parts({target, moved.to}, moved.state.protection, plain_protect);
  if (moved.state.locked) {
    best_effort(mlock(target, moved.to), "the bytes have moved");
  }
}

// A mapping that outgrows its window, or is a part of it, gets a window of its own, and its bytes
// move.
void* move_anywhere(const Moved& moved, int flags) {
  std::byte* const target = new_mapping(std::max(moved.to, settings().mapping));
  if (target == nullptr) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  move_bytes(moved, target, true);
  if (const std::size_t kept = whole_pages(moved.to); kept < settings().mapping) {
    (void)unmap_parts({target + kept, settings().mapping - kept}, plain_unmap);
  }
  if ((flags & MREMAP_DONTUNMAP) != 0) {
    (void)renew_parts(moved.from, moved.state.protection, plain_renew);
  } else {
    (void)unmap_parts(moved.from, plain_unmap);
  }
  return target;
}

// A window cannot be at an address that the program chooses. The bytes become plain memory there,
// unless the target is tiered already.
void* move_to(const Moved& moved, int flags, void* at) {
  const Part target = part_of(at, moved.to);
  if (bad_range(at, moved.to) ||
      (target.begin < moved.from.end() && moved.from.begin < target.end())) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  if (map({at, moved.to, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0}) ==
      MAP_FAILED) {
    return MAP_FAILED;
  }
  log_info("{} bytes are no longer tiered: mremap moved them to {}", moved.to, at);
  move_bytes(moved, target.begin, false);
  if ((flags & MREMAP_DONTUNMAP) != 0) {
    (void)renew_parts(moved.from, moved.state.protection, plain_renew);
  } else {
    (void)unmap_parts(moved.from, plain_unmap);
  }
  return at;
}

// The source is plain memory, and the target may be tiered. The kernel places it as in map_over().
void* move_over(void* address, std::size_t from, std::size_t to, int flags, void* at) {
  struct Move {
    void* address;
    std::size_t from;
    int flags;
  } move{address, from, flags};
  constexpr int kKnown = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto target = reinterpret_cast<std::uintptr_t>(at);
  const bool apart = begin + from <= target || target + to <= begin;
  if (bad_range(at, to) || (flags & ~kKnown) != 0 || (flags & MREMAP_MAYMOVE) == 0 ||
      ((flags & MREMAP_DONTUNMAP) != 0 && whole_pages(from) != whole_pages(to)) ||
      begin % kPage != 0 || !apart) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  // Before the target gives up its bytes: the source must be mapped.
  std::array<unsigned char, 1> resident{};
  if (from != 0 && direct(SYS_mincore, address, kPage, resident.data()) != 0) {
    errno = EFAULT;
    return MAP_FAILED;
  }
  return lend_parts(
      part_of(at, to), PROT_READ | PROT_WRITE,
      [](Part range, void* argument) {
        const Move& call = *static_cast<const Move*>(argument);
        return plain_mremap(call.address, call.from, range.length, call.flags, range.begin);
      },
      &move);
}

// The source is plain memory, so the kernel moves it.
void* move_plain(void* address, std::size_t from, std::size_t to, int flags, void* at) {
  return (flags & MREMAP_FIXED) != 0 && ours(at, to) ? move_over(address, from, to, flags, at)
                                                     : plain_mremap(address, from, to, flags, at);
}

// The kernel has left a hole in tiered memory. tiermem takes it back, except for pages that a
// mapping of another thread has taken before: they are foreign, as they were.
void take_back_hole(Part hole) {
  if (hole.length == 0) {
    return;
  }
  if (plain_claim(hole.begin, hole.length, 0) == 0) {
    (void)unmap_parts(hole, plain_unmap);
  } else if (hole.length > kPage) {
    const std::size_t half = hole.length / kPage / 2 * kPage;
    take_back_hole({hole.begin, half});
    take_back_hole({hole.begin + half, hole.length - half});
  }
}

// The source is foreign. The part that the kernel moves away or cuts off becomes unmapped.
void* move_foreign(Part from, std::size_t to, int flags, void* at) {
  void* const result = move_plain(from.begin, from.length, to, flags, at);
  const std::size_t kept = result == from.begin ? std::min(to, from.length) : 0;
  if (result != MAP_FAILED && (flags & MREMAP_DONTUNMAP) == 0 && kept < from.length) {
    take_back_hole({from.begin + kept, from.length - kept});
  }
  return result;
}

void* remap(void* address, std::size_t from, std::size_t to, int flags, void* at) {
  constexpr int kKnown = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  if (inside_tiermem()) {
    return plain_mremap(address, from, to, flags, at);
  }
  Region region;
  if (!find_region(address, region)) {
    return move_plain(address, from, to, flags, at);
  }
  const Part part = part_of(address, from);
  const bool stays = (flags & MREMAP_DONTUNMAP) != 0;
  to = whole_pages(to);
  if (to == 0 || from == 0 || (flags & ~kKnown) != 0 || bad_range(address, from) ||
      ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0 && (flags & MREMAP_MAYMOVE) == 0) ||
      (stays && to != part.length)) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  const bool elsewhere = (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0;
  if (!elsewhere && to <= part.length) {
    // The kernel shrinks even a range of several mappings and holes, but its first page must be
    // mapped.
    return check_mapped({part.begin, kPage}) == 0 &&
                   (to == part.length ||
                    unmap_parts({part.begin + to, part.length - to}, plain_unmap) == 0)
               ? address
               : (errno = EFAULT, MAP_FAILED);
  }
  Moved moved{{part.begin, std::min(part.length, to)}, to, {}};
  if (!alike_part(moved.from, moved.state)) {
    errno = EFAULT;
    return MAP_FAILED;
  }
  if (moved.state.kind == PageState::Kind::foreign) {
    return move_foreign(part, to, flags, at);
  }
  if ((flags & MREMAP_FIXED) != 0) {
    void* const result = move_to(moved, flags, at);
    if (result != MAP_FAILED && to < part.length && !stays) {
      (void)unmap_parts({part.begin + to, part.length - to}, plain_unmap);
    }
    return result;
  }
  if (!elsewhere && grow_part(part, to)) {
    return address;
  }
  if ((flags & MREMAP_MAYMOVE) == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return move_anywhere(moved, flags);
}

// Programs call mlockall for threads that must never wait for a device.
int lock_all(int flags) {
  constexpr int kKnown = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
  if (flags == 0 || flags == MCL_ONFAULT || (flags & ~kKnown) != 0) {
    errno = EINVAL;
    return -1;
  }
  const bool without_regions = inside_tiermem() || context() == nullptr;
  stop_tiering("the program locks all of its memory (mlockall)");
  if (without_regions) {
    return static_cast<int>(direct(SYS_mlockall, flags));
  }
  // The kernel does not get this call: it would populate the address space that windows reserve.
  return (flags & MCL_CURRENT) == 0 || mlock_regions((flags & MCL_ONFAULT) != 0) ? 0 : -1;
}

// The kernel checks the key before the range. The probe names a page that no process can map, so
// that it changes nothing: the kernel returns ENOMEM for it if the key is allocated.
bool refuses_key(int protection, int key) {
  constexpr std::uintptr_t kOfKernel = 0xffff'8000'0000'0000;
  return direct(SYS_pkey_mprotect, kOfKernel, kPage, protection, key) != 0 && errno == EINVAL;
}

// Whether a pidfd names this process.
bool is_this_process(int pidfd) {
  constexpr int kSelfThread = -10000, kSelf = -10001;  // Linux 6.14
  if (pidfd == kSelf || pidfd == kSelfThread) {
    return true;
  }
  const tiermem::NoCancel until_it_is_read;
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return false;
  }
  const ssize_t got = ::read(file, text, sizeof text - 1);
  best_effort(::syscall(SYS_close, file), "it was only read");
  text[got > 0 ? got : 0] = '\0';
  const char* const pid = strstr(text, "Pid:");
  return pid != nullptr && strtol(pid + 4, nullptr, 10) == ::getpid();
}

// Advises one part after the other, as the kernel does. Returns the bytes done, if there are any.
ssize_t advise_self(int pidfd, const iovec* parts, std::size_t count, int advice, unsigned flags) {
  const iovec none{parts[0].iov_base, 0};
  const long allowed = direct(SYS_process_madvise, pidfd, &none, 1, advice, flags);
  if (allowed < 0) {
    return allowed;
  }
  ssize_t done = 0;
  for (const iovec& part : std::span(parts, count)) {
    if (madvise(part.iov_base, part.iov_len, advice) != 0) {
      return done != 0 ? done : -1;
    }
    done += static_cast<ssize_t>(part.iov_len);
  }
  return done;
}

// Waits until the pipe is ready, or looks once. Returns 0 or -1 with errno.
int await_pipe(int fd, short events, bool waits) {
  pollfd pipe{fd, events, 0};
  const int ready = ::poll(&pipe, 1, waits ? -1 : 0);
  if (ready == 0) {
    errno = EAGAIN;
  }
  return ready > 0 ? 0 : -1;
}

// A page of a buffer of the pipe at a time: where poll says that there is room, a write of up to
// PIPE_BUF bytes does not wait. The kernel takes as much as there is room for, and waits for the
// first page only.
ssize_t copy_to_pipe(int fd, std::span<const iovec> parts, bool waits) {
  ssize_t done = 0;
  for (const iovec& part : parts) {
    for (std::size_t at = 0; at < part.iov_len;) {
      if (await_pipe(fd, POLLOUT, waits && done == 0) != 0) {
        return done != 0 ? done : -1;
      }
      const std::size_t bytes = std::min<std::size_t>(part.iov_len - at, PIPE_BUF);
      const ssize_t written = ::write(fd, static_cast<const std::byte*>(part.iov_base) + at, bytes);
      if (written < 0) {
        return done != 0 ? done : -1;
      }
      done += written;
      at += static_cast<std::size_t>(written);
    }
  }
  return done;
}

// A pipe's references to pages are not pins, so frames may move. The pipe must get copies.
ssize_t splice_memory(int fd, const iovec* parts, std::size_t count, unsigned flags) {
  constexpr unsigned kKnown = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;
  const bool tiered_part =
      count <= IOV_MAX && (flags & ~kKnown) == 0 && ::fcntl(fd, F_GETPIPE_SZ) >= 0 &&
      std::any_of(parts, parts + count,
                  [](const iovec& part) { return ours(part.iov_base, part.iov_len); });
  if (!tiered_part) {  // The kernel also answers what is not allowed.
    return direct(SYS_vmsplice, fd, parts, count, flags);
  }
  const bool waits = (flags & SPLICE_F_NONBLOCK) == 0;
  if ((::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY) {
    return copy_to_pipe(fd, {parts, count}, waits);
  }
  return await_pipe(fd, POLLIN, waits) == 0 ? ::readv(fd, parts, static_cast<int>(count)) : -1;
}

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED void* mmap(void* address, size_t bytes, int protection, int flags, int fd,
                              off_t offset) noexcept {
  return map({address, bytes, protection, flags, fd, offset});
}

TIERMEM_INTERPOSED void* mmap64(void* address, size_t bytes, int protection, int flags, int fd,
                                off64_t offset) noexcept {
  return map({address, bytes, protection, flags, fd, offset});
}

TIERMEM_INTERPOSED int munmap(void* address, size_t length) noexcept {
  return ours(address, length) && !bad_range(address, length)
             ? unmap_parts(part_of(address, length), plain_unmap)
             : tiermem_plain_munmap(address, length);
}

TIERMEM_INTERPOSED void* mremap(void* address, size_t from, size_t to, int flags, ...) noexcept {
  void* at = nullptr;
  if ((flags & MREMAP_FIXED) != 0) {
    va_list rest;
    va_start(rest, flags);
    at = va_arg(rest, void*);
    va_end(rest);
  }
  return remap(address, from, to, flags, at);
}

TIERMEM_INTERPOSED int mprotect(void* address, size_t length, int protection) noexcept {
  return ours(address, length) && !bad_range(address, length)
             ? protect_parts(part_of(address, length), protection, plain_protect)
             : tiermem_plain_mprotect(address, length, protection);
}

TIERMEM_INTERPOSED int pkey_mprotect(void* address, size_t length, int protection,
                                     int key) noexcept {
  if (key == -1) {
    return mprotect(address, length, protection);
  }
  if (!ours(address, length) || bad_range(address, length)) {
    return static_cast<int>(direct(SYS_pkey_mprotect, address, length, protection, key));
  }
  if (refuses_key(protection, key)) {
    return -1;
  }
  return protect_by_key(part_of(address, length), protection, key, plain_protect);
}

TIERMEM_INTERPOSED ssize_t process_madvise(int pidfd, const iovec* parts, size_t count, int advice,
                                           unsigned flags) noexcept {
  const bool any = count != 0 && count <= IOV_MAX && !tiermem::inside_tiermem() &&
                   std::any_of(parts, parts + count,
                               [](const iovec& part) { return ours(part.iov_base, part.iov_len); });
  return any && is_this_process(pidfd)
             ? advise_self(pidfd, parts, count, advice, flags)
             : direct(SYS_process_madvise, pidfd, parts, count, advice, flags);
}

// A page that the program has unmapped is still a mapping of tiermem.
TIERMEM_INTERPOSED int msync(void* address, size_t length, int flags) {
  return ours(address, length) && !bad_range(address, length) &&
                 check_mapped(part_of(address, length)) != 0
             ? -1
             : static_cast<int>(direct(SYS_msync, address, length, flags));
}

TIERMEM_INTERPOSED int mincore(void* address, size_t length, unsigned char* resident) noexcept {
  return ours(address, length) && !bad_range(address, length) &&
                 check_mapped(part_of(address, length)) != 0
             ? -1
             : static_cast<int>(direct(SYS_mincore, address, length, resident));
}

TIERMEM_INTERPOSED int madvise(void* address, size_t length, int advice) noexcept {
  return ours(address, length) && !bad_range(address, length)
             ? advise_parts(part_of(address, length), advice, plain_advise)
             : tiermem_plain_madvise(address, length, advice);
}

TIERMEM_INTERPOSED int posix_madvise(void* address, size_t length, int advice) noexcept {
  if (advice == POSIX_MADV_DONTNEED) {
    return 0;  // Unlike MADV_DONTNEED it keeps the bytes; glibc ignores it, too.
  }
  const int error = errno;
  const int result = madvise(address, length, advice) == 0 ? 0 : errno;
  errno = error;
  return result;
}

TIERMEM_INTERPOSED int mlock(const void* address, size_t length) noexcept {
  return lock(address, length, 0);
}

TIERMEM_INTERPOSED int mlock2(const void* address, size_t length, unsigned flags) noexcept {
  return lock(address, length, flags);
}

TIERMEM_INTERPOSED int munlock(const void* address, size_t length) noexcept {
  const std::size_t head = reinterpret_cast<std::uintptr_t>(address) % kPage;
  if (!ours(address, length) || bad_range(static_cast<const std::byte*>(address) - head, length)) {
    return plain_munlock(address, length);
  }
  return unlock_parts(part_of(static_cast<const std::byte*>(address) - head, length + head),
                      plain_unlock);
}

TIERMEM_INTERPOSED int mlockall(int flags) noexcept {
  return lock_all(flags);
}

TIERMEM_INTERPOSED int munlockall() noexcept {
  if (!tiermem::inside_tiermem() && context() != nullptr) {
    munlock_regions();
  }
  return static_cast<int>(direct(SYS_munlockall, 0));
}

TIERMEM_INTERPOSED ssize_t vmsplice(int fd, const iovec* parts, size_t count, unsigned flags) {
  return splice_memory(fd, parts, count, flags);
}

}  // extern "C"
