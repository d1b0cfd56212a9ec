// The plain records of the public interface. No behaviour, no ownership; safe to copy.
// Access and ViewRecord are the C ABI's tm_access and tm_view: 40 bytes each, for ever.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(_WIN32)
#error "tiermem needs Linux"
#endif
#define TIERMEM_API __attribute__((visibility("default")))
/// For members of such a class that programs cannot call: the library does not export them.
#define TIERMEM_LOCAL __attribute__((visibility("hidden")))

namespace tiermem {

/// A buffer: index and generation. 0 is never a buffer; a freed one is `stale_handle`, never a wild
/// pointer.
using Handle = std::uint64_t;
/// An operation under way. 0 is never one.
using OpHandle = std::uint64_t;

enum class Kind : std::uint16_t { any, host, dram, numa, pmem, gpu, block, remote };

/// A tier by kind and number. {any, 0}: tiermem chooses. {host, 0}: any memory the CPU addresses.
struct Place {
  Kind kind = Kind::any;
  std::uint16_t index = 0;
  friend bool operator==(Place, Place) = default;
};

/// What a view may do. `write` means read and write. `discard` promises that all bytes are
/// overwritten before the release; until then the view shows zeros or older bytes of the same
/// domain.
enum Mode : std::uint32_t { kRead = 1, kWrite = 2, kDiscard = 4 };

/// One range of one buffer. `length` 0 means to the end.
struct Access {
  Handle buffer = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t mode = kRead;
  Place where{};
  std::uint64_t reserved = 0;
};
static_assert(sizeof(Access) == 40);

/// Rows of one buffer: the i-th has `row_bytes` bytes from `offset + index[i] * stride` on. In
/// plain memory, and in another buffer, they lie one behind the other in the order of the list.
/// Rows may come twice, and may overlap.
struct Rows {
  Handle buffer = 0;
  std::uint64_t offset = 0;     ///< Of row 0.
  std::uint64_t row_bytes = 0;  ///< 1 to 64 KiB.
  std::uint64_t stride = 0;     ///< From a row to the next; 0: row_bytes. 1: the list has offsets.
  const std::uint64_t* index = nullptr;  ///< Read during the call; for an operation, until its end.
  std::uint64_t count = 0;               ///< Of the list; 0: nothing is done.
};

/// A pinned range. `data` is valid until the release, by whichever thread; `token` is tiermem's.
struct ViewRecord {
  void* data = nullptr;
  std::uint64_t length = 0;
  std::uint64_t token[2] = {0, 0};
  Place place{};
  std::uint32_t flags = 0;
};
static_assert(sizeof(ViewRecord) == 40);

/// Whose order of work an acquire or a release follows: the calling thread's, or that of a CUDA
/// stream. The C ABI's tm_stream.
struct StreamOrder {
  enum Kind : std::uint32_t { kHost, kCuda };
  std::uint32_t kind = kHost;
  std::uint32_t reserved = 0;
  void* handle = nullptr;
  bool is_host() const { return (kind | reserved) == 0 && handle == nullptr; }
};
static_assert(sizeof(StreamOrder) == 16);

/// The order of a stream: a CUstream or cudaStream_t. Null is the legacy default stream, not
/// "none".
inline StreamOrder cuda_stream(void* stream) {
  return {StreamOrder::kCuda, 0, stream};
}

/// Hints, in the words of madvise and CUDA.
enum class Advice : std::uint32_t {
  normal = 0,
  read_mostly,
  will_need,  ///< As prefetch, without an operation.
  dont_need,  ///< The bytes are not needed any more: the range reads as zeros afterwards.
  cold,       ///< First victims.
  sequential,
  random,
  streamed,  ///< Used once, then first victim.
  touched,   ///< Used without a view: recency only.
  frozen,    ///< Will not be written again: written behind now, so that eviction is free later.
  preferred,
  keep,      ///< value 1: not a victim while anything else is; value 0: as any other.
  next_use,  ///< value: the tick ordinal of the next use.
};

/// Nanoseconds to wait. Negative: for ever. 0: only what is there now.
struct Timeout {
  std::int64_t ns = -1;
  static constexpr Timeout forever() { return {-1}; }
  static constexpr Timeout none() { return {0}; }
  /// Above the largest `ns`, 292 years, the largest; below the smallest, the smallest.
  static constexpr Timeout milliseconds(std::int64_t ms) { return of(ms, 1'000'000); }
  static constexpr Timeout seconds(std::int64_t s) { return of(s, 1'000'000'000); }

 private:
  static constexpr Timeout of(std::int64_t n, std::int64_t unit) {
    std::int64_t product = 0;
    return {!__builtin_mul_overflow(n, unit, &product) ? product : n < 0 ? INT64_MIN : INT64_MAX};
  }
};

enum BufferFlags : std::uint32_t {
  /// Has an address that never changes (Context::address), where the program reads and writes
  /// without views, all of it, whatever is resident: a touch of what is not waits until it is.
  kMapped = 1,
  /// The bytes can be made again: where they must leave memory and no block tier takes them, they
  /// are dropped
  /// instead of anybody being refused. Reading them is `discarded` then, until they are overwritten
  /// with
  /// kDiscard or given up with dont_need.
  kDroppable = 2,
  kKeepOnFree = 4,  ///< Reserved for named buffers.
  kNoChecksum = 8,  ///< Slots of this buffer carry no checksums.
  kIsolated =
      16,  ///< A domain of its own: its frames and slots are cleared before others see them.
  /// For adopt_file(): views may write. The bytes that were written are the buffer's own, and go to
  /// the block tier; the file is never written.
  kPrivate = 32,
};

struct BufferOptions {
  std::uint64_t extent_bytes =
      0;  ///< Power of two, 4 KiB to 64 MiB; 0: chosen (2 MiB, less for small buffers).
  std::uint64_t alignment = 0;  ///< Of the view's address; 0: 4096. At most the extent's size.
  std::uint32_t flags = 0;
  /// A hint for all of it. random: each 4 KiB has a checksum of its own in the block tier (0.4 % of
  /// the bytes there), so that gather() reads no more of it for a row.
  Advice advice = Advice::normal;
  Place preferred{};
  const char* label = nullptr;  ///< Named in errors and `topo`; copied, at most 31 characters kept.
};

/// Where a buffer's bytes are, in bytes; as mincore. An extent counts once for every copy.
struct BufferInfo {
  std::uint64_t bytes = 0;
  std::uint64_t extent_bytes = 0;
  std::uint64_t extents = 0;
  std::uint64_t resident = 0;  ///< Addressable on the host.
  std::uint64_t dirty = 0;     ///< Of these, not yet in any slot.
  std::uint64_t in_slots = 0;  ///< Newest bytes in a block tier.
  std::uint64_t zero = 0;      ///< Never written.
  std::uint64_t pinned = 0;    ///< Held by views.
  std::uint64_t lost = 0;      ///< Gone: damaged on a device, or dropped (kDroppable).
  char label[32] = {};
};

/// Counters since the context began. Bytes unless the name says otherwise.
struct Stats {
  std::uint64_t dram_budget = 0, dram_used = 0, dram_pinned = 0;
  std::uint64_t block_budget = 0, block_used = 0;
  std::uint64_t buffers = 0, extents = 0;
  std::uint64_t misses = 0;    ///< Acquires that had to wait for the mover.
  std::uint64_t promoted = 0;  ///< Read from slots or files for acquires; prefetches are not in it.
  std::uint64_t demoted = 0;   ///< Written to slots.
  std::uint64_t evicted_clean = 0;      ///< Frames given up without a write.
  std::uint64_t prefetched = 0;         ///< Read ahead of use; not in `promoted`.
  std::uint64_t prefetched_unused = 0;  ///< Of these, given up without a use.
  std::uint64_t io_errors = 0, io_retries = 0, checksum_errors = 0, degraded_devices = 0;
  std::uint64_t moved_by_uffd = 0, moved_by_remap = 0,
                moved_in_place = 0;    ///< Extents, by mechanism.
  std::uint64_t poisoned_touches = 0;  ///< Touches of an absent extent without a view.
  std::uint64_t steps = 0;
  std::uint64_t step_ns_p99 =
      0;                       ///< 99 of 100 steps took less, to 2 %. Not above 200,000 by design.
  std::uint64_t dropped = 0;   ///< Bytes of droppable buffers that gave way to others.
  std::uint64_t faults = 0;    ///< Touches of absent pages of mapped buffers.
  std::uint64_t recalled = 0;  ///< Mapped extents touched again while they left.
  std::uint64_t withdrawals_refused = 0;  ///< Mapped extents that stayed: pages locked for I/O.
  std::uint64_t fault_wait_ns = 0;  ///< What threads waited for `faults`, all threads together.
  std::uint64_t placed_used = 0;    ///< In live blocks of malloc_at.
  std::uint64_t placed_held = 0;    ///< In buffers that these are cut from.
  std::uint64_t moved_by_copy = 0;  ///< Extents, or parts of one, copied into windows.
  std::uint64_t gpu_budget = 0, gpu_used = 0, gpu_pinned = 0;  ///< Of all GPUs together.
  std::uint64_t gpu_bytes_in = 0, gpu_bytes_out = 0;           ///< Copied to GPUs and from them.
  std::uint64_t gpu_placed = 0;    ///< In live blocks of malloc_at on GPUs.
  std::uint64_t gpu_paused = 0;    ///< Of these, not on their device: gpu_pause.
  std::uint64_t gather_reads = 0;  ///< Reads that gathers gave to devices.
  std::uint64_t gather_bytes = 0;  ///< What these read; not in `promoted`.
  // By which way `gpu_bytes_in` and `gpu_bytes_out` came and went; the rest is between a device and
  // page-locked frames of DRAM. What goes straight between two devices is in both, and twice here.
  std::uint64_t gpu_bytes_pageable = 0;  ///< To and from DRAM that is not page-locked: slower.
  std::uint64_t gpu_bytes_staged = 0;    ///< Through the staging, between device and disk mostly.
  std::uint64_t gpu_bytes_peer = 0;      ///< Straight between two devices.
  // What crossed the border of the host's memory: sums of `promoted`, `prefetched`, `gather_bytes`,
  // `demoted`, and of what went to and from GPUs through it.
  std::uint64_t host_bytes_in = 0, host_bytes_out = 0;
  /// Asked for by acquires, touches (a page each) and gathers (their rows), and not in the memory
  /// it was asked for in: bytes of the ranges themselves, not of their extents. Not in it: what was
  /// never written, what is overwritten whole, and what a prefetch brings.
  std::uint64_t demanded = 0;
  // Between devices and the block tier past the host's memory (gpu_direct); in `gpu_bytes_in` and
  // `gpu_bytes_out`, and in `promoted`, `prefetched` and `demoted`.
  std::uint64_t gpu_direct_in = 0, gpu_direct_out = 0;
  std::uint64_t gpu_direct_errors = 0;  ///< Such copies that failed, and were made by the staging.
  /// Memory of the records of extents, which grows with the extents that were used. Above the first
  /// MiB it is charged to the DRAM budget, and is in `dram_used`.
  std::uint64_t metadata_bytes = 0;
};

}  // namespace tiermem
