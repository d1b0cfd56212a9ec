// The callers' side of residency: acquire and release of resident bytes. No lock, no system call,
// no allocation. Extents that are often viewed are pinned by the slots of their views, without an
// atomic change; others by one atomic add per extent in each direction. Everything else is a miss,
// which the mover handles.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "os/asymmetric_fence.hpp"
#include "residency/buffers.hpp"
#include "residency/extents.hpp"
#include "residency/spares.hpp"
#include "residency/views.hpp"
#include "tier/address_space.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

/// A checked Access: extents instead of bytes.
struct Span {
  BufferRecord* record = nullptr;
  Handle buffer = 0;
  ExtentRef first = 0;
  std::uint32_t count = 0;
  std::uint64_t offset = 0;  ///< Offset of the first byte in the window.
  std::uint64_t length = 0;
  std::byte* window = nullptr;  ///< The buffer's window in a device's space, if it has one there.
  std::uint8_t shift = 0;
  std::uint8_t space = kHost;
  bool writes = false;
  bool discards = false;
  bool whole_first = false, whole_last = false;  ///< The span covers these edge extents completely.
  /// For a discard: its part of the first or last extent already reads as zeros.
  bool emptied_first = false, emptied_last = false;

  PinnedRun run() const noexcept { return PinnedRun::of(first, count, space, writes); }
  /// Returns whether the buffer was freed since the span was resolved: the extents may be in their
  /// next life.
  bool stale() const noexcept {
    return record->generation.load(std::memory_order_seq_cst) != Buffers::generation_of(buffer);
  }
  /// Returns whether the span covers the i-th extent completely, so that a discard need not read
  /// it.
  bool whole(std::uint32_t i) const noexcept {
    return (i > 0 || whole_first) && (i + 1 < count || whole_last);
  }
  /// The covered part of the i-th extent, as offsets in the window.
  struct Bytes {
    std::uint64_t begin, end;
  };
  Bytes covered(std::uint32_t i) const noexcept {
    const std::uint64_t extent = std::uint64_t{1} << shift;
    const std::uint64_t at = (offset / extent + i) * extent;
    return {std::max(at, offset), std::min(at + extent, offset + length)};
  }
  bool emptied(std::uint32_t i) const noexcept {
    return (i == 0 && emptied_first) || (i + 1 == count && emptied_last);
  }
  void set_emptied(std::uint32_t i) noexcept {
    emptied_first = emptied_first || i == 0;
    emptied_last = emptied_last || i + 1 == count;
  }
};

class Residency {
 public:
  Residency(std::uint32_t max_buffers, std::uint32_t max_extents, unsigned spaces)
      : extents(max_extents, spaces),
        buffers(extents, max_buffers, tag.value()),
        views(tag.value()) {}

  const ContextTag tag;  ///< Not valid if the process has the max number of contexts.
  Extents extents;
  Buffers buffers;
  LiveViews views;
  Spares spares;

  /// For a context that has ended: its records release their memory. A late thread may still read
  /// and write them, but their content has no meaning any more.
  void release_memory() noexcept {
    extents.release_memory();
    buffers.release_memory();
    views.release_memory();
  }

  /// Checks an access against its buffer. Errors: invalid_argument or stale_handle, with a message.
  Status resolve(const Access& access, Span& span, const char* call);
  /// The same, without a message.
  Code resolve_quietly(const Access& access, Span& span) noexcept;

  /// Pins one range of host memory and fills its view. Returns false and changes nothing in every
  /// other case.
  bool hit(const Access& access, ViewRecord& view) noexcept;
  /// Pins all ranges and fills the views, or pins none. Returns ok, `busy` for "not resident, ask
  /// the mover", or the error of resolve_quietly.
  Code try_acquire(std::span<const Access> list, std::span<ViewRecord> out) noexcept;
  /// Ends one view. Returns false if it is not held.
  bool end(const ViewRecord& view) noexcept;
  /// Ends one view, and keeps its pins, which count, for unpin(). Returns false if it is not held.
  bool end_and_keep(const ViewRecord& view, PinnedRun& run) noexcept;
  /// Ends all views of the list. Skips those that are not held, and then returns invalid_argument.
  Code release(std::span<const ViewRecord> list) noexcept;

