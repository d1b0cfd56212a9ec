// Buffers and their handles. A handle is an index and a generation. Records are never returned to
// the system, so a stale handle is an error and never a wild pointer. A generation consists of the
// tag of the context and a count of the record's lives, so a handle of another context is stale
// too. The count never wraps: a record is not reused after its last life.
//
// Threads: find() and the fields marked atomic are for any thread without a lock. create() and
// retire() take a mutex. `mark_freed` is the only step that makes a handle stale.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "base/arena.hpp"
#include "policy/compression.hpp"
#include "policy/interleave.hpp"
#include "residency/context_tag.hpp"
#include "residency/extents.hpp"
#include "residency/label.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

/// A flag in addition to the public flags of a buffer: it is memory of the context's own heaps, and
/// no program has its handle. Its views neither keep the context from closing nor keep a request
/// waiting.
inline constexpr std::uint32_t kOfHeaps = 1u << 31;
/// The same as kOfHeaps, for a buffer that only devices use. Even with several extents it has no
/// window on the host, where its frames then never move. A view there covers one extent.
inline constexpr std::uint32_t kOfDevice = 1u << 30;
/// Its extents live in the memory of the host that the buffer prefers, and in no other memory of
/// the host, whatever a hint says.
inline constexpr std::uint32_t kBound = 1u << 27;
/// Pieces of its extents are read separately: it was allocated with the advice random.
inline constexpr std::uint32_t kInPieces = 1u << 29;

/// The domain of memory that tiermem uses itself: read buffers of gathers, landings, staging, the
/// row cache. Bytes of every domain pass through it, so it is cleared before a caller gets it.
inline constexpr std::uint32_t kOwnDomain = ~std::uint32_t{0};
/// The buffer is a domain of its own. Its frames carry its handle, which no other buffer gets.
inline constexpr std::uint32_t kIsolatedDomain = 1;
/// For Context::Impl::alloc only, not a flag of the record: the buffer's domain is kOwnDomain.
inline constexpr std::uint32_t kInOwnDomain = 1u << 28;

/// One buffer. The fields of its shape are atomics, because a caller with a stale handle may read
/// them while the record begins a new life. The caller detects this by the generation, which it
/// checks before and after.
struct BufferRecord {
  /// Tag and life. Odd: live. Even: free, or the bytes wait for their last view.
  std::atomic<std::uint64_t> generation{0};
  std::atomic<std::uint32_t> first{0};  ///< Its first extent; the others follow it.
  std::atomic<std::uint32_t> extents{0};
  std::atomic<std::uint8_t> extent_shift{0};
  std::atomic<bool> read_only{false};  ///< The buffer is adopted from a file.
  /// The number of the host memory that its extents prefer when they begin: Extent::preferred.
  std::atomic<std::uint8_t> preferred{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> lead{0};  ///< Bytes before byte 0 in its first extent (adopted files).
  /// The address of its first extent, by space. The host's is null for a buffer of one extent. A
  /// device's is null until set_device_window().
  std::array<std::atomic<std::byte*>, kMaxSpaces> windows{};

  // Constant while live. Written under the table's mutex, read by the mover.
  /// Atomic, because callers check whether the buffer is mapped.
  std::atomic<std::uint32_t> flags{0};
  std::uint32_t domain = 0;
  Pool pool = Pool::locked;
  std::uint64_t file = 0;  ///< Base of the file in the file tier, + 1; 0: not adopted.
  /// The next abandoned record: its index + 1; 0: none.
  std::uint32_t next_abandoned = 0;
  /// [mover] The number of spans of active requests that are in this buffer.
  std::uint32_t active_spans = 0;
  /// [mover] What is known of its bytes in a tier that compresses.
  Compression::Shrinks shrinks;
  Label label;

  /// Returns whether the buffer is adopted from a file: its bytes begin there.
  bool adopted() const noexcept { return file != 0; }
  /// Returns the file tier's slot of the first extent of an adopted buffer.
  SlotId first_slot() const noexcept { return {file - 1}; }
};

struct BufferShape {
  std::uint64_t bytes = 0;
  std::uint64_t lead = 0;
  std::uint8_t extent_shift = 21;
  std::uint32_t extents = 0;
  std::byte* window = nullptr;
  std::uint32_t flags = 0;
  std::uint32_t domain = 0;
  Pool pool = Pool::locked;
  bool read_only = false;
  std::uint8_t preferred = 0;
  std::uint64_t file = 0;
  const char* label = nullptr;
};

class Buffers {
 public:
  /// `tag`: the tag of the context.
  Buffers(Extents& extents, std::uint32_t capacity, std::uint64_t tag);

