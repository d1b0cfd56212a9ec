// The state of every extent: the words that callers pin, and the mover's directory of copies. They
// are arrays indexed by ExtentRef over reserved address space, which never move and never change
// type. A caller with a stale handle therefore pins a word that exists, finds the generation
// changed, and undoes the pin.
//
// An extent costs memory from its first use on. All-zero is the state of an extent that was not
// used in the life of its buffer: the mover has not begun it, and its phase is `none` in every
// space. The mover begins an extent before it does anything else with it. It sets the entry's
// buffer, and the phase `zero` unless the buffer is an adopted file. Reports show an extent that
// has not begun as `zero`, or as in its file.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include "base/reserved_array.hpp"
#include "base/results.hpp"
#include "policy/page_levels.hpp"
#include "policy/part_size.hpp"
#include "policy/write_tracking.hpp"
#include "residency/extent_state.hpp"
#include "residency/slot_copy.hpp"
#include "tier/frame.hpp"

namespace tiermem {

using ExtentRef = std::uint32_t;
inline constexpr ExtentRef kNoExtent = ~ExtentRef{0};
/// The host's address space and up to two device spaces.
inline constexpr unsigned kMaxSpaces = 3;
inline constexpr unsigned kHost = 0;

inline constexpr std::size_t kPage = 4096;

/// The directory entry of one extent; only the mover reads it. The newest bytes are: in every space
/// with the phase shared or exclusive; in the slot copy iff it is current (Directory::slot_copy());
/// nowhere iff the host's phase is `zero` or `lost`.
struct Extent {
 private:
  friend class Directory;
  // The slot copy, embedded. The members after it use its tail padding. Only the directory changes
  // it, by functions that say what has happened to the copy. Its replica is in an array of its own:
  // Extents::replica().
  [[no_unique_address]] SlotCopy copy_;

 public:
  /// Returns the slot copy as it is stored: `old` is never stored. Directory::slot_copy() also
  /// looks at the copies in memory.
  const SlotCopy& copy() const { return copy_; }

  /// For the host's phase `lost`: the device space that had the bytes.
  std::uint8_t lost_with : 4 = kHost;
  /// The number of the host memory that it prefers, which is its rank.
  std::uint8_t preferred : 4 = 0;
  WriteTracking::Memory unwritten = 0;
  bool prefetched : 1 = false;  ///< Promoted by a prefetch and not acquired since.
  /// Mapped: the last try to move it out of its window, or to complete it for another slot, failed.
  bool stuck : 1 = false;
  bool charged : 1 = false;  ///< In parts: a request has room for more of them.
  bool writes : 1 = false;   ///< In parts: the last request for some of them was about to write.
  /// A checksum did not match; it is read again before the bytes count as lost.
  bool bad_once : 1 = false;
  bool begun : 1 = false;  ///< Used in this life of its buffer: Extents::begin().
  /// Where its space has several memories: rounds in which it was seen to be used since it came to
  /// this memory; in the preferred memory, 1 if it has climbed there and was not used since.
  std::uint8_t uses : 2 = 0;
  std::uint32_t buffer = 0;    ///< Index of the buffer's record.
  std::uint32_t transfer = 0;  ///< Number + 1 of its only transfer in progress; 0: none.
  std::uint32_t waiters = 0;   ///< Head + 1 of the list of needs that wait for this extent.
  std::uint32_t holds = 0;     ///< Number of needs of granted requests: not a victim while above 0.
  /// A mapped extent in parts: these pages are in the window, and may differ from those in the
  /// slot, which has the others. The phase is `none`, or `incoming` while others arrive, or
  /// `outgoing`; there is a frame. 0: all pages are present or none, as the phase says.
  PageMask parts = 0;
  /// For a mapped extent in a slot: pages that are zeros, whatever the slot holds for them. None of
  /// them is in memory.
  PageMask zeros = 0;
  PartSize::Memory part_size;
};
static_assert(sizeof(Extent) == 64);  // One cache line: a context has one for each begun extent.
static_assert(kMostMemories <= 16);   // As wide as Extent::preferred.

/// All extents of a context.
class Extents {
 public:
  /// The number of extents with entries that together fill about one page of the directory. Which
  /// groups have begun extents is known without a read of the directory.
  static constexpr std::uint32_t kGroup = 64;
  /// The number of extents with words that together fill a page.
  static constexpr std::uint32_t kBlock = 512;

