// Random sequences of calls on memory, for a program to make on plain memory and under the preload
// library: tiermem-judge compares what it sees.
//
// A call names pages of a slot: a slot is one mapping that the program made at the beginning, with
// the number of its pages. What a call does depends on the seed only, never on the outcome of the
// calls before it, so that calls can be left out of a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace judge {

inline constexpr std::size_t kPage = 4096;
inline constexpr unsigned kSlots = 3;
inline constexpr unsigned kMostPages = 400;  ///< No slot ever has more.
inline constexpr unsigned kFilePages = 64;   ///< Of the file that calls map and read.

enum class What : std::uint8_t {
  store,       ///< Stores to each page; argument: the pattern.
  protect,     ///< mprotect; argument: PROT_ bits.
  unmap,       ///< munmap
  map_fresh,   ///< mmap(MAP_FIXED), private and anonymous; argument: PROT_ bits, flags in `more`.
  map_again,   ///< The same with MAP_FIXED_NOREPLACE.
  map_file,    ///< mmap(MAP_FIXED) of the file; argument: PROT_ bits, MAP_SHARED in `more`.
  map_shared,  ///< mmap(MAP_FIXED), shared and anonymous, or of /dev/zero by the argument.
  map_wrong,   ///< mmap(MAP_FIXED) that the kernel refuses: a descriptor that is none.
  advise,      ///< madvise; argument: the advice.
  lock,        ///< mlock; argument 1: mlock2(MLOCK_ONFAULT).
  unlock,      ///< munlock
  sync,        ///< msync
  resident,    ///< mincore, whose answer for each page is not compared.
  shrink,      ///< mremap to fewer pages; argument: how many.
  grow,        ///< mremap(MREMAP_MAYMOVE) of the whole slot to more pages; argument: how many.
  move,        ///< mremap(MREMAP_FIXED) to pages of another slot; argument: slot and page.
  read_file,   ///< pread from the file into the pages, from 100 bytes behind their beginning.
  write_file,  ///< pwrite of the pages to another file, whose bytes are compared.
  copy,        ///< memcpy of pages to another slot; argument: slot and page.
  children,    ///< fork: the child looks at everything, stores to the pages and ends.
  pressure,    ///< Everything leaves memory, if it can.
  look,        ///< Looks at every page of every slot, and at /proc/self/maps.
};

struct Call {
  What what = What::look;
  unsigned slot = 0;
  unsigned page = 0;
  unsigned pages = 1;
  std::uint32_t argument = 0;
  std::uint32_t more = 0;
};

struct Sequence {
  std::uint64_t seed = 0;
  unsigned pages[kSlots] = {};  ///< Of each slot, at the beginning.
  std::vector<Call> calls;
};

/// How a call of What::protect is made.
enum class Way : std::uint8_t { library, system_call, with_key };
Way way_to_protect(const Call& call);
/// The protection key of Way::with_key: none (-1), the default (0), or one that is not allocated.
int key_of(const Call& call);
/// The flags with which a child of What::children locks all of its memory (mlockall); -1: it does
/// not.
int locks_of(const Call& call);

Sequence make_sequence(std::uint64_t seed, unsigned calls);

/// One line for people: "mprotect(slot 1, page 3, 5 pages, r-x)".
std::string text_of(const Call& call);
/// A program in C that makes the calls and prints what it sees, to be run with and without tiermem.
std::string program_of(const Sequence& sequence);

}  // namespace judge
