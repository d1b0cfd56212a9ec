// The memory calls of the program: mmap and what is done to mappings later. Large private anonymous
// memory becomes a region; calls on parts of regions do to them what the kernel would have done;
// all else goes to the kernel as it came. Calls that tiermem makes itself always do.
//
// Threads: any. Errors are the kernel's, by errno.
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/arena.hpp"
#include "base/checked.hpp"
#include "base/log.hpp"
#include "preload/kernel.hpp"
#include "preload/region.hpp"
#include "preload/tiering.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPage - 1) & ~(kPage - 1);
}

bool ours(const void* address, std::size_t length) {
  return !inside_tiermem() && touches_regions(address, length);
}

Part part_of(const void* address, std::size_t length) {
  return {static_cast<std::byte*>(const_cast<void*>(address)), whole_pages(length)};
}

bool bad_range(const void* address, std::size_t length) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  // The kernel refuses what ends above the addresses of any processor, and does nothing of it.
  constexpr std::uintptr_t kEnd = std::uintptr_t{1} << 56;
  return at % kPage != 0 || !in_range(at, length, kEnd);
}

// Touched in order if it is large, at random if not: nothing better is known of it.
std::size_t extent_for(std::size_t bytes) {
  return bytes >= 2 * kHugePage ? large_extent() : kSmallExtent;
}

std::byte* new_mapping(std::size_t bytes) {
  return create_region(Use::mapping, whole_pages(bytes), whole_pages(bytes), extent_for(bytes));
}

bool may_be_tiered(std::size_t bytes, int protection, int flags) {
  constexpr int kPlainOnly = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN | MAP_STACK |
                             MAP_HUGETLB | MAP_LOCKED | MAP_32BIT;
  return bytes >= settings().mapping && bytes < (std::size_t{1} << 46) &&
         protection == (PROT_READ | PROT_WRITE) && (flags & MAP_ANONYMOUS) != 0 &&
         (flags & MAP_TYPE) == MAP_PRIVATE && (flags & kPlainOnly) == 0;
}

bool is_fresh_memory(int protection, int flags) {
  return protection == (PROT_READ | PROT_WRITE) && (flags & MAP_ANONYMOUS) != 0 &&
         (flags & MAP_TYPE) == MAP_PRIVATE && (flags & (MAP_HUGETLB | MAP_GROWSDOWN)) == 0;
}

void* map(void* address, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (inside_tiermem()) {
    return tiermem_plain_mmap(address, bytes, protection, flags, fd, offset);
  }
  if ((flags & MAP_FIXED) != 0 && touches_regions(address, bytes) && !bad_range(address, bytes)) {
    Region region;
    if (is_fresh_memory(protection, flags) && find_region(address, region) &&
        part_of(address, bytes).end() <= region.begin + region.capacity) {
      // Fresh memory in the place of old: it is that already, once it is empty.
      return renew_part(part_of(address, bytes)) == 0 ? address : MAP_FAILED;
    }
    if (!leave_tiers(part_of(address, bytes))) {
      return MAP_FAILED;
    }
  } else if (may_be_tiered(bytes, protection, flags) && tiered(bytes)) {
    if (std::byte* const mapping = new_mapping(bytes); mapping != nullptr) {
      return mapping;
    }
  }
  return tiermem_plain_mmap(address, bytes, protection, flags, fd, offset);
}

