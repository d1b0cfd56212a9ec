// Anonymous memory of the host: address ranges, pages for them, and moving them by page tables.
// What the kernel allows is asked here once, at start, by doing it on scratch memory.
//
// Threads: every function is for any thread; two calls on overlapping ranges are the callers'
// business. The functions that return int give 0 or errno. Nothing here keeps books.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tiermem/status.hpp"

namespace tiermem::host {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

/// Owns an address range; unmaps it. In a forked child it lets go without unmapping: a range that
/// was not inherited may be something else there.
class AddressRange {
 public:
  AddressRange() = default;
  AddressRange(std::byte* data, std::uint64_t bytes);
  ~AddressRange();
  AddressRange(AddressRange&& other) noexcept;
  AddressRange& operator=(AddressRange&& other) noexcept;

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  bool contains(const std::byte* address) const {
    return address >= data_ && address < data_ + bytes_;
  }
  /// In a forked child: the range was inherited, or mapped again, and is this process's to unmap.
  void adopt();

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  int owner_ = 0;  // The process that mapped it.
};

struct ReserveOptions {
  std::uint64_t bytes = 0;              ///< Whole pages.
  std::uint64_t alignment = kHugePage;  ///< A power of two, at least a page.
  std::byte* near = nullptr;            ///< Tried first, so that neighbours merge into one VMA.
  bool exactly = false;                 ///< There or nowhere.
  bool accessible = true;               ///< False: PROT_NONE, any touch is SIGSEGV.
  bool dumped = true;                   ///< In core dumps, as far as it has pages.
};

/// Private anonymous address space without pages; never locked, even after mlockall(MCL_FUTURE),
/// which would otherwise fill it at once. Accessible, it is charged to RLIMIT_DATA and, where
/// vm.overcommit_memory is 2, to the machine's commit limit. no_capacity when refused, with the
/// limit that was reached.
Result<AddressRange> reserve(const ReserveOptions& options);

/// Empty, accessible memory where nothing is. 0, or errno: EEXIST when something is there.
[[nodiscard]] int map_again(std::byte* address, std::uint64_t bytes);
/// In a forked child: a range that was not inherited is mapped, empty and accessible, and is this
/// process's. Where it was, unless somebody was there first (a library that begins a thread in the
/// child); then elsewhere. no_capacity.
Status reserve_again(AddressRange& range, std::uint64_t alignment);

enum class Advise { huge, no_huge, dont_fork, do_fork, collapse, dont_dump, do_dump };

[[nodiscard]] int advise(std::byte* address, std::uint64_t bytes, Advise advice);
/// Pages for the range, zeroed where they are new. Falls back to touching (Linux before 5.14).
[[nodiscard]] int populate(std::byte* address, std::uint64_t bytes);
/// Pages that a forked child shares become this process's own, by a copy where the child still has
/// them; whoever writes them meanwhile loses nothing. Waits in a fault where a page is absent.
[[nodiscard]] int unshare(std::byte* address, std::uint64_t bytes);
/// Gives the pages back; the range reads as zeros, or faults where it is registered. Also where the
/// program locked its memory.
[[nodiscard]] int drop(std::byte* address, std::uint64_t bytes);
struct Range {
  std::byte* address = nullptr;
  std::uint64_t bytes = 0;
};
/// The same for many ranges: in one call where the kernel takes it (Linux 6.14, which flushes the
/// processors' tables once for all), else one by one. The first error; the others are dropped.
[[nodiscard]] int drop(std::span<const Range> ranges);
/// Moves pages by mremap(FIXED | DONTUNMAP): `from` keeps its mapping, empty.
[[nodiscard]] int remap(std::byte* to, std::byte* from, std::uint64_t bytes);
/// Puts empty, inaccessible memory in place of whatever is mapped.
[[nodiscard]] int close_range(std::byte* address, std::uint64_t bytes);
/// Puts empty, accessible memory in place of whatever is mapped, page tables included.
[[nodiscard]] int renew(std::byte* address, std::uint64_t bytes);
/// What is mapped there stays, and a touch of it is SIGSEGV.
[[nodiscard]] int shut_range(std::byte* address, std::uint64_t bytes);
/// What is mapped there can be read; a store is SIGSEGV.
[[nodiscard]] int close_for_stores(std::byte* address, std::uint64_t bytes);
/// What is mapped there can be read and written.
[[nodiscard]] int open_range(std::byte* address, std::uint64_t bytes);
/// The same for a range whose bytes are needed: tries again for a second, because memory or
/// mappings can be short for a moment. Then ends the process, since going on would lose bytes.
void must_open_range(std::byte* address, std::uint64_t bytes);
/// Puts something in place of whatever is mapped that has no bytes: a touch is SIGBUS, or SIGSEGV
/// where the kernel has no file for it (memfd_create).
[[nodiscard]] int map_no_bytes(std::byte* address, std::uint64_t bytes);

/// Bytes of the range that are mapped as huge pages; no value where the kernel does not tell
/// cheaply (before Linux 6.7).
std::optional<std::uint64_t> huge_bytes(const std::byte* address, std::uint64_t bytes);
/// Bytes at the beginning of the range in whose pages something is, present or swapped out; or,
/// with `there` false, nothing is. Asks the page tables and touches nothing. Without /proc a page
/// that is swapped out counts as nothing.
std::uint64_t leading_bytes(const std::byte* address, std::uint64_t bytes, bool there);
/// Of at most 32 pages, a bit for each that is there and that userfaultfd watches
/// (Userfault::copy). 0 where /proc cannot tell.
std::uint32_t watched_pages(const std::byte* address, unsigned pages);
/// True when transparent huge pages can be had by asking; else `reason` says why not.
bool huge_pages_available(char* reason, std::size_t room);
/// Moves 2 MiB there and back by mremap on scratch memory and compares every byte.
bool probe_remap(char* reason, std::size_t room);

/// Mappings of this process now, and how many it may have (vm.max_map_count). 0 when unknown.
std::uint64_t map_count();
std::uint64_t map_limit();
/// RLIMIT_AS in bytes; the largest number when there is none.
std::uint64_t address_space_limit();

/// Zeros. Past the processor's caches when there is much to clear: whoever comes next overwrites
/// it.
void clear(std::byte* address, std::uint64_t bytes);

/// Scratch bytes for probes.
void write_pattern(std::byte* address, std::uint64_t bytes);
bool check_pattern(const std::byte* address, std::uint64_t bytes);

}  // namespace tiermem::host
