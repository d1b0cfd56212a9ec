// Regions: the address ranges of this process that are tiered, each one mapped buffer, and what the
// program does to parts of them: unmapping, protecting, locking, advising. A part that may not move
// (another protection, a lock, something else mapped over it) is pinned, and so stays resident.
//
// Threads: any; one lock, shared for looking. It is held while the mover works for a change of
// pins, never by a thread that then touches tiered memory.
//
// Of a region: live + unmapped == length, in pages; it ends when live is 0.
#pragma once

#include <cstddef>
#include <cstdint>

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

/// A range of addresses.
struct Part {
  std::byte* begin = nullptr;
  std::size_t length = 0;
  std::byte* end() const { return begin + length; }
};

/// A new region that reads as zeros, at a multiple of `extent`; null when there is none to be had.
std::byte* create_region(Use use, std::size_t length, std::size_t capacity, std::size_t extent);
/// The region that `address` is in. False: none.
bool find_region(const void* address, Region& region);
/// Is any byte of the part in a region? The quick answer to most calls.
bool touches_regions(const void* address, std::size_t length);

/// The beginning of a range: of one kind, and how long.
struct Stretch {
  std::size_t bytes = 0;
  bool may_be_absent = false;  ///< In a region, and may leave memory; else the kernel's as it is.
};
/// Also in handlers of signals, of threads that hold the lock too: these are told the worst.
Stretch stretch_at(const void* address, std::size_t length);

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
// others. They return 0, or -1 with errno.
using Rest = int (*)(std::byte* begin, std::size_t length, int argument);
int unmap_parts(Part range, Rest rest);
/// Zeros, read-write and mapped again, whatever was done to the range, which is in one region.
int renew_part(Part range);
int protect_parts(Part range, int protection, Rest rest);
int advise_parts(Part range, int advice, Rest rest);
int lock_parts(Part range, int flags, Rest rest);
int unlock_parts(Part range, Rest rest);
/// Something else is about to be mapped over the range: what is tiered there is given up for good.
/// False with errno: it cannot be.
bool leave_tiers(Part range);
/// All regions are brought in and stay. False: they do not fit.
bool pin_all();

/// A stack grows down from `top`, and may be in a region: its next pages are brought in.
void bring_stack(const void* top);

/// The part of a region that the kernel itself writes at any time, a stack for signals, comes in
/// and stays until `let_leave`. False: it does not fit. What is in no region is as it is.
bool keep_resident(Part part);
void let_leave(Part part);

/// Around fork.
void lock_regions();
void unlock_regions();
/// In the child of a fork, instead: whoever waited for the lock does not exist there.
void renew_regions_lock();

}  // namespace tiermem::preload
