// The plain records of the public interface. They have no behaviour, own nothing, and may be
// copied. Access and ViewRecord are the C ABI's tm_access and tm_view: 40 bytes each in every
// version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(_WIN32)
#error "tiermem needs Linux"
#endif
#define TIERMEM_API __attribute__((visibility("default")))
/// For members of an exported class that programs cannot call: the library does not export them.
#define TIERMEM_LOCAL __attribute__((visibility("hidden")))

namespace tiermem {

/// A handle to a buffer: an index and a generation. 0 is never a buffer. The handle of a freed
/// buffer is `stale_handle`, never a wild pointer.
using Handle = std::uint64_t;
/// A handle to an operation. 0 is never an operation.
using OpHandle = std::uint64_t;

enum class Kind : std::uint16_t {
  any,
  host,
  dram,
  numa,
  pmem,
  gpu,
  block,
  remote,
  compressed,
  file,  ///< Adopted files.
};

/// A tier by kind and number. With {any, 0} tiermem chooses. {host, 0} is any memory that the CPU
/// can address.
struct Place {
  Kind kind = Kind::any;
  std::uint16_t index = 0;
  friend bool operator==(Place, Place) = default;
};

/// The purpose of a view. `write` means read and write. With `discard` the caller promises to
/// overwrite every byte before the release; until then the view shows zeros or older bytes of the
/// same domain.
enum Mode : std::uint32_t { kRead = 1, kWrite = 2, kDiscard = 4 };

/// One range of one buffer. `length` 0 means up to the end of the buffer.
struct Access {
  Handle buffer = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t mode = kRead;
  Place where{};
  std::uint64_t reserved = 0;
};
static_assert(sizeof(Access) == 40);

/// Rows of one buffer: row i has `row_bytes` bytes from `offset + index[i] * stride` on. In plain
/// memory, and in another buffer, rows lie one behind the other in the order of the list. The list
/// may repeat rows, and rows may overlap.
struct Rows {
  Handle buffer = 0;
  std::uint64_t offset = 0;     ///< Offset of row 0.
  std::uint64_t row_bytes = 0;  ///< 1 to 64 KiB.
  /// Bytes from one row to the next; 0: row_bytes; 1: `index` holds offsets.
  std::uint64_t stride = 0;
  const std::uint64_t* index = nullptr;  ///< Read during the call; for an operation, until its end.
  std::uint64_t count = 0;               ///< Length of the list; 0: the call does nothing.
};

/// A pinned range. `data` is valid until the release, which any thread may call. `place` is the
/// address space in which it is valid: {host, 0} or {gpu, n}. `token` is private to tiermem.
struct ViewRecord {
  void* data = nullptr;
  std::uint64_t length = 0;
  std::uint64_t token[2] = {0, 0};
  Place place{};
  std::uint32_t flags = 0;
};
static_assert(sizeof(ViewRecord) == 40);

/// The order that an acquire or a release follows: the calling thread's, or that of a CUDA stream.
/// The C ABI's tm_stream.
struct StreamOrder {
  enum Kind : std::uint32_t { kHost, kCuda };
  std::uint32_t kind = kHost;
  std::uint32_t reserved = 0;
  void* handle = nullptr;
  bool is_host() const { return (kind | reserved) == 0 && handle == nullptr; }
};
static_assert(sizeof(StreamOrder) == 16);

/// Returns the order of a stream, given as a CUstream or cudaStream_t. Null is the legacy default
/// stream, not "none".
inline StreamOrder cuda_stream(void* stream) {
  return {StreamOrder::kCuda, 0, stream};
}

/// Hints, named after those of madvise and CUDA.
enum class Advice : std::uint32_t {
  normal = 0,
  read_mostly,
  will_need,  ///< The same as prefetch, without an operation.
  /// The caller gives up the bytes: the range reads as zeros afterwards, or as the file's bytes if
  /// the buffer is a private copy of a file.
  dont_need,
  cold,  ///< Evict these bytes first.
  sequential,
  random,
  streamed,  ///< Used once; evict first afterwards.
  touched,   ///< Used without a view: affects recency only.
  frozen,  ///< Not written again: written to a block tier now, so a later eviction writes nothing.
  /// Access::where of the range names the host memory where the bytes live: see
  /// BufferOptions::preferred. They go there in the background. Another place takes the preference
  /// back, and moves nothing.
  preferred,
  keep,      ///< value 1: evict only when nothing else is left; value 0: evict as usual.
  next_use,  ///< value: the tick ordinal of the next use.
};

/// The max wait in nanoseconds. Negative: wait forever. 0: do not wait.
struct Timeout {
  std::int64_t ns = -1;
  static constexpr Timeout forever() { return {-1}; }
  static constexpr Timeout none() { return {0}; }
  /// Saturates: a product outside the range of `ns` (292 years) becomes the max or min `ns`.
  static constexpr Timeout milliseconds(std::int64_t ms) { return of(ms, 1'000'000); }
  static constexpr Timeout seconds(std::int64_t s) { return of(s, 1'000'000'000); }

 private:
  static constexpr Timeout of(std::int64_t n, std::int64_t unit) {
    std::int64_t product = 0;
    return {!__builtin_mul_overflow(n, unit, &product) ? product : n < 0 ? INT64_MIN : INT64_MAX};
  }
};

enum BufferFlags : std::uint32_t {
  /// The buffer has an address that never changes (Context::address). The program reads and writes
  /// the whole buffer there without views. A touch of absent bytes waits until they are resident.
  kMapped = 1,
  /// The program can compute the bytes again. If no block tier takes them when they must leave
  /// memory, tiermem drops them instead of refusing another request. Reading dropped bytes is
  /// `discarded` until they are overwritten with kDiscard or given up with dont_need.
  kDroppable = 2,
  kKeepOnFree = 4,  ///< Reserved for named buffers.
  kNoChecksum = 8,  ///< Slots of this buffer carry no checksums.
  /// The buffer is a domain of its own: its frames and slots are cleared before another buffer uses
  /// them.
  kIsolated = 16,
  /// For adopt_file(): views, and with kMapped the program, may write. The written bytes belong to
  /// the buffer and go to the block tier; the file is never written.
  kPrivate = 32,
  /// The extents are spread over DRAM and the memories of the option `numa`, in the ratio of their
  /// bandwidths: extent by extent they prefer one of these. It is for large buffers that all
  /// threads read. Without such memories it has no effect. Not together with
  /// BufferOptions::preferred.
  kInterleaved = 64,
};

struct BufferOptions {
  /// Power of two, 4 KiB to 64 MiB; 0: tiermem chooses (2 MiB, less for small buffers).
  std::uint64_t extent_bytes = 0;
  std::uint64_t alignment = 0;  ///< Alignment of view addresses, up to the extent size; 0: 4096.
  std::uint32_t flags = 0;
  /// A hint for the whole buffer. With `random` the block tier keeps one checksum for each 4 KiB
  /// (0.4 % more space), so gather() reads only 4 KiB for a small row.
  Advice advice = Advice::normal;
  /// The host memory where the bytes live: {dram, 0}, {numa, n} of the option `numa`, or {pmem, n}.
  /// Bytes that come to memory get frames there first. If it has no room, they get frames in the
  /// other memories. Uses do not bring them to a faster memory. Any other place has no effect.
  Place preferred{};
  /// Name in errors and `topo`; copied, up to 31 characters are kept.
  const char* label = nullptr;
};

/// Where the bytes of a buffer are, in bytes, similar to mincore(). An extent counts once for every
/// copy.
struct BufferInfo {
  std::uint64_t bytes = 0;
  std::uint64_t extent_bytes = 0;
  std::uint64_t extents = 0;
  std::uint64_t resident = 0;  ///< Bytes that the host can address.
  std::uint64_t dirty = 0;     ///< Part of `resident` that no slot holds yet.
  std::uint64_t in_slots = 0;  ///< Bytes with their newest copy in a block tier.
  std::uint64_t zero = 0;      ///< Bytes never written.
  std::uint64_t pinned = 0;    ///< Bytes pinned by views.
  std::uint64_t lost = 0;      ///< Lost bytes: damaged on a device, or dropped (kDroppable).
  char label[32] = {};
};

/// A byte of a buffer.
struct Position {
  Handle buffer = 0;
  std::uint64_t offset = 0;
};

/// The figures of one tier of a context, in bytes.
struct TierStats {
  Place place{};
  std::uint64_t budget = 0;  ///< 0 for adopted files, which have none.
  std::uint64_t used = 0;    ///< 0 for adopted files.
  std::uint64_t pinned = 0;  ///< Part of `used` that views pin; 0 for tiers without views.
  /// Bytes that came from other tiers, and went to them. Bytes between a GPU and any memory of the
  /// host count for DRAM.
  std::uint64_t bytes_in = 0, bytes_out = 0;
};

/// Counters since the context began. The unit is bytes unless the text says otherwise.
struct Stats {
  std::uint64_t dram_budget = 0, dram_used = 0, dram_pinned = 0;
  std::uint64_t block_budget = 0, block_used = 0;
  std::uint64_t buffers = 0, extents = 0;
  std::uint64_t misses = 0;    ///< Number of acquires that had to wait for the mover.
  std::uint64_t promoted = 0;  ///< Bytes read from slots or files on demand; without prefetches.
  std::uint64_t demoted = 0;   ///< Bytes written to slots.
  std::uint64_t evicted_clean = 0;      ///< Bytes of frames freed without a write.
  std::uint64_t prefetched = 0;         ///< Bytes read before a use; not in `promoted`.
  std::uint64_t prefetched_unused = 0;  ///< Part of `prefetched` that was evicted before a use.
  std::uint64_t io_errors = 0, io_retries = 0, checksum_errors = 0, degraded_devices = 0;
  /// Number of extents moved into windows, by mechanism.
  std::uint64_t moved_by_uffd = 0, moved_by_remap = 0, moved_in_place = 0;
  std::uint64_t poisoned_touches = 0;  ///< Number of touches of an absent extent without a view.
  std::uint64_t steps = 0;
  /// 99th percentile of a step's duration in nanoseconds, to within 2 %; the design limit is
  /// 200,000.
  std::uint64_t step_ns_p99 = 0;
  std::uint64_t dropped = 0;  ///< Bytes of droppable buffers that were dropped to make room.
  std::uint64_t faults = 0;   ///< Number of touches of absent pages of mapped buffers.
  /// Number of mapped extents that were touched again while they left.
  std::uint64_t recalled = 0;
  /// Number of mapped extents that stayed: pages locked for I/O.
  std::uint64_t withdrawals_refused = 0;
  std::uint64_t fault_wait_ns = 0;  ///< Nanoseconds that all threads together waited for `faults`.
  std::uint64_t placed_used = 0;    ///< Bytes in live objects of malloc_at.
  std::uint64_t placed_held = 0;    ///< Bytes in the buffers that hold these objects.
  std::uint64_t moved_by_copy = 0;  ///< Number of extents, or parts of one, copied into windows.
  std::uint64_t gpu_budget = 0, gpu_used = 0, gpu_pinned = 0;  ///< All GPUs together.
  std::uint64_t gpu_bytes_in = 0, gpu_bytes_out = 0;  ///< Bytes copied to GPUs, and from GPUs.
  std::uint64_t gpu_placed = 0;  ///< Bytes in live objects of malloc_at on GPUs.
  std::uint64_t gpu_paused = 0;  ///< Part of `gpu_placed` that gpu_pause moved off its device.
  /// Number of reads that gathers, and copies that do not promote, submitted to devices.
  std::uint64_t gather_reads = 0;
  std::uint64_t gather_bytes = 0;  ///< Bytes of these reads; not in `promoted`.
  // The paths of `gpu_bytes_in` and `gpu_bytes_out`. The remainder is between a device and
  // page-locked frames of DRAM. A copy between two devices is in both counters, so it counts twice
  // here.
  /// To and from DRAM that is not page-locked, which is slower.
  std::uint64_t gpu_bytes_pageable = 0;
  std::uint64_t gpu_bytes_staged = 0;  ///< Through the staging, mostly between device and disk.
  std::uint64_t gpu_bytes_peer = 0;    ///< Directly between two devices.
  // Bytes that entered and left host memory: sums of `promoted`, `prefetched`, `gather_bytes`,
  // `demoted`, and of the bytes that went to and from GPUs through the host.
  std::uint64_t host_bytes_in = 0, host_bytes_out = 0;
  /// Bytes that acquires, touches (one page each) and gathers (their rows) asked for and that were
  /// absent from the requested memory. Counts the ranges themselves, not their extents. Not
  /// included: bytes never written, bytes that are overwritten as a whole, and bytes that a
  /// prefetch brings.
  std::uint64_t demanded = 0;
  // Bytes copied between devices and the block tier without a copy in host memory (gpu_direct).
  // They are part of `gpu_bytes_in` and `gpu_bytes_out`, and of `promoted`, `prefetched` and
  // `demoted`.
  std::uint64_t gpu_direct_in = 0, gpu_direct_out = 0;
  /// Number of such copies that failed and were repeated through the staging.
  std::uint64_t gpu_direct_errors = 0;
  /// Memory of the records of used extents. The part above 1 MiB is charged to the DRAM budget, and
  /// is in `dram_used`.
  std::uint64_t metadata_bytes = 0;
  static constexpr std::uint32_t kMostTiers = 16;
  /// The tiers of the context: the first `tier_count` entries. `dram_*`, `block_*`, `gpu_budget`,
  /// `gpu_used` and `gpu_pinned` have the same figures, and go with the next release.
  std::array<TierStats, kMostTiers> tiers{};
  std::uint32_t tier_count = 0;
  /// Returns the figures of a tier, or null if the context has no such tier.
  const TierStats* tier(Place place) const {
    for (std::uint32_t i = 0; i < tier_count; ++i) {
      if (tiers[i].place == place) {
        return &tiers[i];
      }
    }
    return nullptr;
  }
};

/// The buffers with one label, and where their bytes are. The sums of BufferInfo, except `tiers`.
struct LabelStats {
  char label[32] = {};         ///< "" for buffers without one.
  std::uint64_t buffers = 0;   ///< Number of buffers.
  std::uint64_t bytes = 0;     ///< Their length in bytes.
  std::uint64_t resident = 0;  ///< Bytes that the CPU can address.
  std::uint64_t dirty = 0;     ///< Part of `resident` that no slot holds yet.
  std::uint64_t in_slots = 0;  ///< Bytes with their newest copy in a block tier.
  std::uint64_t zero = 0;      ///< Bytes never written.
  std::uint64_t pinned = 0;    ///< Bytes pinned by views.
  std::uint64_t lost = 0;      ///< Lost bytes: damaged on a device, or dropped (kDroppable).
  /// Bytes in each tier, in the order of Stats::tiers. A byte counts once for each copy with its
  /// newest value.
  std::array<std::uint64_t, Stats::kMostTiers> tiers{};
};

}  // namespace tiermem
