// Acquire and release of resident extents.
#include "residency/residency.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tiermem {

Code Residency::resolve_quietly(const Access& access, Span& span) noexcept {
  BufferRecord* record = buffers.find(access.buffer);
  if (record == nullptr) [[unlikely]] {
    return Code::stale_handle;
  }
  const std::uint64_t bytes = record->bytes.load(std::memory_order_relaxed);
  const std::uint64_t lead = record->lead.load(std::memory_order_relaxed);
  const std::uint8_t shift = record->extent_shift.load(std::memory_order_relaxed);
  const ExtentRef first = record->first.load(std::memory_order_relaxed);
  const bool read_only = record->read_only.load(std::memory_order_relaxed);
  // The loads above are of one life of the record if its generation has not changed by now.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record->generation.load(std::memory_order_relaxed) != Buffers::generation_of(access.buffer)) [[unlikely]] {
    return Code::stale_handle;
  }
  const std::uint64_t length = access.length != 0 ? access.length : bytes - std::min(access.offset, bytes);
  constexpr std::uint32_t kModes = kRead | kWrite | kDiscard;
  if (length == 0 || access.offset > bytes || length > bytes - access.offset || access.mode == 0 ||
      (access.mode & ~kModes) != 0 || access.reserved != 0) [[unlikely]] {
    return Code::invalid_argument;
  }
  span.writes = (access.mode & (kWrite | kDiscard)) != 0;
  span.discards = (access.mode & kDiscard) != 0;
  if (span.writes && read_only) [[unlikely]] {
    return Code::invalid_argument;
  }
  span.space = kHost;
  if (access.where.kind > Kind::dram) [[unlikely]] {
    if (access.where.kind != Kind::gpu || access.where.index + 1u >= extents.spaces()) {
      return Code::unavailable;
    }
    span.space = static_cast<std::uint8_t>(access.where.index + 1);
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

Status Residency::resolve(const Access& access, Span& span, const char* call) {
  const Code code = resolve_quietly(access, span);
  switch (code) {
    case Code::ok:
      return {};
    case Code::stale_handle:
      return fail(code, "{}: handle {:#x} is not a live buffer: it was freed, or never given out", call,
                  access.buffer);
    case Code::unavailable:
      return fail(code, "{}: place kind {} index {} is not a tier of this context; see `tiermem topo`", call,
                  static_cast<unsigned>(access.where.kind), access.where.index);
    default:
      break;
  }
  BufferRecord* record = buffers.find(access.buffer);
  const std::uint64_t bytes = record != nullptr ? record->bytes.load(std::memory_order_relaxed) : 0;
  const bool read_only = record != nullptr && record->read_only.load(std::memory_order_relaxed);
  if (access.reserved != 0) {
    return fail(code, "{}: the reserved field of the access is {:#x}; it must be 0", call, access.reserved);
  }
  if (access.mode == 0 || (access.mode & ~7u) != 0) {
    return fail(code, "{}: mode {:#x} is not read (1), write (2) or discard (4)", call, access.mode);
  }
  if (read_only && (access.mode & (kWrite | kDiscard)) != 0) {
    return fail(code, "{}: the buffer is an adopted file and read-only; acquire it with mode read", call);
  }
  return fail(code, "{}: range of {} bytes at offset {} is empty or not inside the buffer of {} bytes", call,
              access.length, access.offset, bytes);
}

bool Residency::pin(const Span& span) noexcept {
  for (std::uint32_t i = 0; i < span.count; ++i) {
    ExtentWord& word = extents.word(span.space, span.first + i);
    if ((span.writes ? word.pin_write() : word.pin_read()) != Pin::ok) [[unlikely]] {
      unpin(span.space, span.first, i, span.writes);
      return false;
    }
  }
  // Whoever frees the buffer changes the generation before looking at pins: it sees ours, or we see that.
  if (span.record->generation.load(std::memory_order_seq_cst) != Buffers::generation_of(span.buffer)) [[unlikely]] {
    unpin(span.space, span.first, span.count, span.writes);
    return false;
  }
  return true;
}

void Residency::unpin(unsigned space, ExtentRef first, std::uint32_t count, bool writes) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) {
    ExtentWord& word = extents.word(space, first + i);
    (void)(writes ? word.unpin_write() : word.unpin_read());
  }
  tell_of_release();
}

void Residency::fill_view(const Span& span, ViewRecord& view) noexcept {
  if (span.space == kHost) {
    std::byte* window = span.record->window.load(std::memory_order_relaxed);
    std::byte* base = window != nullptr ? window : extents.address(span.first).load(std::memory_order_relaxed);
    view.data = base + span.offset;
    view.place = {Kind::dram, 0};
  } else {
    const std::uint64_t mask = (std::uint64_t{1} << span.shift) - 1;
    view.data = device_address(device_argument, span.space, span.first) + (span.offset & mask);
    view.place = {Kind::gpu, static_cast<std::uint16_t>(span.space - 1)};
  }
  view.length = span.length;
  view.flags = 0;
  views.add(view, span.buffer, {span.first, span.count, span.space, span.writes});
}

Code Residency::try_acquire(std::span<const Access> list, std::span<ViewRecord> out) noexcept {
  for (std::size_t i = 0; i < list.size(); ++i) {
    Span span;
    Code code = resolve_quietly(list[i], span);
    if (code == Code::ok && !pin(span)) [[unlikely]] {
      code = Code::busy;
    }
    if (code != Code::ok) [[unlikely]] {
      (void)release(out.first(i));
      return code;
    }
    fill_view(span, out[i]);
  }
  return Code::ok;
}

Code Residency::release(std::span<const ViewRecord> list) noexcept {
  Code code = Code::ok;
  for (const ViewRecord& view : list) {
    LiveViews::Held held{};
    if (!views.end(view, held)) [[unlikely]] {
      code = Code::invalid_argument;
      continue;
    }
    unpin(held.space, held.first, held.count, held.writes);
  }
  return code;
}

}  // namespace tiermem