  /// Throws std::bad_alloc if the kernel refuses the address space.
  explicit Extents(std::uint32_t capacity, unsigned spaces)
      : spaces_(spaces),
        directory_(capacity),
        addresses_(capacity),
        page_levels_(capacity),
        groups_((capacity + kGroup * 64 - 1) / (kGroup * 64)),
        touched_((capacity + kBlock * 64 - 1) / (kBlock * 64)),
        with_levels_((capacity + kBlock * 64 - 1) / (kBlock * 64)) {
    for (unsigned space = 0; space < spaces; ++space) {
      words_[space] = std::make_unique<ReservedArray<ExtentWord>>(capacity);
      frames_[space] = std::make_unique<ReservedArray<FrameId>>(capacity);
      first_word_[space] = &(*words_[space])[0];
    }
  }
  unsigned spaces() const noexcept { return spaces_; }
  /// Extents may have replicas of their slots. Call before the first commit(). Throws
  /// std::bad_alloc if the kernel refuses the address space.
  void keep_replicas() { replicas_ = std::make_unique<ReservedArray<SlotReplica>>(capacity()); }
  /// For a context that has ended: see ReservedArray.
  void release_memory() noexcept {
    for (unsigned space = 0; space < spaces_; ++space) {
      words_[space]->release_memory();
      frames_[space]->release_memory();
    }
    directory_.release_memory();
    addresses_.release_memory();
    page_levels_.release_memory();
    groups_.release_memory();
    touched_.release_memory();
    with_levels_.release_memory();
    if (replicas_ != nullptr) {
      replicas_->release_memory();
    }
  }
  std::uint32_t capacity() const noexcept { return static_cast<std::uint32_t>(directory_.size()); }

  /// Makes the first `n` extents usable. Returns false if the kernel refuses the memory. Only one
  /// thread at a time, before a buffer has the extents.
  bool commit(std::uint32_t n) noexcept {
    const std::size_t blocks = (std::size_t{n} + kBlock * 64 - 1) / (kBlock * 64);
    bool done = directory_.commit(n) && addresses_.commit(n) && page_levels_.commit(n) &&
                groups_.commit((std::size_t{n} + kGroup * 64 - 1) / (kGroup * 64)) &&
                touched_.commit(blocks) && with_levels_.commit(blocks);
    for (unsigned space = 0; space < spaces_; ++space) {
      done = done && words_[space]->commit(n) && frames_[space]->commit(n);
    }
    return done && (replicas_ == nullptr || replicas_->commit(n));
  }

  ExtentWord& word(unsigned space, ExtentRef ref) noexcept { return first_word_[space][ref]; }
  const ExtentWord& word(unsigned space, ExtentRef ref) const noexcept {
    return first_word_[space][ref];
  }
  /// Where the bytes are on the host while its phase is readable. The mover writes it before it
  /// publishes the phase, so a relaxed load after a successful pin sees it.
  std::atomic<std::byte*>& address(ExtentRef ref) noexcept { return addresses_[ref]; }

  // Used by the mover only.
  Extent& at(ExtentRef ref) noexcept { return directory_[ref]; }
  const Extent& at(ExtentRef ref) const noexcept { return directory_[ref]; }
  FrameId& frame(unsigned space, ExtentRef ref) noexcept { return (*frames_[space])[ref]; }
  bool has_replica(ExtentRef ref) const noexcept {
    return replicas_ != nullptr && (*replicas_)[ref].exists;
  }
  /// Call only after keep_replicas().
  SlotReplica& replica(ExtentRef ref) noexcept { return (*replicas_)[ref]; }

  /// The levels of the extent's pages. They cost memory from the first call on.
  PageLevels::Memory& page_levels(ExtentRef ref) noexcept {
    if (!has_page_levels(ref)) {
      with_levels_[ref / (kBlock * 64)] |= std::uint64_t{1} << (ref / kBlock % 64);
      ++blocks_with_levels_;
    }
    return page_levels_[ref];
  }
  /// Returns whether this extent, or one with a number near its own, has levels of pages.
  bool has_page_levels(ExtentRef ref) const noexcept {
    return (with_levels_[ref / (kBlock * 64)] >> (ref / kBlock % 64) & 1) != 0;
  }