  /// Pins all extents of a span, or none. Returns false if a phase or a pin count prevents it, or
  /// if an extent is not in its device's window.
  bool pin(const Span& span) noexcept;
  void unpin(PinnedRun run) noexcept;
  /// For the mover only: pins one extent that is on its way to a device, for a stream that waits
  /// for it.
  bool pin_incoming(const Span& span) noexcept;
  /// Ends the bias of neighbouring extents of the host, and adds the pins in slots to the counts of
  /// their words. The words keep the flag for such pins if a thread is about to find that its slot
  /// came too late; that thread then calls `wake`, as for a release. Reads all slots. Costs a
  /// system call if an extent is biased, and one for each view that holds one by its slot.
  void count_slot_pins(ExtentRef first, std::uint32_t count) noexcept;
  /// Fills a view of pinned extents. `thread`: the owner of the view if the caller works for
  /// another thread; 0: the caller. Returns false if the max number of views is held; the pins
  /// still belong to the caller.
  bool fill_view(const Span& span, ViewRecord& view, std::int32_t thread = 0) noexcept;

  /// Pins extents of which some are vacant. Vacant extents become zeros, unless the span overwrites
  /// them and `keep_discards` is set. Runs in the caller's time, because it clears memory.
  bool pin_vacant(const Span& span, bool keep_discards) noexcept;

  /// Frees a buffer, and keeps it as a spare if all its bytes are only in frames. Returns ok,
  /// stale_handle, or busy: the handle is stale now, and the mover must do the rest.
  Code make_spare(Handle handle) noexcept;
  /// Returns a spare of this shape as a new buffer, or 0 if there is none.
  Handle reuse_spare(const BufferShape& shape, bool windowed) noexcept;

  /// The mover waits for pins to be released and wants to be told. Sequentially consistent with the
  /// pin counts: either the mover sees the released pin, or the releasing thread sees this flag.
  /// The same holds for slots, by the halves of a fence.
  std::atomic<bool> pins_wanted{false};
  /// An extent was biased. Never cleared.
  std::atomic<bool> any_biased{false};
  /// A view biases its extents if its slot has a number that this divides: often enough for a loop,
  /// and seldom enough that a few views of short-lived bytes cost no fence.
  std::uint32_t bias_each = 64;
  void (*wake)(void*) = nullptr;
  void* wake_argument = nullptr;
  /// The GPU of each device space. Set before the first access, like the members below.
  std::array<std::uint16_t, kMaxSpaces> gpu_of_space = {0, 0, 1};
  /// The largest extent that passes through the staging of device spaces, as a power of two.
  std::uint8_t device_extent_shift = 63;
  std::array<const AddressSpace*, kMaxSpaces> device_space{};  ///< Null for the host's space.

  /// Returns the address of a span in a device's space: in the buffer's window, or in its only
  /// frame. The span's frames must be pinned.
  std::byte* device_address(const Span& span) noexcept {
    const std::uint64_t mask = (std::uint64_t{1} << span.shift) - 1;
    return span.window != nullptr ? span.window + span.offset
                                  : device_space[span.space]->bytes_at(
                                        extents.frame(span.space, span.first), nullptr) +
                                        (span.offset & mask);
  }
  /// Returns whether views of it in its space have one contiguous address range.
  static bool has_addresses(const Span& span) noexcept {
    return span.space == kHost || span.count == 1 || span.window != nullptr;
  }

  /// Returns kHost if no space belongs to that GPU.
  std::uint8_t space_of(Place place) const noexcept {
    std::uint8_t space = kHost;
    for (unsigned i = kHost + 1; place.kind == Kind::gpu && i < extents.spaces(); ++i) {
      space = gpu_of_space[i] == place.index ? static_cast<std::uint8_t>(i) : space;
    }
    return space;
  }