  /// Sets the memories for the extents of buffers with kInterleaved, by interleave_order(). Call it
  /// before the first create().
  void set_interleave(std::span<const std::uint8_t> order) noexcept {
    interleave_length_ = std::min(order.size(), interleave_.size());
    std::copy_n(order.begin(), interleave_length_, interleave_.begin());
  }
  /// Returns the number of the memory that an extent of a buffer prefers when it begins. `number`:
  /// that of the extent within its buffer.
  std::uint8_t preferred_of(const BufferRecord& record, std::uint32_t number) const noexcept {
    const bool spread = (record.flags.load(std::memory_order_relaxed) & kInterleaved) != 0;
    return spread && interleave_length_ != 0 ? interleave_[number % interleave_length_]
                                             : record.preferred.load(std::memory_order_relaxed);
  }

  /// Creates a record with extents that have not begun: Extents::begin(). Errors: no_capacity: no
  /// handles or extents are left, or the kernel refuses the memory for their records.
  Result<Handle> create(const BufferShape& shape);
  /// Begins a new life of a spare record, with the same shape. The caller has taken it from the
  /// spares.
  Handle reuse(std::uint32_t index, std::uint64_t bytes, const char* label) noexcept;
  /// Returns the live record of a handle, or nullptr. Check `generation_of(handle)` again after
  /// pinning.
  BufferRecord* find(Handle handle) noexcept {
    const std::uint32_t index = index_of(handle);
    if (index >= used_.load(std::memory_order_acquire)) {
      return nullptr;
    }
    BufferRecord& record = records_[index];
    return record.generation.load(std::memory_order_acquire) == generation_of(handle) ? &record
                                                                                      : nullptr;
  }
  BufferRecord& at(std::uint32_t index) noexcept { return records_[index]; }
  static std::uint32_t index_of(Handle handle) noexcept {
    return static_cast<std::uint32_t>(handle & kIndexMask) - 1;
  }
  static std::uint64_t generation_of(Handle handle) noexcept { return handle >> kIndexBits; }
  Handle handle_of(std::uint32_t index) const noexcept {
    return handle_of(index, records_[index].generation.load(std::memory_order_acquire));
  }
  /// Returns stale_handle for a handle without a record in find(). The message names its owner, as
  /// far as its bits tell.
  Status stale(const char* call, Handle handle) const;
  /// Returns whether the life of this live handle is one of the last of its record: it must not
  /// become a spare.
  static bool is_worn(Handle handle) noexcept { return life_of(generation_of(handle)) > kWornLife; }

  /// [child of fork, its only thread] Makes the handle stale, because its buffer stays with the
  /// parent. The caller frees it. Throws bad_alloc.
  void leave_to_parent(Handle handle);
  /// Returns whether leave_to_parent() made the handle stale, in this process or in an ancestor.
  bool was_left(Handle handle) const noexcept { return left_.contains(handle); }
  /// Makes the handle stale; returns false if it was stale already. The caller then tells the
  /// mover, which finally calls retire().
  bool mark_freed(Handle handle) noexcept;
  /// Sets the buffer's window in a device's space for the rest of its life. Returns `window`, or
  /// the window that it already has. Returns null if the handle is stale.
  std::byte* set_device_window(Handle handle, unsigned space, std::byte* window);
  /// Takes the window from a buffer that was freed. Returns null if it has none.
  std::byte* take_window(std::uint32_t index, unsigned space);
  /// [any] After mark_freed(), if a request cannot be allocated: puts the record on a list, from
  /// which the mover takes and frees it. Allocates nothing.
  void abandon(std::uint32_t index) noexcept;
  /// [mover] Calls take(index) for each record that was abandoned since the last call.
  template <typename Take>
  void take_abandoned(Take&& take) {
    if (abandoned_.load(std::memory_order_relaxed) == 0) [[likely]] {
      return;
    }
    // Acquire: partner of the release in abandon().
    for (std::uint32_t at = abandoned_.exchange(0, std::memory_order_acquire); at != 0;) {
      const std::uint32_t index = at - 1;
      // Read before `take`: the record may begin its next life.
      at = records_[index].next_abandoned;
      take(index);
    }
  }
  /// Makes record and extents available again, after the last view and transfer have ended.
  void retire(std::uint32_t index);

