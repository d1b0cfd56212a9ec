// Lists of ranges, and the messages for invalid accesses.
#include "residency/residency.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace tiermem {

Status Residency::resolve(const Access& access, Span& span, const char* call) {
  const Code code = resolve_quietly(access, span);
  switch (code) {
    case Code::ok:
      return {};
    case Code::stale_handle:
      return buffers.stale(call, access.buffer);
    case Code::unavailable:
      return fail(code, "{}: {} is not a tier of this context; see `tiermem topo`", call,
                  place_name(access.where));
    case Code::unsupported:
      return not_on_device(access, call);
    default:
      break;
  }
  BufferRecord* record = buffers.find(access.buffer);
  const std::uint64_t bytes = record != nullptr ? record->bytes.load(std::memory_order_relaxed) : 0;
  const bool read_only = record != nullptr && record->read_only.load(std::memory_order_relaxed);
  if (access.reserved != 0) {
    return fail(code, "{}: the reserved field of the access is {:#x}; it must be 0", call,
                access.reserved);
  }
  if (access.mode == 0 || (access.mode & ~7u) != 0) {
    return fail(code, "{}: mode {:#x}; accepted are read (1), write (2) and discard (4)", call,
                access.mode);
  }
  if (read_only && (access.mode & (kWrite | kDiscard)) != 0) {
    return fail(
        code,
        "{}: the buffer is an adopted file and read-only; ask for reading, or adopt the file "
        "with the flag private",
        call);
  }
  return fail(code,
              "{}: range of {} bytes at offset {} is empty or not inside the buffer of {} bytes; "
              "pass a range inside it",
              call, access.length, access.offset, bytes);
}

Status Residency::not_on_device(const Access& access, const char* call) {
  const BufferRecord* record = buffers.find(access.buffer);
  if (record == nullptr) {
    return fail(Code::stale_handle,
                "{}: handle {:#x} was freed during the call; free it after the call", call,
                access.buffer);
  }
  if ((record->flags.load(std::memory_order_relaxed) & kMapped) != 0) {
    return fail(Code::unsupported,
                "{}: a mapped buffer has views in dram only, not on {}; allocate it without the "
                "flag mapped",
                call, place_name(access.where));
  }
  const std::uint64_t extent = std::uint64_t{1}
                               << record->extent_shift.load(std::memory_order_relaxed);
  return fail(Code::unsupported,
              "{}: an extent of {} does not pass through the staging for {}, which is for {}; "
              "raise the option extent",
              call, human_bytes(extent), place_name(access.where),
              human_bytes(std::uint64_t{1} << device_extent_shift));
}

Code Residency::resolve_quietly(const Access& access, Span& span) noexcept {
  return resolve_in<false>(access, span);
}

bool Residency::pin_rest(ExtentWord* first, std::uint32_t count, bool writes) noexcept {
  ExtentWord* const end = first + count;
  for (ExtentWord* word = first + 1; word != end; ++word) {
    if ((writes ? word->pin_write() : word->pin_read()) != Pin::ok) [[unlikely]] {
      while (word-- != first) {
        (void)(writes ? word->unpin_write() : word->unpin_read());
      }
      tell_of_release();
      return false;
    }
  }
  return true;
}

bool Residency::pin(const Span& span) noexcept {
  if (!pin_in(span, span.run())) {
    return false;
  }
  if (span.window == nullptr || shown(span)) {
    return true;
  }
  unpin(span.run());
  return false;
}

// A pinned extent keeps its frame, and with it its place in the window.
bool Residency::shown(const Span& span) noexcept {
  const AddressSpace& space = *device_space[span.space];
  const ExtentRef begin = span.record->first.load(std::memory_order_relaxed);
  for (ExtentRef ref = span.first; ref < span.first + span.count; ++ref) {
    std::byte* const at = span.window + (std::uint64_t{ref - begin} << span.shift);
    if (!space.shows(extents.frame(span.space, ref), at)) {
      return false;
    }
  }
  return true;
}

bool Residency::pin_incoming(const Span& span) noexcept {
  extents.word(span.space, span.first).pin_incoming(span.writes);
  if (!span.stale()) {
    return true;
  }
  unpin(span.run());
  return false;
}

void Residency::unpin(PinnedRun run) noexcept {
  unpin_in(run);
}

// Begins anew, so that the inline part keeps its span in registers.
bool Residency::hit_by_count(const Access& access, ViewRecord& view) noexcept {
  Span span;
  if (resolve_in<true>(access, span) != Code::ok) {
    return false;
  }
  const PinnedRun run = span.run();
  if (!pin_in(span, run)) {
    return false;
  }
  if (!fill_in<true>(span, run, view, 0)) {
    unpin(run);
    return false;
  }
  bias_some(span, view);
  return true;
}