 private:
  template <bool kHostOnly>
  Code resolve_in(const Access& given, Span& span) noexcept;
  Status not_on_device(const Access& access, const char* call);
  bool pin_in(const Span& span, PinnedRun run) noexcept;
  bool shown(const Span& span) noexcept;
  /// Pins the other extents of `count`, of which the first is pinned. On failure none is pinned.
  bool has_vacant(const Span& span) const noexcept;
  static bool may_be_spare(std::uint32_t flags, std::uint32_t domain, std::uint64_t file,
                           std::uint32_t extents) {
    return flags == 0 && (domain == 0 || domain == kOwnDomain) && file == 0 &&
           extents <= kMostSpareExtents;
  }
  static constexpr std::uint32_t kMostSpareExtents = 64;  // One bit for each in pin_vacant.
  // The mover may have to count all pins of a view, in one step.
  static constexpr std::uint32_t kMostBySlot = 4096;
  bool pin_rest(ExtentWord* first, std::uint32_t count, bool writes) noexcept;
  void unpin_in(PinnedRun run) noexcept;
  bool hit_by_slot(const Span& span, ViewRecord& view) noexcept;
  bool hit_by_count(const Access& access, ViewRecord& view) noexcept;
  static bool held_by_slot(ExtentWord& word, bool writes) noexcept;
  static bool rest_held_by_slot(ExtentWord* first, std::uint32_t count, bool writes) noexcept;
  void undo_slot(std::uint64_t life, PinnedRun run) noexcept;
  bool pin_held(PinnedRun run) noexcept;
  bool count_pins(std::uint64_t life, PinnedRun run) noexcept;
  void bias_some(const Span& span, const ViewRecord& view) noexcept {
    if (LiveViews::is_nth(view.token[0], bias_each) && span.count <= kMostBySlot) [[unlikely]] {
      bias(span);
    }
  }
  void bias(const Span& span) noexcept;
  template <bool kHostOnly>
  void show_in(const Span& span, ViewRecord& view) noexcept;
  template <bool kHostOnly>
  bool fill_in(const Span& span, PinnedRun run, ViewRecord& view, std::int32_t thread) noexcept;
  /// After the slot of a view was freed that was its pin.
  [[gnu::always_inline]] void slot_freed(std::uint64_t life, PinnedRun run) noexcept {
    light_fence();
    if (views.take_counted(life)) [[unlikely]] {
      unpin(run);
    }
    tell_of_release();
  }
  void tell_of_release() noexcept {
    if (pins_wanted.load(std::memory_order_seq_cst) && wake != nullptr) [[unlikely]] {
      wake(wake_argument);
    }
  }
};

// ---- The hit path. It is inline for biased extents, because each call and each spilled register
// costs as much as a pin.

/// Reads a field of a caller's record exactly once. Another thread of the program may change the
/// record during the call, so the checked value must be the used value.
template <typename Field>
[[gnu::always_inline]] inline Field read_once(const Field& field) noexcept {
  return __atomic_load_n(&field, __ATOMIC_RELAXED);
}

template <bool kHostOnly>
[[gnu::always_inline]] inline Code Residency::resolve_in(const Access& given, Span& span) noexcept {
  // These fields are used after they were checked. All others are read in one place only.
  const struct {
    Handle buffer;
    std::uint64_t offset, length;
    std::uint32_t mode;
  } access{read_once(given.buffer), read_once(given.offset), read_once(given.length),
           read_once(given.mode)};
  if (Buffers::index_of(access.buffer) >= buffers.used()) [[unlikely]] {
    return Code::stale_handle;
  }
  BufferRecord* record = &buffers.at(Buffers::index_of(access.buffer));
  const std::uint64_t bytes = record->bytes.load(std::memory_order_relaxed);
  const std::uint64_t lead = record->lead.load(std::memory_order_relaxed);
  const std::uint8_t shift = record->extent_shift.load(std::memory_order_relaxed);
  const ExtentRef first = record->first.load(std::memory_order_relaxed);
  const bool read_only = record->read_only.load(std::memory_order_relaxed);
  // The caller received the handle after the record's life began. If that life has not ended by
  // this point, all the loads above belong to it.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record->generation.load(std::memory_order_relaxed) != Buffers::generation_of(access.buffer))
      [[unlikely]] {
    return Code::stale_handle;
  }
  const std::uint64_t length =
      access.length != 0 ? access.length : bytes - std::min(access.offset, bytes);
  constexpr std::uint32_t kModes = kRead | kWrite | kDiscard;
  if (length == 0 || access.offset > bytes || length > bytes - access.offset || access.mode == 0 ||
      (access.mode & ~kModes) != 0 || given.reserved != 0) [[unlikely]] {
    return Code::invalid_argument;
  }
  span.writes = (access.mode & (kWrite | kDiscard)) != 0;
  span.discards = (access.mode & kDiscard) != 0;
  if (span.writes && read_only) [[unlikely]] {
    return Code::invalid_argument;
  }
  span.space = kHost;
  if (given.where.kind > Kind::dram) [[unlikely]] {
    span.space = kHostOnly ? std::uint8_t{kHost} : space_of(given.where);
    if (span.space == kHost) {
      return Code::unavailable;
    }
    // The program may write a mapped buffer at any time.
    if ((record->flags.load(std::memory_order_relaxed) & kMapped) != 0 ||
        shift > device_extent_shift) {
      return Code::unsupported;
    }
    span.window = record->windows[span.space].load(std::memory_order_acquire);
  }
  span.record = record;
  span.buffer = access.buffer;
  span.shift = shift;
  span.offset = lead + access.offset;
  span.length = length;
  const std::uint64_t end = span.offset + length;
  const auto from = static_cast<std::uint32_t>(span.offset >> shift);
  span.first = first + from;
  span.count = static_cast<std::uint32_t>((end - 1) >> shift) - from + 1;
  const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
  span.whole_first = (span.offset & mask) == 0 || access.offset == 0;
  span.whole_last = (end & mask) == 0 || access.offset + length == bytes;
  return Code::ok;
}

