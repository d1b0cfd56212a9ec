// The directory of copies: where each extent's bytes are. Every lookup that starts from an
// ExtentRef is here: its entry, its words, its frames, its slot, and the record of its buffer. The
// mover owns the directory and hands it to the parts that work for it. The stepping thread only.
//
// A directory is a handle: its constness says nothing about the extents, and copies of it refer to
// the same extents.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>

#include "residency/residency.hpp"
#include "tier/memory.hpp"

namespace tiermem {

inline constexpr std::uint8_t kNoSpace = 0xff;

inline std::uint64_t bytes_of_pages(PageMask pages) {
  return static_cast<std::uint64_t>(std::popcount(pages)) * kSmallestExtent;
}

/// The copy of an extent in a slot tier. An extent has at most one: the slot that it owns in the
/// block tier, or else its part of the file that its buffer adopted. A private extent that was
/// written owns a slot, and is no longer read from the file.
struct SlotCopy {
  enum class Tier : std::uint8_t { block, file };
  enum class State : std::uint8_t {
    none,     ///< There is no copy; `slot` is invalid.
    current,  ///< The slot has the newest bytes.
    old,      ///< A copy in memory is dirty: the slot has earlier bytes.
    partial,  ///< A write into the slot has begun or failed.
  };

  SlotId slot{};
  Tier tier = Tier::block;
  State state = State::none;

  bool in_file() const { return tier == Tier::file; }
  bool exists() const { return state != State::none; }
  bool current() const { return state == State::current; }
  bool partial() const { return state == State::partial; }
};

class Directory {
 public:
  explicit Directory(Residency& residency)
      : extents_(&residency.extents), buffers_(&residency.buffers) {}

  unsigned spaces() const { return extents_->spaces(); }

  // ---- Entries, words, frames

  /// Begins an extent of a span with a handle that is not stale. Every other use of the extent
  /// comes after this call.
  void begin(const Span& span, ExtentRef ref) const {
    begin(ref, Buffers::index_of(span.buffer), span.record->adopted());
  }
  /// Begins an extent of the buffer record `buffer`.
  void begin(ExtentRef ref, std::uint32_t buffer, bool adopted) const {
    extents_->begin(ref, buffer, adopted);
  }
  bool begun(ExtentRef ref) const { return extents_->begun(ref); }
  template <typename Visit>
  void each_begun(ExtentRef first, ExtentRef end, Visit&& visit) const {
    extents_->each_begun(first, end, visit);
  }
  Extent& at(ExtentRef ref) const { return extents_->at(ref); }
  ExtentWord& word(unsigned space, ExtentRef ref) const { return extents_->word(space, ref); }
  FrameId& frame(unsigned space, ExtentRef ref) const { return extents_->frame(space, ref); }
  /// The host's address of the bytes: see Extents::address().
  std::atomic<std::byte*>& address(ExtentRef ref) const { return extents_->address(ref); }

  // ---- The buffer of an extent

  BufferRecord& record_of(ExtentRef ref) const {
    assert(begun(ref));
    return buffers_->at(at(ref).buffer);
  }
  Handle handle_of(ExtentRef ref) const { return buffers_->handle_of(at(ref).buffer); }
  /// The number of the extent within its buffer.
  ExtentRef number_of(ExtentRef ref) const {
    return ref - record_of(ref).first.load(std::memory_order_relaxed);
  }
  std::uint64_t bytes_of(ExtentRef ref) const {
    return std::uint64_t{1} << record_of(ref).extent_shift.load(std::memory_order_relaxed);
  }
  unsigned pages_in(ExtentRef ref) const {
    return static_cast<unsigned>(bytes_of(ref) / kSmallestExtent);
  }
  bool has_flag(ExtentRef ref, std::uint32_t flag) const {
    return (record_of(ref).flags.load(std::memory_order_relaxed) & flag) != 0;
  }
  bool droppable(ExtentRef ref) const { return has_flag(ref, kDroppable); }
  /// The program may write a mapped extent at any time, without a pin.
  bool mapped(ExtentRef ref) const { return has_flag(ref, kMapped); }

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

  // ---- The slot

  /// Returns whether the slot has all bytes of the extent, the newest or those of an earlier write.
  bool in_slot(ExtentRef ref) const {
    const Extent& extent = at(ref);
    return extent.has_slot && !extent.slot_stale && extent.sums != nullptr;
  }
  /// Returns the extent's slot copy. That of an adopted file follows from the record of the buffer,
  /// and costs no memory for the extent.
  SlotCopy slot_copy(ExtentRef ref) const;
  /// Returns whether slot_copy(ref) exists. It does not look at the copies in memory.
  bool has_slot_copy(ExtentRef ref) const { return at(ref).has_slot || record_of(ref).adopted(); }

 private:
  bool dirty_in_memory(ExtentRef ref) const;
  /// Returns where an extent of an adopted file is. A file's slots are numbered by the block.
  SlotId slot_in_file(ExtentRef ref) const {
    return {record_of(ref).first_slot().value + number_of(ref) * (bytes_of(ref) / kSmallestExtent)};
  }

  Extents* extents_;
  Buffers* buffers_;
};

}  // namespace tiermem
