// Regions: the address ranges of this process that are tiered, each one mapped buffer, and what the
// program made of their pages (page_states.hpp). Each call of the program on memory is a transition
// of that table, with the kernel's meaning and errno; docs/preload.md lists them.
//
// A page's state has these consequences:
//   tiered     the mover moves it, whatever its protection is
//   pinned     (locked, kept, keyed) its extent is resident, by a view for each such extent
//   foreign    the window is lent there (LentPages); an extent that is foreign in part is pinned
//   unmapped   it has no bytes, and no access is allowed; the addresses come back with the region
//
// Threads: any; one lock, shared for looking. It is held while the mover works for a change of
// pins, never by a thread that then touches tiered memory.
//
// A region ends when all of its pages are unmapped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "preload/page_state.hpp"
#include "tiermem/types.hpp"

namespace tiermem::preload {

enum class Use : std::uint8_t {
  heap,     ///< Cut into blocks by jemalloc; never ends.
  block,    ///< One malloc.
  mapping,  ///< One mmap.
};

struct Region {
  std::byte* begin = nullptr;
  std::size_t length = 0;    ///< What the program knows of; of a heap, what was cut from it.
  std::size_t capacity = 0;  ///< What it can grow to in place.
  Handle buffer = 0;
  Use use = Use::heap;
};

/// A new region that reads as zeros, at a multiple of `extent`; null when there is none to be had.
std::byte* create_region(Use use, std::size_t length, std::size_t capacity, std::size_t extent);
/// Maps fresh memory of `length` bytes, whole pages, in what is unmapped of the region that
/// create_pool() made at `pool`, lowest first. Null: the region has no room, or is gone.
std::byte* map_in_pool(std::byte* pool, std::size_t length);
/// A region for small mappings, of which nothing is mapped but its first `length` bytes. Null when
/// there is none to be had.
std::byte* create_pool(std::size_t length, std::size_t capacity, std::size_t extent);
/// The region that `address` is in. False: none.
bool find_region(const void* address, Region& region);
/// Is any byte of the part in a region? The quick answer to most calls.
bool touches_regions(const void* address, std::size_t length);

/// The beginning of a range: of one kind, and how long.
struct Stretch {
  std::size_t bytes = 0;
  bool may_be_absent = false;  ///< In a region, and may leave memory; else the kernel's as it is.
  int protection = PROT_READ | PROT_WRITE;  ///< Of what may be absent.
};
/// Also in handlers of signals, of threads that hold the lock too: these are told the worst.
Stretch stretch_at(const void* address, std::size_t length);

/// How many bytes from the range's beginning on may be touched with this access (PROT_READ or
/// PROT_WRITE), as far as regions know: an unmapped or protected page ends it. Also in handlers of
/// signals. A thread that holds the lock is told all of it.
std::size_t accessible_bytes(const void* address, std::size_t length, int access);

/// Bytes that the program has in regions.
std::uint64_t tiered_bytes();

/// Ends the region that begins at `begin` and has this use. False: there is none.
bool free_region(std::byte* begin, Use use);
/// The program's length becomes another, up to the capacity. What is cut off reads as zeros when
/// it comes again.
void resize_region(std::byte* begin, std::size_t length);

/// The bytes of a part of one region become those of another, at `to`, and the part reads as zeros.
/// What is not in memory is neither read nor written.
void move_part(Part from, std::byte* to);

// These act on the parts of a range that are in regions, whole pages; `rest` is called for the
// others. They return 0, or -1 with errno, and have then done what the kernel would have done up to
// the page that it refuses.
using Rest = int (*)(std::byte* begin, std::size_t length, int argument);
int unmap_parts(Part range, Rest rest);
/// Private memory that reads as zeros and has this protection, whatever was there before.
int renew_parts(Part range, int protection, Rest rest);
int protect_parts(Part range, int protection, Rest rest);
/// `key`: of pkey_mprotect.
int protect_by_key(Part range, int protection, int key, Rest rest);
int advise_parts(Part range, int advice, Rest rest);
int lock_parts(Part range, int flags, Rest rest);
int unlock_parts(Part range, Rest rest);
/// 0, or -1 and ENOMEM where a page of a region is unmapped: msync and mincore.
int check_mapped(Part range);
/// Something else is mapped over the range: `place` is called for it, when nothing of tiermem's is
/// there any more. `protection`: of what it maps, as far as is known. Returns what `place` returns.
/// MAP_FAILED with errno: there is no room for extents that must stay, and nothing has changed; or
/// `place` failed, and the range is fresh memory.
void* lend_parts(Part range, int protection, void* (*place)(Part range, void* argument),
                 void* argument);
/// All regions are brought in and stay. False: they do not fit.
bool pin_all();

/// A stack grows down from `top`, and may be in a region: its next pages are brought in.
void bring_stack(const void* top);

/// The part of a region that the kernel itself writes at any time, a stack for signals, comes in
/// and stays until `let_leave`. False: it does not fit. What is in no region is as it is.
bool keep_resident(Part part);
void let_leave(Part part);

/// The pages are of one kind, alike in protection and locks, and mapped. False: the kernel would
/// not move them as one mapping.
bool alike_part(Part part, PageState& state);
/// The kernel has unmapped some of the foreign pages of the region, from `begin` on: those for which
/// `is_hole` answers true are unmapped, and tiermem's again.
void take_back_holes(std::byte* begin, bool (*is_hole)(std::byte* page));
/// The range has nothing of the program's: where it is not of regions `claim` takes the addresses,
/// so that no other thread's mapping comes there, and it answers 0 only if nothing was there. False:
/// there is something, and what was claimed is given back.
bool claim_unmapped(Part range, Rest claim, Rest give_back);
/// Undoes claim_unmapped() where the mapping that was to follow failed.
void give_back_claims(Part range, Rest give_back);
/// The pages behind the part, up to `to` bytes from its beginning, become as its last one is: in
/// place, if they are unmapped pages of the same region. False: they are not.
bool grow_part(Part part, std::size_t to);

/// Around fork.
void lock_regions();
void unlock_regions();
/// In the child of a fork, instead: whoever waited for the lock does not exist there.
void renew_regions_lock();

}  // namespace tiermem::preload
