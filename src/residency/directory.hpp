// The directory of copies: where each extent's bytes are. Every lookup that starts from an
// ExtentRef is here: its entry, its words, its frames, its slot copy, and the record of its buffer.
// So is every change of a slot copy. The mover owns the directory and hands it to the parts that
// work for it. The stepping thread only.
//
// A directory is a handle: its constness says nothing about the extents, and copies of it refer to
// the same extents.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>

#include "residency/checksum.hpp"
#include "residency/residency.hpp"
#include "residency/slot_copy.hpp"
#include "residency/slot_pages.hpp"
#include "tier/memory.hpp"

namespace tiermem {

inline constexpr std::uint8_t kNoSpace = 0xff;

inline std::uint64_t bytes_of_pages(PageMask pages) {
  return static_cast<std::uint64_t>(std::popcount(pages)) * kSmallestExtent;
}

class Directory {
 public:
  explicit Directory(Residency& residency) : residency_(&residency) {}

  unsigned spaces() const { return residency_->extents.spaces(); }

  // ---- Entries, words, frames

  /// Begins an extent of a span with a handle that is not stale. Every other use of the extent
  /// comes after this call.
  void begin(const Span& span, ExtentRef ref) const {
    begin(ref, Buffers::index_of(span.buffer), span.record->adopted());
  }
  /// Begins an extent of the buffer record `buffer`. An extent of an adopted file is in the file.
  void begin(ExtentRef ref, std::uint32_t buffer, bool adopted) const {
    if (!residency_->extents.begin(ref, buffer, adopted)) {
      return;
    }
    const BufferRecord& record = residency_->buffers.at(buffer);
    const std::uint32_t number = ref - record.first.load(std::memory_order_relaxed);
    at(ref).preferred = residency_->buffers.preferred_of(record, number) & 0xf;
    if (adopted) {
      return_to_file(ref);
    }
  }
  bool begun(ExtentRef ref) const { return residency_->extents.begun(ref); }
  template <typename Visit>
  void each_begun(ExtentRef first, ExtentRef end, Visit&& visit) const {
    residency_->extents.each_begun(first, end, visit);
  }
  Extent& at(ExtentRef ref) const { return residency_->extents.at(ref); }
  ExtentWord& word(unsigned space, ExtentRef ref) const {
    return residency_->extents.word(space, ref);
  }
  /// The word, with pins in the slots of views found out: `pinned` and `has_writer` are exact. To
  /// be used before each decision that depends on them. If the extent is biased, it costs a system
  /// call and the bias.
  ExtentBits bits(unsigned space, ExtentRef ref) const {
    ExtentWord& its = word(space, ref);
    if (its.load().slot_pins()) {
      residency_->count_slot_pins(ref, 1);
    }
    return its.load();
  }
  FrameId& frame(unsigned space, ExtentRef ref) const {
    return residency_->extents.frame(space, ref);
  }
  /// The host's address of the bytes: see Extents::address().
  std::atomic<std::byte*>& address(ExtentRef ref) const { return residency_->extents.address(ref); }

  // ---- The buffer of an extent

  BufferRecord& record_of(ExtentRef ref) const {
    assert(begun(ref));
    return residency_->buffers.at(at(ref).buffer);
  }
  Handle handle_of(ExtentRef ref) const { return residency_->buffers.handle_of(at(ref).buffer); }
  /// The number of the extent within its buffer.
  ExtentRef number_of(ExtentRef ref) const {
    return ref - record_of(ref).first.load(std::memory_order_relaxed);
  }
  std::uint64_t bytes_of(ExtentRef ref) const {
    return std::uint64_t{1} << record_of(ref).extent_shift.load(std::memory_order_relaxed);
  }
  /// Returns the bytes that its slot copy has: all of them where it has none, or a whole one.
  std::uint64_t bytes_in_copy(ExtentRef ref) const {
    const SlotPages* const pages = at(ref).copy().pages;
    return pages != nullptr ? std::uint64_t{pages->stored} * pages->page_bytes : bytes_of(ref);
  }
  unsigned pages_in(ExtentRef ref) const {
    return static_cast<unsigned>(bytes_of(ref) / kSmallestExtent);
  }
  bool has_flag(ExtentRef ref, std::uint32_t flag) const {
    return (record_of(ref).flags.load(std::memory_order_relaxed) & flag) != 0;
  }
  bool droppable(ExtentRef ref) const { return has_flag(ref, kDroppable); }
  /// The program may write a mapped extent at any time, without a pin.
  bool mapped(ExtentRef ref) const {
    return touchable(ref) && !record_of(ref).read_only.load(std::memory_order_relaxed);
  }
  /// The program touches the extent without a pin: it is mapped, or of a mapped file that is
  /// read-only.
  bool touchable(ExtentRef ref) const { return has_flag(ref, kMapped); }

  // ---- Copies in memory

