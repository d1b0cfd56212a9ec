// Random sequences of calls on memory, which a program makes on plain memory and under the preload
// library. tiermem-judge compares the results.
//
// A call names pages of a slot. A slot is one mapping, created at the beginning with a number of
// pages. The effect of a call depends only on the seed and never on the results of earlier calls,
// so calls can be left out of a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace judge {

inline constexpr std::size_t kPage = 4096;
inline constexpr unsigned kSlots = 3;
inline constexpr unsigned kMostPages = 400;  ///< The maximum of a slot at any time.
inline constexpr unsigned kFilePages = 64;   ///< The size of the file that calls map and read.

enum class What : std::uint8_t {
  store,       ///< Stores to each page; argument: the pattern.
  protect,     ///< mprotect; argument: PROT_ bits.
  unmap,       ///< munmap
  map_fresh,   ///< mmap(MAP_FIXED), private and anonymous; argument: PROT_ bits, flags in `more`.
  map_again,   ///< The same with MAP_FIXED_NOREPLACE.
  map_file,    ///< mmap(MAP_FIXED) of the file; argument: PROT_ bits, MAP_SHARED in `more`.
  map_shared,  ///< mmap(MAP_FIXED), shared and anonymous, or of /dev/zero by the argument.
  map_wrong,   ///< mmap(MAP_FIXED) that the kernel refuses: the descriptor is invalid.
  advise,      ///< madvise; argument: the advice.
  lock,        ///< mlock; argument 1: mlock2(MLOCK_ONFAULT).
  unlock,      ///< munlock
  sync,        ///< msync
  resident,    ///< mincore; its answer for each page is not compared.
  shrink,      ///< mremap to fewer pages; argument: their number.
  grow,        ///< mremap(MREMAP_MAYMOVE) of the whole slot to more pages; argument: their number.
  move,        ///< mremap(MREMAP_FIXED) to pages of another slot; argument: slot and page.
  read_file,   ///< pread from the file into the pages, starting 100 bytes after their beginning.
  write_file,  ///< pwrite of the pages to another file; its bytes are compared.
  copy,        ///< memcpy of pages to another slot; argument: slot and page.
  children,    ///< fork: the child reads everything, stores to the pages and ends.
  pressure,    ///< Everything leaves memory if possible.
  look,        ///< Reads every page of every slot, and /proc/self/maps.
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
  unsigned pages[kSlots] = {};  ///< The initial number of pages of each slot.
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

/// Returns one line for people: "mprotect(slot 1, page 3, 5 pages, r-x)".
std::string text_of(const Call& call);
/// Returns a C program that makes the calls and prints what it sees. Run it with and without
/// tiermem.
std::string program_of(const Sequence& sequence);

}  // namespace judge