  /// For a context that has ended: see ReservedArray.
  void release_memory() noexcept { records_.release_memory(); }
  std::uint32_t used() const noexcept { return used_.load(std::memory_order_acquire); }
  std::uint64_t live() const noexcept { return live_.load(std::memory_order_relaxed); }
  std::uint64_t live_extents() const noexcept {
    return live_extents_.load(std::memory_order_relaxed);
  }
  /// Returns a number above those of all extents that were ever allocated.
  ExtentRef used_extents() {
    const std::lock_guard lock(mutex_);
    return next_extent_;
  }
  /// Derives the counts again from the records; returns false if they differ. Only while no thread
  /// allocates.
  bool test_consistent();
  /// Lets records that were never used begin with only `lives` lives left.
  void test_leave_lives(std::uint64_t lives) noexcept { first_life_ = kWornLife - 2 * lives; }

 private:
  // A handle consists of index + 1, life, and tag.
  static constexpr unsigned kIndexBits = 25;
  static constexpr unsigned kLifeBits = 64 - kIndexBits - ContextTag::kBits;
  static constexpr Handle kIndexMask = (Handle{1} << kIndexBits) - 1;
  static constexpr std::uint64_t kLifeMask = (std::uint64_t{1} << kLifeBits) - 1;
  /// A record at this life or above is not allocated again. The lives above it are for lives that a
  /// record may begin without being retired: one made ahead, and one as a spare.
  static constexpr std::uint64_t kWornLife = kLifeMask - 15;
  static_assert(kWornLife % 2 == 0);
  static std::uint64_t life_of(std::uint64_t generation) noexcept { return generation & kLifeMask; }
  static Handle handle_of(std::uint32_t index, std::uint64_t generation) noexcept {
    return generation << kIndexBits | (index + 1);
  }
  Handle begin_next_life(std::uint32_t index) noexcept;

  // Constant after set_interleave().
  std::array<std::uint8_t, kLongestInterleave> interleave_{};
  std::size_t interleave_length_ = 0;

  static constexpr std::uint32_t kWordsInLine = 64 / sizeof(ExtentWord);
  static constexpr std::uint32_t kBlockWords = 512;
  // The source of short runs of one length.
  struct Block {
    ExtentRef first = 0;
    std::uint32_t dealt = 0;
  };
  ExtentRef take_run(std::uint32_t extents);
  bool extend(std::uint64_t length);
  Status no_extents(std::uint32_t wanted) const;

  Extents& extents_;
  const std::uint64_t tag_;
  std::uint64_t first_life_ = 0;  // Constant while records are allocated.
  ReservedArray<BufferRecord> records_;
  std::atomic<std::uint32_t> used_{0};  // Number of records ever allocated; grows under the mutex.
  std::atomic<std::uint64_t> live_{0}, live_extents_{0};
  std::atomic<std::uint32_t> abandoned_{0};  // Index + 1 of the newest; 0: none.
  Set<Handle> left_;                         // Changes only while the process has one thread.

  std::mutex mutex_;
  Vector<std::uint32_t> free_records_;
  std::uint32_t worn_ = 0;  // Retired records that are not reused.
  // Free runs of extents by the logarithm of their length: a run is reused only for runs of its
  // class.
  Vector<ExtentRef> free_runs_[32];
  Block blocks_[3] = {{0, kBlockWords}, {0, kBlockWords / 2}, {0, kBlockWords / 4}};
  ExtentRef next_extent_ = 0;
};

}  // namespace tiermem