bool Residency::rest_held_by_slot(ExtentWord* first, std::uint32_t count, bool writes) noexcept {
  return count <= kMostBySlot && std::all_of(first + 1, first + count, [writes](ExtentWord& word) {
           return held_by_slot(word, writes);
         });
}

// The mover may have seen it.
void Residency::undo_slot(std::uint64_t life, PinnedRun run) noexcept {
  views.undo(life);
  slot_freed(life, run);
}

void Residency::bias(const Span& span) noexcept {
  any_biased.store(true, std::memory_order_relaxed);
  for (ExtentRef ref = span.first; ref < span.first + span.count; ++ref) {
    extents.word(kHost, ref).bias();
  }
}

// One thread at a time: an extent that is biased in between would lose its flag otherwise.
void Residency::count_slot_pins(ExtentRef first, std::uint32_t count) noexcept {
  const auto alone = views.lock_counting();
  ExtentWord* const words = &extents.word(kHost, first);
  bool biased = false;
  for (ExtentWord* word = words; word != words + count; ++word) {
    if (word->load().biased()) {
      word->end_bias();
      biased = true;
    }
  }
  if (biased) {
    heavy_fence();
  }
  bool all = true;
  views.each_slot_pin([&](std::uint64_t life, PinnedRun run) {
    all = (!run.overlaps(first, count) || count_pins(life, run)) && all;
  });
  for (std::uint32_t i = 0; all && i < count; ++i) {
    words[i].clear_slot_pins();
  }
}

// Adds the pins of a view to the counts, while its slot holds its extents.
bool Residency::pin_held(PinnedRun run) noexcept {
  ExtentWord* const first = &extents.word(kHost, run.first());
  return (run.writes() ? first->pin_write() : first->pin_read()) == Pin::ok &&
         pin_rest(first, run.count(), run.writes());
}

// The view holds its extents by its slot, so each takes another pin. Otherwise its thread is about
// to find out that it does not, and to free the slot.
bool Residency::count_pins(std::uint64_t life, PinnedRun run) noexcept {
  if (!pin_held(run)) {
    return !views.lives(life);
  }
  views.set_counted(life);
  heavy_fence();
  if (!views.lives(life) && views.take_counted(life)) {
    unpin(run);
  }
  return true;
}

// The slot holds the extents while they get pins that count.
bool Residency::end_and_keep(const ViewRecord& view, PinnedRun& run) noexcept {
  const std::uint64_t life = read_once(view.token[0]);
  const PinnedRun told{read_once(view.token[1])};
  if (!told.in_slot()) {
    return views.end(view, run) != 0;
  }
  if (!views.is_held(view)) {
    return false;
  }
  if (!pin_held(told)) {
    return false;  // The limit of pins was reached: the view stays.
  }
  if (views.end(view, run) == 0) {
    unpin(told);  // Another thread was quicker.
    return false;
  }
  slot_freed(life, told);
  return true;
}

bool Residency::fill_view(const Span& span, ViewRecord& view, std::int32_t thread) noexcept {
  return fill_in<false>(span, span.run(), view, thread);
}

// Only buffers that were spare have vacant extents, and those are small.
bool Residency::has_vacant(const Span& span) const noexcept {
  if (span.count > kMostSpareExtents) {
    return false;
  }
  for (std::uint32_t i = 0; i < span.count; ++i) {
    if (extents.word(span.space, span.first + i).load().phase() == Phase::vacant) {
      return true;
    }
  }
  return false;
}