int plain_unmap(std::byte* begin, std::size_t length, int) {
  return tiermem_plain_munmap(begin, length);
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

int lock(const void* address, std::size_t length, unsigned flags) {
  // The kernel rounds the start down.
  const std::size_t head = reinterpret_cast<std::uintptr_t>(address) % kPage;
  if (!ours(address, length) || bad_range(static_cast<const std::byte*>(address) - head, length)) {
    return plain_mlock(address, length, flags);
  }
  return lock_parts(part_of(static_cast<const std::byte*>(address) - head, length + head),
                    static_cast<int>(flags), plain_lock);
}

// What grows beyond its window, or is a part of it, gets a window of its own, and the bytes move.
void* move_mapping(Part from, std::size_t to) {
  std::byte* const moved = new_mapping(std::max(to, settings().mapping));
  if (moved == nullptr) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  move_part({from.begin, std::min(from.length, to)}, moved);
  (void)unmap_parts(from, plain_unmap);
  return moved;
}

void* remap(void* address, std::size_t from, std::size_t to, int flags, void* at) {
  if ((flags & MREMAP_FIXED) != 0 && ours(at, to) && !leave_tiers(part_of(at, to))) {
    return MAP_FAILED;
  }
  Region region;
  if (inside_tiermem() || !find_region(address, region)) {
    return plain_mremap(address, from, to, flags, at);
  }
  const Part part = part_of(address, from);
  to = whole_pages(to);
  if (to == 0 || bad_range(address, from) || part.end() > region.begin + region.capacity) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
    log_warn("mremap of a tiered mapping to a fixed place is refused");
    errno = ENOMEM;
    return MAP_FAILED;
  }
  const bool whole = region.begin == part.begin && region.length == part.length;
  if (whole && region.use == Use::mapping && to <= region.capacity) {
    resize_region(region.begin, to);
    return address;
  }
  if (to <= part.length) {
    return to == part.length || unmap_parts({part.begin + to, part.length - to}, plain_unmap) == 0
               ? address
               : MAP_FAILED;
  }
  if ((flags & MREMAP_MAYMOVE) == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return move_mapping(part, to);
}

// For threads that must never wait for a device.
int lock_all(int flags) {
  if (inside_tiermem() || context() == nullptr) {
    stop_tiering("the program locks all of its memory (mlockall)");
    return static_cast<int>(::syscall(SYS_mlockall, flags));
  }
  stop_tiering("the program locks all of its memory (mlockall)");
  if ((flags & MCL_CURRENT) != 0 && !pin_all()) {
    errno = ENOMEM;
    return -1;
  }
  // Not asked of the kernel: it would fill the address space that windows reserve.
  return 0;
}

// Frames move from under references that are no pins: bytes in a pipe must be copies.
ssize_t splice_memory(int fd, const iovec* parts, std::size_t count, unsigned flags) {
  if (count > IOV_MAX) {
    errno = EINVAL;  // The kernel looks at the lower 32 bits only.
    return -1;
  }
  const bool tiered_part = std::any_of(
      parts, parts + count, [](const iovec& part) { return ours(part.iov_base, part.iov_len); });
  if (!tiered_part) {
    return ::syscall(SYS_vmsplice, fd, parts, count, flags);
  }
  const int mode = ::fcntl(fd, F_GETFL);
  const bool writes = mode >= 0 && (mode & O_ACCMODE) != O_RDONLY;
  return writes ? ::writev(fd, parts, static_cast<int>(count))
                : ::readv(fd, parts, static_cast<int>(count));
}

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED void* mmap(void* address, size_t bytes, int protection, int flags, int fd,
                              off_t offset) noexcept {
  return map(address, bytes, protection, flags, fd, offset);
}

TIERMEM_INTERPOSED void* mmap64(void* address, size_t bytes, int protection, int flags, int fd,
                                off64_t offset) noexcept {
  return map(address, bytes, protection, flags, fd, offset);
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

TIERMEM_INTERPOSED int madvise(void* address, size_t length, int advice) noexcept {
  return ours(address, length) && !bad_range(address, length)
             ? advise_parts(part_of(address, length), advice, plain_advise)
             : tiermem_plain_madvise(address, length, advice);
}

TIERMEM_INTERPOSED int posix_madvise(void* address, size_t length, int advice) noexcept {
  if (advice == POSIX_MADV_DONTNEED) {
    return 0;  // Unlike the other call's it loses nothing: glibc ignores it, too.
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

TIERMEM_INTERPOSED ssize_t vmsplice(int fd, const iovec* parts, size_t count, unsigned flags) {
  return splice_memory(fd, parts, count, flags);
}

// A zero-copy send refers to pages that may move meanwhile. Programs send by copying where the
// kernel does not offer it.
TIERMEM_INTERPOSED int setsockopt(int fd, int level, int name, const void* value,
                                  socklen_t bytes) noexcept {
  if (level == SOL_SOCKET && name == SO_ZEROCOPY && context() != nullptr) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_setsockopt, fd, level, name, value, bytes));
}

}  // extern "C"
