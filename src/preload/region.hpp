// Regions: the tiered address ranges of this process, each one mapped buffer, with the states of
// their pages (page_states.hpp). Each memory call of the program is a transition of this table,
// with the kernel's meaning and errno; docs/preload.md lists them.
//
// A page's state has these consequences:
//   tiered     the mover moves it, whatever its protection is
//   pinned     (locked, kept, keyed) its extent is resident, by a view for each such extent
//   foreign    the window is lent there (LentPages); an extent that is foreign in part is pinned
//   unmapped   it has no bytes, and no access is allowed; the addresses come back with the region
//
// Threads: any; one lock, shared for readers. A thread holds it while the mover changes pins for
// the call. A thread that holds it never touches tiered memory.
//
// A region ends when all of its pages are unmapped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preload/page_state.hpp"
#include "tiermem/types.hpp"

namespace tiermem::preload {

enum class Use : std::uint8_t {
  heap,     ///< jemalloc cuts it into blocks; it never ends.
  block,    ///< One malloc.
  mapping,  ///< One mmap.
};

struct Region {
  std::byte* begin = nullptr;
  /// The bytes that the program may use; for a heap, the bytes that were cut from it.
  std::size_t length = 0;
  std::size_t capacity = 0;  ///< The length up to which it can grow in place.
  Handle buffer = 0;
  Use use = Use::heap;
};

/// Makes a region that reads as zeros, at a multiple of `extent`. Returns null on failure.
std::byte* create_region(Use use, std::size_t length, std::size_t capacity, std::size_t extent);
/// Maps fresh memory of `length` bytes, whole pages, at the lowest unmapped addresses of the pool
/// that create_pool() made at `pool`. Returns null if the pool has no room or has ended.
std::byte* map_in_pool(std::byte* pool, std::size_t length);
/// Makes a region for small mappings, of which only the first `length` bytes are mapped. Returns
/// null on failure.
std::byte* create_pool(std::size_t length, std::size_t capacity, std::size_t extent);
/// Finds the region that contains `address`. Returns false if there is none.
bool find_region(const void* address, Region& region);
/// Whether any byte of the part is in a region. Quick, because most calls need only this answer.
bool touches_regions(const void* address, std::size_t length);

/// A uniform run at the beginning of a range, and its length.
struct Stretch {
  std::size_t bytes = 0;
  /// It is in a region and may leave memory; otherwise the kernel may use it as it is.
  bool may_be_absent = false;
  int protection = PROT_READ | PROT_WRITE;  ///< The protection, if it may be absent.
};
/// Also called in signal handlers, even on a thread that holds the lock. Such a call gets the worst
/// case.
Stretch stretch_at(const void* address, std::size_t length);

/// Returns how many bytes from the beginning of the range may be touched with this access
/// (PROT_READ or PROT_WRITE), according to the regions: an unmapped or protected page ends it. Also
/// called in signal handlers. On a thread that holds the lock it returns the whole length.
std::size_t accessible_bytes(const void* address, std::size_t length, int access);

/// The bytes in regions that the program may touch.
std::uint64_t tiered_bytes();

/// Ends the region that begins at `begin` and has this use. Returns false if there is none.
bool free_region(std::byte* begin, Use use);
/// Changes the program's length of the region, up to the capacity. Bytes that are cut off read as
/// zeros when the region grows again.
void resize_region(std::byte* begin, std::size_t length);

/// Moves the bytes of a part of one region into another, at `to`; the part reads as zeros
/// afterwards. Absent bytes are neither read nor written.
void move_part(Part from, std::byte* to);

// These act on the parts of a range that are in regions, in whole pages, and call `rest` for the
// other parts. They return 0, or -1 with errno. On failure they have done what the kernel would
// have done up to the page that it refuses.
using Rest = int (*)(std::byte* begin, std::size_t length, int argument);
int unmap_parts(Part range, Rest rest);
/// Makes the range private memory that reads as zeros and has this protection.
int renew_parts(Part range, int protection, Rest rest);
int protect_parts(Part range, int protection, Rest rest);
/// `key` is that of pkey_mprotect.
int protect_by_key(Part range, int protection, int key, Rest rest);
int advise_parts(Part range, int advice, Rest rest);
int lock_parts(Part range, int flags, Rest rest);
int unlock_parts(Part range, Rest rest);
/// Returns 0, or -1 and ENOMEM if a page of a region is unmapped: for msync and mincore.
int check_mapped(Part range);
/// Lets the program map something else over the range. Calls `place` after tiermem has given up the
/// range, and returns its result. `protection` is that of the new mapping, as far as it is known.
/// Returns MAP_FAILED with errno in two cases. There may be no room for extents that must stay, and
/// nothing has changed. Or `place` failed, and the range is fresh memory.
void* lend_parts(Part range, int protection, void* (*place)(Part range, void* argument),
                 void* argument);
/// Does what mlockall(MCL_CURRENT) does to the pages of regions. `on_fault`: locks them without
/// bringing them in, as MCL_ONFAULT. Returns false with errno if they do not fit; nothing has
/// changed then.
bool mlock_regions(bool on_fault);
/// Does what munlockall does to the pages of regions.
void munlock_regions();

/// A stack grows down from `top` and may be in a region. Brings in its next pages.
void bring_stack(const void* top);

/// Brings in the part of a region that the kernel itself may write at any time, a stack for
/// signals. Keeps it resident until `let_leave`. Returns false if it does not fit. Memory in no
/// region stays as it is.
bool keep_resident(Part part);
void let_leave(Part part);

/// Whether the pages are mapped, of one kind, and equal in protection and locks. If not, the kernel
/// would not move them as one mapping.
bool alike_part(Part part, PageState& state);
/// The kernel has unmapped some pages from `begin` on, in any number of regions. Foreign pages for
/// which `is_hole` returns true become unmapped, and tiermem owns them again.
void take_back_holes(std::byte* begin, bool (*is_hole)(std::byte* page));
/// Whether the program has nothing mapped in the range. Outside regions, `claim` reserves the
/// addresses, so that no other thread's mapping takes them; it returns 0 only if nothing was mapped
/// there. On false, all claims are given back.
bool claim_unmapped(Part range, Rest claim, Rest give_back);
/// Undoes claim_unmapped() after the mapping that followed has failed.
void give_back_claims(Part range, Rest give_back);
/// Extends the part in place to `to` bytes. The new pages get the state of its last one. Returns
/// false unless they are unmapped pages of the same region.
bool grow_part(Part part, std::size_t to);

/// Called around fork.
void lock_regions();
void unlock_regions();
/// Call this instead in the child of a fork: threads that waited for the lock do not exist there.
void renew_regions_lock();

}  // namespace tiermem::preload