[[gnu::always_inline]] inline bool Residency::pin_in(const Span& span, PinnedRun run) noexcept {
  ExtentWord* const word = &extents.word(span.space, span.first);
  if ((span.writes ? word->pin_write() : word->pin_read()) != Pin::ok) [[unlikely]] {
    tell_of_release();  // The pin is undone, but the mover may have seen it.
    return false;
  }
  if (span.count > 1 && !pin_rest(word, span.count, span.writes)) [[unlikely]] {
    return false;
  }
  // A thread that frees the buffer changes the generation before it looks at pins: either it sees
  // our pin, or we see the new generation.
  if (span.stale()) [[unlikely]] {
    unpin(run);
    return false;
  }
  return true;
}

[[gnu::always_inline]] inline void Residency::unpin_in(PinnedRun run) noexcept {
  ExtentWord* const first = &extents.word(run.space(), run.first());
  ExtentWord* const end = first + run.count();
  if (run.writes()) {
    for (ExtentWord* word = first; word != end; ++word) {
      (void)word->unpin_write();
    }
  } else {
    for (ExtentWord* word = first; word != end; ++word) {
      (void)word->unpin_read();
    }
  }
  tell_of_release();
}

template <bool kHostOnly>
[[gnu::always_inline]] inline void Residency::show_in(const Span& span, ViewRecord& view) noexcept {
  if (kHostOnly || span.space == kHost) {
    std::byte* window = span.record->windows[kHost].load(std::memory_order_relaxed);
    const std::uint64_t mask = (std::uint64_t{1} << span.shift) - 1;
    view.data = window != nullptr ? window + span.offset
                                  : extents.address(span.first).load(std::memory_order_relaxed) +
                                        (span.offset & mask);
    view.place = {Kind::host, 0};
  } else {
    view.data = device_address(span);
    view.place = {Kind::gpu, gpu_of_space[span.space]};
  }
  view.length = span.length;
  view.flags = 0;
}

template <bool kHostOnly>
[[gnu::always_inline]] inline bool Residency::fill_in(const Span& span, PinnedRun run,
                                                      ViewRecord& view,
                                                      std::int32_t thread) noexcept {
  show_in<kHostOnly>(span, view);
  return views.add(view, span.buffer, run, thread);
}

// The slot was published before.
[[gnu::always_inline]] inline bool Residency::held_by_slot(ExtentWord& word, bool writes) noexcept {
  const ExtentBits bits = word.load();
  if (!(writes ? bits.writable_by_slot() : bits.readable_by_slot())) [[unlikely]] {
    return false;
  }
  if (!bits.referenced()) [[unlikely]] {
    word.touch();
  }
  return true;
}

// Pins a range of the host by the slot of its view. Returns false, and changes nothing, if it is
// not biased or not resident.
[[gnu::always_inline]] inline bool Residency::hit_by_slot(const Span& span,
                                                          ViewRecord& view) noexcept {
  ExtentWord* const word = &extents.word(kHost, span.first);
  if (!word->load().biased()) {
    return false;  // A guess, which saves the slot.
  }
  const PinnedRun run = span.run().as_slot();
  const std::uint64_t life = views.take(span.buffer, run);
  if (life == 0) [[unlikely]] {
    return false;
  }
  light_fence();
  // The generation comes last, as in pin_in(): a thread that frees the buffer changes it before the
  // mover reads the slots.
  if (!held_by_slot(*word, span.writes) ||
      (span.count > 1 && !rest_held_by_slot(word, span.count, span.writes)) || span.stale())
      [[unlikely]] {
    undo_slot(life, run);
    return false;
  }
  show_in<true>(span, view);
  view.token[0] = life;
  view.token[1] = run.bits;
  return true;
}

[[gnu::always_inline]] inline bool Residency::hit(const Access& access, ViewRecord& view) noexcept {
  Span span;
  if (resolve_in<true>(access, span) != Code::ok) [[unlikely]] {
    return false;
  }
  return hit_by_slot(span, view) || hit_by_count(access, view);
}

[[gnu::always_inline]] inline bool Residency::end(const ViewRecord& view) noexcept {
  PinnedRun run;
  const std::uint64_t life = views.end(view, run);
  if (life == 0) [[unlikely]] {
    return false;
  }
  if (run.in_slot()) [[likely]] {
    slot_freed(life, run);
  } else {
    unpin_in(run);
  }
  return true;
}

}  // namespace tiermem