  bool readable(ExtentRef ref, unsigned space) const { return word(space, ref).load().readable(); }
  /// Returns the first other space with a readable copy, or kNoSpace. The host comes first.
  unsigned readable_elsewhere(ExtentRef ref, unsigned space) const;
  bool has_frame(ExtentRef ref, unsigned space) const {
    const ExtentBits bits = word(space, ref).load();
    return bits.readable() || bits.phase() == Phase::vacant ||
           (bits.phase() == Phase::none && at(ref).parts != 0);
  }
  /// Returns whether a caller of pin_vacant() is clearing the extent.
  bool claimed(ExtentRef ref, unsigned space) const {
    return at(ref).transfer == 0 && word(space, ref).load().phase() == Phase::incoming;
  }
  /// The levels of the extent's pages: see Extents.
  PageLevels::Memory& page_levels(ExtentRef ref) const {
    return residency_->extents.page_levels(ref);
  }
  bool has_page_levels(ExtentRef ref) const { return residency_->extents.has_page_levels(ref); }
  /// Returns the bytes that a space with a frame of the extent holds.
  std::uint64_t resident_bytes(ExtentRef ref) const {
    const PageMask parts = at(ref).parts;
    return parts != 0 ? bytes_of_pages(parts) : bytes_of(ref);
  }
  /// Returns what a frame for the extent in that space must be.
  FrameRequest frame_request(ExtentRef ref, unsigned space) const;

  // ---- Windows

  /// Returns the extent's address in its buffer's window in that space, or null without a window.
  std::byte* address_in_window(ExtentRef ref, unsigned space) const;
  /// Returns where the frame must appear, and must leave again; null if it has an address of its
  /// own. Frames of devices have.
  std::byte* window_at(ExtentRef ref, unsigned space) const {
    return space == kHost ? address_in_window(ref, kHost) : nullptr;
  }
  bool in_window(ExtentRef ref, unsigned space) const {
    return window_at(ref, space) != nullptr && !word(space, ref).load().at_home();
  }

  // ---- The slot copy: questions

  /// Returns whether the slot has all bytes of the extent, the newest or those of an earlier write.
  bool in_slot(ExtentRef ref) const {
    const SlotCopy& copy = at(ref).copy();
    return copy.owned() && !copy.partial() && copy.sums != nullptr;
  }
  /// Returns whether single pages of the extent can be read from its slot copy: from a slot that
  /// has all of its bytes, or from its file.
  bool in_slot_or_file(ExtentRef ref) const {
    const SlotCopy& copy = at(ref).copy();
    return in_slot(ref) || (copy.exists() && copy.in_file());
  }
  /// Returns the extent's slot copy, with the state that follows from the copies in memory.
  SlotCopy slot_copy(ExtentRef ref) const;
  /// Returns whether slot_copy(ref) exists. It does not look at the copies in memory.
  bool has_slot_copy(ExtentRef ref) const { return at(ref).copy().exists(); }
  bool owns_slot(ExtentRef ref) const { return at(ref).copy().owned(); }

  // ---- The slot copy: all changes

  /// The extent, which owns no slot, gets one in the tier of that number. The copy is partial until
  /// it is written. `stamp`: see SharedSlots. `pages` may be null: the slot has room for all of
  /// them. An adopted extent is no longer in its file.
  void add_slot(ExtentRef ref, std::uint8_t tier, SlotId slot, std::uint32_t stamp,
                SlotPagesOwner pages) const;
  /// A write into the slot begins: the copy is partial.
  void begin_write(ExtentRef ref) const;
  /// The write ends before it has changed the slot: the copy is what it was.
  void cancel_write(ExtentRef ref) const;
  /// The slot has the newest bytes, with these checksums. Does nothing for an extent of zeros,
  /// which needs no slot.
  void finish_write(ExtentRef ref, ChecksumsOwner sums) const;
  /// Sets the checksums of the copy's bytes, which a read has found out.
  void set_checksums(ExtentRef ref, ChecksumsOwner sums) const;
  /// For an extent in its file: returns the checksums of its blocks. Those of blocks that nothing
  /// has read yet are Hash{}. Null: there is no memory for them.
  Checksums* checksums_of_file(ExtentRef ref, std::uint32_t block_bytes) const;
  /// Drops the copy, with what was known of it. The caller frees the slot. There is no replica. An
  /// adopted extent is in its file again.
  void drop_copy(ExtentRef ref) const;
  /// Moves the slot of `from`, its replica, and what is known of them, to `to`, which owns none.
  void move_slot(ExtentRef from, ExtentRef to) const;

  // ---- The replica of the extent's own slot

  bool has_replica(ExtentRef ref) const { return residency_->extents.has_replica(ref); }
  /// There is one.
  const SlotReplica& replica(ExtentRef ref) const { return residency_->extents.replica(ref); }
  /// A slot in the tier of that number, with a higher rank, has the bytes of the extent's own slot.
  void add_replica(ExtentRef ref, std::uint8_t tier, SlotId slot, std::uint32_t stamp) const;
  /// There is no replica any more. Returns what it was. The caller frees its slot.
  SlotReplica drop_replica(ExtentRef ref) const;
  /// The slot of the replica becomes the one that the extent owns. Returns the one that it owned
  /// before. The caller frees that slot.
  SlotReplica use_replica(ExtentRef ref) const;

 private:
  bool dirty_in_memory(ExtentRef ref) const;
  void return_to_file(ExtentRef ref) const;
  SlotCopy take_copy(ExtentRef ref) const;

  Residency* residency_;
};

}  // namespace tiermem
