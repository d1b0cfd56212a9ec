// System V shared memory at addresses that the program chooses. The kernel maps a segment by a call
// of its own. Over tiered memory it becomes a foreign mapping, as a file does (mapping.cpp).
// remap_file_pages needs nothing here: the kernel accepts it for shared mappings only, and leaves
// those where they are.
//
// Threads: any.
#include <errno.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "base/arena.hpp"
#include "base/checked.hpp"
#include "base/results.hpp"
#include "preload/kernel.hpp"
#include "preload/region.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

constexpr std::size_t kPage = 4096;

struct Segment {
  int id;
  int flags;
};

void* attach(const Segment& segment, const void* address) {
  return reinterpret_cast<void*>(direct(SYS_shmat, segment.id, address, segment.flags));
}

// Whole pages; 0 if the program lacks permission.
std::size_t bytes_of(int id) {
  shmid_ds facts{};
  return direct(SYS_shmctl, id, IPC_STAT, &facts) == 0 ? round_up(facts.shm_segsz, kPage) : 0;
}

int protection_of(int flags) {
  return PROT_READ | ((flags & SHM_RDONLY) == 0 ? PROT_WRITE : 0) |
         ((flags & SHM_EXEC) != 0 ? PROT_EXEC : 0);
}

// The kernel attaches the segment elsewhere first. If it refuses, nothing has been given up.
bool may_attach(const Segment& segment) {
  void* const elsewhere = attach({segment.id, segment.flags & ~(SHM_REMAP | SHM_RND)}, nullptr);
  if (elsewhere == MAP_FAILED) {
    return false;
  }
  best_effort(direct(SYS_shmdt, elsewhere), "addresses are all that it costs");
  return true;
}

void* attach_over(Segment segment, Part range) {
  if (!may_attach(segment)) {
    return MAP_FAILED;
  }
  const bool replaces = (segment.flags & SHM_REMAP) != 0;
  if (!replaces && !claim_unmapped(range, plain_claim, plain_unmap)) {
    errno = EINVAL;  // The kernel's error if something is mapped there.
    return MAP_FAILED;
  }
  segment.flags |= SHM_REMAP;
  void* const attached = lend_parts(
      range, protection_of(segment.flags),
      [](Part at, void* argument) {
        return attach(*static_cast<const Segment*>(argument), at.begin);
      },
      &segment);
  if (attached == MAP_FAILED && !replaces) {
    const int error = errno;
    give_back_claims(range, plain_unmap);
    errno = error;
  }
  return attached;
}

bool is_hole(std::byte* page) {
  return direct(SYS_msync, page, kPage, MS_ASYNC) != 0 && errno == ENOMEM;
}

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED void* shmat(int id, const void* address, int flags) noexcept {
  auto at = reinterpret_cast<std::uintptr_t>(address);
  at -= (flags & SHM_RND) != 0 ? at % kPage : 0;
  const std::size_t bytes =
      at == 0 || at % kPage != 0 || tiermem::inside_tiermem() ? 0 : bytes_of(id);
  auto* const begin = reinterpret_cast<std::byte*>(at);
  return bytes == 0 || !touches_regions(begin, bytes) ? attach({id, flags}, address)
                                                      : attach_over({id, flags}, {begin, bytes});
}

// Pages of the segment that the program has replaced stay unchanged.
TIERMEM_INTERPOSED int shmdt(const void* address) noexcept {
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(address));
  const int result = static_cast<int>(direct(SYS_shmdt, address));
  constexpr std::size_t kAny = PTRDIFF_MAX;  // The kernel does not tell the segment's size.
  if (result == 0 && !tiermem::inside_tiermem() && touches_regions(begin, kAny)) {
    take_back_holes(begin, is_hole);
  }
  return result;
}

}  // extern "C"
