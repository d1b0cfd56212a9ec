// Anonymous memory of the host: address ranges, their pages, and movement of pages by page tables.
// This file also probes what the kernel supports, once at start, on scratch memory.
//
// Threads: any thread may call every function; callers must not overlap two calls on one range.
// Functions that return int return 0 or errno. Nothing here keeps records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tiermem/status.hpp"

namespace tiermem::host {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

/// Owns an address range and unmaps it. In a forked child it does not unmap: a range that the child
/// did not inherit may belong to other code there.
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
  /// For a forked child: the range was inherited or mapped again, so this process now owns it.
  void adopt();

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  int owner_ = 0;  // The process that mapped the range.
};

struct ReserveOptions {
  std::uint64_t bytes = 0;              ///< Whole pages.
  std::uint64_t alignment = kHugePage;  ///< A power of two, at least one page.
  std::byte* near = nullptr;            ///< Tried first, so that neighbours merge into one VMA.
  bool exactly = false;                 ///< Fail if `near` is not available.
  bool accessible = true;               ///< False: PROT_NONE, so any touch raises SIGSEGV.
  bool dumped = true;                   ///< Include its pages in core dumps.
};

/// Reserves private anonymous address space without pages. It is never locked, not even after
/// mlockall(MCL_FUTURE), which would otherwise fill it at once. An accessible range is charged to
/// RLIMIT_DATA and, if vm.overcommit_memory is 2, to the machine's commit limit.
///
/// - Errors: no_capacity, with the limit that was reached.
Result<AddressRange> reserve(const ReserveOptions& options);

/// Maps empty, accessible memory where nothing is mapped. EEXIST: something is mapped there.
[[nodiscard]] int map_again(std::byte* address, std::uint64_t bytes);
/// For a forked child: maps a range that was not inherited as empty, accessible memory, which this
/// process owns. The range keeps its address if possible. The address changes if other code of the
/// child has mapped memory there, such as a library that starts a thread in the child. Errors:
/// no_capacity.
Status reserve_again(AddressRange& range, std::uint64_t alignment);
/// For a forked child: closes the addresses of a range that was not inherited, for the rest of the
/// process. A touch then raises SIGSEGV, and no later mapping of other code gets these addresses.
/// Memory that other code of the child has mapped there already stays.
void close_again(std::byte* address, std::uint64_t bytes);

enum class Advise { huge, no_huge, dont_fork, do_fork, collapse, dont_dump, do_dump };

[[nodiscard]] int advise(std::byte* address, std::uint64_t bytes, Advise advice);
/// Populates the range with pages; new pages are zeroed. Falls back to touching them (Linux before
/// 5.14).
[[nodiscard]] int populate(std::byte* address, std::uint64_t bytes);
/// Makes pages that are shared with a forked child private to this process, by a copy if the child
/// still has them. Concurrent writes are not lost. If a page is absent, the call waits in a fault.
[[nodiscard]] int unshare(std::byte* address, std::uint64_t bytes);
/// Releases the pages. The range then reads as zeros, or faults where it is registered. Also works
/// for memory that the program locked.
[[nodiscard]] int drop(std::byte* address, std::uint64_t bytes);
struct Range {
  std::byte* address = nullptr;
  std::uint64_t bytes = 0;
};
/// Drops many ranges: in one call if the kernel supports it (Linux 6.14, which flushes the
/// processors' tables once for all), else one by one. Returns the first error; the other ranges are
/// dropped.
[[nodiscard]] int drop(std::span<const Range> ranges);
/// Moves pages by mremap(FIXED | DONTUNMAP): `from` keeps its mapping, which is empty.
[[nodiscard]] int remap(std::byte* to, std::byte* from, std::uint64_t bytes);
/// Replaces any mapping in the range by empty, inaccessible memory.
[[nodiscard]] int close_range(std::byte* address, std::uint64_t bytes);
/// Replaces any mapping in the range, including page tables, by empty, accessible memory.
[[nodiscard]] int renew(std::byte* address, std::uint64_t bytes);
/// Makes the mapped memory inaccessible: a touch raises SIGSEGV.
[[nodiscard]] int shut_range(std::byte* address, std::uint64_t bytes);
/// Makes the mapped memory read-only: a store raises SIGSEGV.
[[nodiscard]] int close_for_stores(std::byte* address, std::uint64_t bytes);
/// Makes the mapped memory readable and writable.
[[nodiscard]] int open_range(std::byte* address, std::uint64_t bytes);
/// The same as open_range, for a range with bytes that are needed. Memory or mappings can be short
/// for a moment, so it retries for a second. If this fails, it ends the process, because continuing
/// would lose bytes.
void must_open_range(std::byte* address, std::uint64_t bytes);
/// Replaces any mapping in the range by one without bytes. A touch raises SIGBUS, or SIGSEGV if the
/// kernel has no file for it (memfd_create).
[[nodiscard]] int map_no_bytes(std::byte* address, std::uint64_t bytes);

/// Returns the bytes of the range that are mapped as huge pages, or no value if the kernel does not
/// report them cheaply (before Linux 6.7).
std::optional<std::uint64_t> huge_bytes(const std::byte* address, std::uint64_t bytes);
/// Returns the number of bytes at the beginning of the range in pages that have content, present or
/// swapped out; or, with `there` false, have none. Reads the page tables and touches nothing.
/// Without /proc a page that is swapped out counts as having no content.
std::uint64_t leading_bytes(const std::byte* address, std::uint64_t bytes, bool there);
/// Returns, for up to 32 pages, one bit for each page that is present and watched by userfaultfd
/// (Userfault::copy). Returns 0 if /proc cannot tell.
std::uint32_t watched_pages(const std::byte* address, unsigned pages);
/// Returns true if transparent huge pages are available by madvise; else `reason` says why not.
bool huge_pages_available(char* reason, std::size_t room);
/// Probes mremap: moves 2 MiB there and back on scratch memory and compares every byte.
bool probe_remap(char* reason, std::size_t room);

/// Returns the number of mappings of this process, and their max number (vm.max_map_count). 0:
/// unknown.
std::uint64_t map_count();
std::uint64_t map_limit();
/// Returns RLIMIT_AS in bytes, or the largest number if there is no limit.
std::uint64_t address_space_limit();
/// Returns the part of RLIMIT_AS that this process has not used yet, or the largest number if there
/// is no limit.
std::uint64_t address_space_left();

/// Writes zeros. Large ranges bypass the processor's caches, because the next user overwrites them.
void clear(std::byte* address, std::uint64_t bytes);

/// Writes a test pattern to scratch memory, for probes.
void write_pattern(std::byte* address, std::uint64_t bytes);
bool check_pattern(const std::byte* address, std::uint64_t bytes);

}  // namespace tiermem::host