bool Residency::pin_vacant(const Span& span, bool keep_discards) noexcept {
  const ExtentRef begin = span.record->first.load(std::memory_order_relaxed);
  std::uint64_t claimed = 0;  // Bits by number in the buffer.
  const auto bit = [&](std::uint32_t i) {
    return std::uint64_t{1} << ((span.first + i - begin) % 64);
  };
  // First all steps that can fail. No other thread uses a claimed extent. If the generation is
  // unchanged after an extent was pinned or claimed, its word stays in this life.
  std::uint32_t n = 0;
  for (; n < span.count; ++n) {
    ExtentWord& word = extents.word(span.space, span.first + n);
    if (word.try_claim()) {
      claimed |= bit(n);
    } else if ((span.writes ? word.pin_write() : word.pin_read()) != Pin::ok) {
      break;
    }
  }
  const bool all = n == span.count && !span.stale();
  if (all) {
    std::byte* const window = span.record->windows[kHost].load(std::memory_order_relaxed);
    const std::uint64_t size = std::uint64_t{1} << span.shift;
    for (std::uint32_t i = 0; i < n && claimed != 0; ++i) {
      if ((claimed & bit(i)) == 0) {
        continue;
      }
      if (!(keep_discards && span.discards && span.whole(i))) {
        std::byte* const at = window != nullptr
                                  ? window + (span.first + i - begin) * size
                                  : extents.address(span.first + i).load(std::memory_order_relaxed);
        std::memset(at, 0, size);
      }
      extents.word(kHost, span.first + i).end_claim(span.writes);
    }
  } else {
    for (std::uint32_t i = 0; i < n; ++i) {
      ExtentWord& word = extents.word(span.space, span.first + i);
      if ((claimed & bit(i)) != 0) {
        word.undo_claim();
      } else {
        (void)(span.writes ? word.unpin_write() : word.unpin_read());
      }
    }
  }
  if (claimed != 0 || !all) {
    tell_of_release();  // A thread that saw a claimed extent waits as for a pin.
  }
  return all;
}

Code Residency::make_spare(Handle handle) noexcept {
  BufferRecord* record = buffers.find(handle);
  if (record == nullptr) {
    return Code::stale_handle;
  }
  // Relaxed loads: they belong to this life if mark_freed still finds it.
  const Spares::Shape shape{record->extents.load(std::memory_order_relaxed),
                            record->extent_shift.load(std::memory_order_relaxed),
                            record->windows[kHost].load(std::memory_order_relaxed) != nullptr,
                            record->domain == kOwnDomain};
  const ExtentRef first = record->first.load(std::memory_order_relaxed);
  bool may = may_be_spare(record->flags.load(std::memory_order_relaxed), record->domain,
                          record->file, shape.extents) &&
             record->preferred.load(std::memory_order_relaxed) == 0 && !Buffers::is_worn(handle) &&
             spares.has_room(shape);
  if (!buffers.mark_freed(handle)) {
    return Code::stale_handle;
  }
  // Either all of it, or none except for a single extent that another thread is just checking.
  ExtentWord* const words = &extents.word(kHost, first);
  if (may && std::any_of(words, words + shape.extents,
                         [](const ExtentWord& word) { return word.load().slot_pins(); })) {
    count_slot_pins(first, shape.extents);
  }
  const auto plain = [&](std::uint32_t i) {
    const ExtentBits bits = words[i].load();
    return bits.phase() == Phase::exclusive && !bits.pinned() && !bits.known_elsewhere();
  };
  for (std::uint32_t i = 0; may && i < shape.extents; ++i) {
    may = plain(i);
  }
  for (std::uint32_t i = 0; may && i < shape.extents; ++i) {
    may = words[i].try_vacate();
  }
  if (!may || !spares.put(Buffers::index_of(handle), shape)) {
    return Code::busy;
  }
  // Its memory is available: a request that waits for memory need not wait for a pin.
  tell_of_release();
  return Code::ok;
}

Handle Residency::reuse_spare(const BufferShape& shape, bool windowed) noexcept {
  if (!may_be_spare(shape.flags, shape.domain, shape.file, shape.extents) ||
      shape.preferred != 0) {  // The frames of spares are of the first memory.
    return 0;
  }
  const std::uint32_t index =
      spares.take({shape.extents, shape.extent_shift, windowed, shape.domain == kOwnDomain});
  return index == Spares::kNone ? 0 : buffers.reuse(index, shape.bytes, shape.label);
}

Code Residency::try_acquire(std::span<const Access> list, std::span<ViewRecord> out) noexcept {
  for (std::size_t i = 0; i < list.size(); ++i) {
    Span span;
    Code code = resolve_quietly(list[i], span);
    if (code == Code::ok && !has_addresses(span)) [[unlikely]] {
      code = Code::busy;
    } else if (code == Code::ok) [[likely]] {
      if (span.space == kHost && hit_by_slot(span, out[i])) [[likely]] {
        continue;
      }
      if (has_vacant(span) ? pin_vacant(span, list.size() == 1) : pin(span)) [[likely]] {
        if (fill_view(span, out[i])) [[likely]] {
          if (span.space == kHost) {
            bias_some(span, out[i]);
          }
          continue;
        }
        unpin(span.run());
      }
      code = Code::busy;
    }
    (void)release(out.first(i));
    return code;
  }
  return Code::ok;
}

Code Residency::release(std::span<const ViewRecord> list) noexcept {
  Code code = Code::ok;
  for (const ViewRecord& view : list) {
    if (!end(view)) {
      code = Code::invalid_argument;
    }
  }
  return code;
}

}  // namespace tiermem