  bool begun(ExtentRef ref) const noexcept { return in_begun_group(ref) && at(ref).begun; }
  /// Begins an extent of the buffer record `buffer` before its first use. Returns false if it had
  /// begun.
  bool begin(ExtentRef ref, std::uint32_t buffer, bool adopted) noexcept {
    if (in_begun_group(ref) && at(ref).begun) [[likely]] {
      return false;
    }
    note_group(ref);
    Extent& extent = at(ref);
    extent.begun = true;
    extent.buffer = buffer;
    if (has_page_levels(ref)) {
      page_levels_[ref] = {};  // They were those of another buffer's extent.
    }
    if (!adopted) {  // Adopted bytes begin in the file, all others as zeros.
      word(kHost, ref).set_phase(Phase::zero);
    }
    return true;
  }
  /// Calls `visit(ref)` for each extent of [first, end) that has begun. The cost is proportional to
  /// the number of groups of such extents, plus one comparison for each 4,096 others.
  template <typename Visit>
  void each_begun(ExtentRef first, ExtentRef end, Visit&& visit) {
    for (std::uint64_t at_ref = first; at_ref < end;) {
      const std::uint64_t group = at_ref / kGroup;
      const std::uint64_t rest = groups_[group / 64] >> (group % 64);
      if (rest == 0) {
        at_ref = (group / 64 + 1) * 64 * kGroup;
        continue;
      }
      const std::uint64_t found = group + static_cast<unsigned>(std::countr_zero(rest));
      const std::uint64_t stop = std::min<std::uint64_t>((found + 1) * kGroup, end);
      for (at_ref = std::max(at_ref, found * kGroup); at_ref < stop; ++at_ref) {
        if (at(static_cast<ExtentRef>(at_ref)).begun) {
          visit(static_cast<ExtentRef>(at_ref));
        }
      }
    }
  }
  /// The run [first, end) has no begun extents any more: releases the pages of entries that are
  /// completely inside it. The pages of words stay, because a caller with a stale handle may be
  /// adding a pin.
  void end_run(ExtentRef first, ExtentRef end) noexcept;
  /// Returns the bytes of address space for the records of one extent.
  std::uint64_t bytes_each() const noexcept {
    return sizeof(Extent) + sizeof(std::byte*) + sizeof(PageLevels::Memory) + replica_bytes() +
           spaces_ * (sizeof(ExtentWord) + sizeof(FrameId));
  }
  /// Returns the memory of the records of extents in bytes, including those of the policy, in whole
  /// pages.
  std::uint64_t metadata_bytes() const noexcept;
  /// Returns whether the counts of groups and blocks are those of the bits, for extents before
  /// `end`.
  bool test_consistent(ExtentRef end) const noexcept;

 private:
  std::uint64_t replica_bytes() const noexcept {
    return replicas_ != nullptr ? sizeof(SlotReplica) : 0;
  }
  bool in_begun_group(ExtentRef ref) const noexcept {
    return (groups_[ref / (kGroup * 64)] >> (ref / kGroup % 64) & 1) != 0;
  }
  void note_group(ExtentRef ref) noexcept;
  void drop_levels(ExtentRef ref) noexcept;

  // Pointers into words_, one load away for the hit path.
  std::array<ExtentWord*, kMaxSpaces> first_word_{};
  unsigned spaces_;
  std::array<std::unique_ptr<ReservedArray<ExtentWord>>, kMaxSpaces> words_;
  std::array<std::unique_ptr<ReservedArray<FrameId>>, kMaxSpaces> frames_;
  ReservedArray<Extent> directory_;
  ReservedArray<std::atomic<std::byte*>> addresses_;
  std::unique_ptr<ReservedArray<SlotReplica>> replicas_;  // Null: extents have none.
  ReservedArray<PageLevels::Memory> page_levels_;
  // Used by the mover: one bit for each group in which an extent has begun, one for each block in
  // which one ever has, and one for each block in which one has levels of pages.
  ReservedArray<std::uint64_t> groups_;
  ReservedArray<std::uint64_t> touched_;
  ReservedArray<std::uint64_t> with_levels_;
  std::uint64_t groups_begun_ = 0, blocks_begun_ = 0, blocks_touched_ = 0, blocks_with_levels_ = 0;
};

}  // namespace tiermem
