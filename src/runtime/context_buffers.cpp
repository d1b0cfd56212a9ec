// Buffers of a context: allocating, adopting, freeing, and copying in and out. Any thread.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "base/no_cancel.hpp"
#include "residency/buffer_limits.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/held.hpp"

namespace tiermem {
namespace {

std::uint32_t in_pieces(const BufferOptions& options) {
  return options.advice == Advice::random ? kInPieces : 0;
}

Status too_large(const char* call, std::uint64_t bytes, std::uint64_t extent,
                 std::uint32_t extents) {
  const std::uint64_t largest = largest_buffer(extent, extents);
  // The context has fewer records if the process's address space is limited.
  if (extents < kMostExtents && bytes <= largest_buffer(extent, kMostExtents)) {
    return fail(
        Code::no_capacity,
        "{}: a buffer of {} bytes in extents of {} is above the largest, {} bytes, under this "
        "limit of addresses; raise `ulimit -v` or use a larger extent size (extent_bytes)",
        call, bytes, human_bytes(extent), largest);
  }
  return fail(Code::invalid_argument,
              "{}: a buffer of {} bytes in extents of {} is above the largest, {} bytes; {}", call,
              bytes, human_bytes(extent), largest,
              bytes <= largest_buffer(kLargestExtent, extents)
                  ? "use a larger extent size (extent_bytes, option extent)"
                  : "use several buffers");
}

}  // namespace

Result<Handle> Context::Impl::alloc(std::uint64_t bytes, const BufferOptions& options,
                                    std::uint32_t internal) {
  if (bytes == 0 || bytes > kLargestBuffer) {
    return fail(Code::invalid_argument, "alloc: {} bytes; accepted are 1 to 2^47", bytes);
  }
  const std::uint64_t asked = options.extent_bytes;
  if (asked != 0 &&
      (!std::has_single_bit(asked) || asked < kSmallestExtent || asked > kLargestExtent)) {
    return fail(Code::invalid_argument,
                "alloc: extent_bytes {}; accepted are powers of two from {} to {}", asked,
                kSmallestExtent, kLargestExtent);
  }
  const std::uint64_t extent =
      asked != 0 ? asked : std::clamp(std::bit_ceil(bytes), kSmallestExtent, config.extent);
  if (options.alignment != 0 &&
      (!std::has_single_bit(options.alignment) || options.alignment > extent)) {
    return fail(Code::invalid_argument,
                "alloc: alignment {}; accepted are powers of two up to the extent's {}",
                options.alignment, extent);
  }
  const std::uint32_t most = residency.extents.capacity();
  const std::optional<std::uint32_t> extents = extents_of(0, bytes, extent, most);
  if (!extents) {
    return too_large("alloc", bytes, extent, most);
  }
  constexpr std::uint32_t kKnown = kMapped | kDroppable | kNoChecksum | kIsolated | kInterleaved;
  if ((options.flags & kPrivate) != 0) {
    return fail(Code::unsupported,
                "alloc: the flag private is for files; remove it, or call adopt_file");
  }
  if ((options.flags & ~kKnown) != 0) {
    return fail(Code::unsupported, "alloc: flags {:#x} are not known to this version; remove them",
                options.flags & ~kKnown);
  }
  const bool wants_mapped = (options.flags & kMapped) != 0;
  const bool windowed = wants_mapped || *extents > 1;
  if (Status status = check_preferred(
          "alloc", options,
          {windowed ? host_space_->window_pool(extent) : Pool::locked, extent, 0, !wants_mapped});
      !status.ok()) {
    return status;
  }
  const ForkGate::Pass pass(gate_);
  BufferShape shape;
  shape.bytes = bytes;
  shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(extent));
  shape.extents = *extents;
  shape.flags = options.flags | (internal & ~kInOwnDomain) | in_pieces(options);
  shape.label = options.label;
  shape.preferred = memory_number(options.preferred);
  shape.domain = (internal & kInOwnDomain) != 0     ? kOwnDomain
                 : (options.flags & kIsolated) != 0 ? kIsolatedDomain
                                                    : 0;
  const Handle spare = residency.reuse_spare(shape, shape.extents > 1);
  order_stock(shape, spare != 0);
  if (spare != 0) {
    return spare;
  }
  const NoCancel until_made;
  const bool mapped = (shape.flags & kMapped) != 0;
  if ((shape.extents > 1 && (internal & kOfDevice) == 0) || mapped) {
    auto window = host_space_->reserve_window(shape.extents * extent, extent, mapped);
    if (!window.ok()) {
      return std::move(window).status();
    }
    shape.window = *window;
    shape.pool = host_space_->window_pool(extent);
  }
  Result<Handle> handle = residency.buffers.create(shape);
  if (!handle.ok() && shape.window != nullptr) {
    host_space_->release_window(shape.window, shape.extents * extent);
  }
  if (handle.ok() && mapped) {
    HeldBuffer made(*this, *handle);
    faults_.add(*handle, shape.window, shape.extents, shape.extent_shift);
    (void)made.keep();
  }
  return handle;
}

Status Context::Impl::cannot_prefer(const char* call, const char* label, Place place) const {
  Label shown;
  shown.set(label != nullptr ? label : "");
  std::string memories;
  for (const Memory* const memory : host_space_->memories()) {
    memories += (memories.empty() ? "" : ", ") + place_name(memory->place());
  }
  return fail(Code::unavailable,
              "{}: buffer '{}' prefers {}, which is not a tier of this context; its host memories "
              "are {}; prefer one of these, or add the tier with the option numa, pmem or gpu",
              call, shown.get().or_none(), place_name(place), memories);
}

Status Context::Impl::check_preferred(const char* call, const BufferOptions& options,
                                      const FrameRequest& extent) const {
  if ((options.flags & kInterleaved) != 0 && options.preferred.kind != Kind::any) {
    return fail(Code::invalid_argument,
                "{}: buffer '{}' is interleaved and prefers {}; pass one of the two", call,
                options.label != nullptr ? options.label : "", place_name(options.preferred));
  }
  return check_preferred(call, options.label, options.preferred, extent);
}

Status Context::Impl::check_preferred(const char* call, const char* label, Place place,
                                      const FrameRequest& extent) const {
  if (!has_tier(place)) {
    return cannot_prefer(call, label, place);
  }
  if (place.kind != Kind::pmem || host_space_->memory(memory_number(place)).takes(extent)) {
    return {};
  }
  Label shown;
  shown.set(label != nullptr ? label : "");
  return fail(
      Code::unsupported,
      "{}: buffer '{}' prefers {}, which takes no mapped buffers, no adopted files that are "
      "read-only, and no extents below 2 MiB of larger buffers; prefer another memory, or "
      "allocate without the flag mapped and with extents of at least 2 MiB",
      call, shown.get().or_none(), place_name(place));
}

std::uint64_t Context::Impl::largest_budget(Place place) const {
  if (has_gpu(place)) {
    return gpu(place).facts().total;
  }
  const DaxPages* const file =
      place.kind == Kind::pmem ? host_space_->memory(memory_number(place)).file() : nullptr;
  return file != nullptr ? file->file().bytes() : std::numeric_limits<std::uint64_t>::max();
}

std::uint8_t Context::Impl::memory_number(Place place) const {
  for (const Memory* const memory : host_space_->memories()) {
    if (memory->place() == place) {
      return static_cast<std::uint8_t>(memory->number());
    }
  }
  return 0;
}

// Nothing is posted before all ranges are valid. Ranges that follow each other and name one place
// are one request.
Status Context::Impl::prefer(std::span<const Access> list) {
  Vector<Access> ranges(list.begin(), list.end());  // The caller may change its list.
  Vector<std::unique_ptr<Request>> requests;
  for (std::size_t begin = 0, end = 0; begin < ranges.size(); begin = end) {
    const Place place = ranges[begin].where;
    for (; end < ranges.size() && ranges[end].where == place; ++end) {
      ranges[end].where = {};
    }
    auto request = std::make_unique<Request>();
    request->kind = RequestKind::advise;
    request->advice = Advice::preferred;
    request->tier = place.kind == Kind::dram ? Place{Kind::dram, 0} : place;
    Status status = resolve_all(std::span(ranges).subspan(begin, end - begin), *request, "advise");
    for (std::size_t i = 0; status.ok() && i < request->spans.size(); ++i) {
      const BufferRecord& record = *request->spans[i].record;  // Null after an error.
      const bool plain = (record.flags.load(std::memory_order_relaxed) & kMapped) == 0 &&
                         !record.read_only.load(std::memory_order_relaxed);
      const std::uint64_t extent = std::uint64_t{1}
                                   << record.extent_shift.load(std::memory_order_relaxed);
      status = check_preferred("advise", record.label.get().chars.data(), place,
                               {record.pool, extent, 0, plain});
    }
    if (!status.ok()) {
      return status;
    }
    requests.push_back(std::move(request));
  }
  for (std::unique_ptr<Request>& request : requests) {
    ask_and_forget(std::move(request));
  }
  return {};
}

// After its release it is a spare buffer for the next gather, so a program that reads rows
// continuously gets memory at once. Rows of all domains pass through it, so a caller never gets it.
Result<Handle> Context::Impl::alloc_staging(std::uint64_t bytes) {
  constexpr const char* kLabel = "rows being read";
  const ForkGate::Pass pass(gate_);
  BufferShape shape;
  shape.bytes = bytes;
  shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(bytes));
  shape.extents = 1;
  shape.label = kLabel;
  shape.domain = kOwnDomain;
  const Handle spare = residency.reuse_spare(shape, false);
  return spare != 0 ? spare : residency.buffers.create(shape);
}

// Prepares buffers in advance for a program that allocates many small ones.
void Context::Impl::order_stock(const BufferShape& shape, bool found) noexcept {
  if (shape.flags != 0 || shape.domain != 0 || shape.preferred != 0) {
    return;
  }
  const unsigned count =
      residency.spares.to_order({shape.extents, shape.extent_shift, shape.extents > 1}, found);
  if (count == 0) {
    return;
  }
  try {
    auto request = std::make_unique<Request>();
    request->kind = RequestKind::stock;
    request->index = count;
    request->value = std::uint64_t{1} << shape.extent_shift;
    ask_and_forget(std::move(request));
  } catch (const std::bad_alloc&) {
    // Out of memory: the next allocation orders.
    residency.spares.end_order(shape.extent_shift, true);
  }
}

Result<Handle> Context::Impl::adopt(const char* path, std::uint64_t offset, std::uint64_t length,
                                    const BufferOptions& options, std::uint64_t& bytes) {
  if (path == nullptr || path[0] == '\0') {
    return fail(Code::invalid_argument, "adopt_file: the path is empty; pass the path of a file");
  }
  constexpr std::uint32_t kKnown =
      kMapped | kPrivate | kDroppable | kNoChecksum | kIsolated | kInterleaved;
  if ((options.flags & ~kKnown) != 0) {
    return fail(Code::unsupported,
                "adopt_file: flags {:#x} are not known to this version; remove them",
                options.flags & ~kKnown);
  }
  const std::uint64_t extent = options.extent_bytes != 0 ? options.extent_bytes : config.extent;
  if (!std::has_single_bit(extent) || extent < kSmallestExtent || extent > kLargestExtent) {
    return fail(Code::invalid_argument,
                "adopt_file: extent_bytes {}; accepted are powers of two from {} to {}", extent,
                kSmallestExtent, kLargestExtent);
  }
  if (options.alignment != 0 &&
      (!std::has_single_bit(options.alignment) || options.alignment > extent)) {
    return fail(Code::invalid_argument,
                "adopt_file: alignment {}; accepted are powers of two up to the extent's {}",
                options.alignment, extent);
  }
  if (options.alignment != 0 && offset % options.alignment != 0) {
    return fail(Code::invalid_argument,
                "adopt_file: alignment {} with the offset {}: addresses are aligned as offsets in "
                "the file are; name a multiple of the alignment",
                options.alignment, offset);
  }
  const ForkGate::Pass pass(gate_);
  const bool stays_plain = (options.flags & kPrivate) != 0 && (options.flags & kMapped) == 0;
  if (Status status = check_preferred("adopt_file", options,
                                      {host_space_->window_pool(extent), extent, 0, stays_plain});
      !status.ok()) {
    return status;
  }
  auto adopted = files_->adopt(path, offset, length);
  if (!adopted.ok()) {
    return std::move(adopted).status();
  }
  struct HeldFile {
    ~HeldFile() {
      if (files != nullptr) {
        files->free(base);
      }
    }
    FileTier* files;
    SlotId base;
  } file{files_.get(), adopted->base};
  const std::uint64_t lead = offset - adopted->begin;
  const std::uint32_t most = residency.extents.capacity();
  const std::optional<std::uint32_t> extents = extents_of(lead, adopted->length, extent, most);
  if (!extents) {
    return too_large("adopt_file", adopted->length, extent, most);
  }
  BufferShape shape;
  shape.bytes = bytes = adopted->length;
  shape.lead = lead;
  shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(extent));
  shape.extents = *extents;
  shape.flags = options.flags | in_pieces(options);
  const std::string name = files_->name(adopted->base);
  shape.label = options.label != nullptr ? options.label : name.c_str();
  shape.preferred = memory_number(options.preferred);
  shape.domain = (options.flags & kIsolated) != 0 ? kIsolatedDomain : 0;
  shape.read_only = (options.flags & kPrivate) == 0;
  shape.file = adopted->base.value + 1;
  const bool mapped = (options.flags & kMapped) != 0;
  // Even for one extent: only a window can be read-only.
  if (shape.read_only || mapped || shape.extents > 1) {
    const std::uint64_t window_bytes = shape.extents * extent;
    auto window = shape.read_only
                      ? host_space_->reserve_read_only_window(window_bytes, extent, mapped)
                      : host_space_->reserve_window(window_bytes, extent, mapped);
    if (!window.ok()) {
      return std::move(window).status();
    }
    shape.window = *window;
    shape.pool = host_space_->window_pool(extent);
  }
  Result<Handle> handle = residency.buffers.create(shape);
  if (handle.ok()) {
    file.files = nullptr;  // The buffer owns it now.
    if (mapped) {
      HeldBuffer made(*this, *handle);
      faults_.add(*handle, shape.window, shape.extents, shape.extent_shift);
      (void)made.keep();
    }
  } else if (shape.window != nullptr) {
    host_space_->release_window(shape.window, shape.extents * extent);
  }
  return handle;
}

Status Context::Impl::free(Handle buffer) noexcept {
  const ForkGate::Pass pass(gate_);
  const Code code = residency.make_spare(buffer);
  if (code == Code::stale_handle) {
    // Its memory in this process was freed when the fork left the buffer to the parent.
    return residency.buffers.was_left(buffer) ? Status() : residency.buffers.stale("free", buffer);
  }
  if (code == Code::ok) {
    return {};
  }
  // Valid until the free request is posted.
  const BufferRecord& record = residency.buffers.at(Buffers::index_of(buffer));
  if ((record.flags.load(std::memory_order_relaxed) & kMapped) != 0) {
    faults_.remove(record.windows[kHost].load(std::memory_order_relaxed));
  }
  try {
    auto request = std::make_unique<Request>();
    request->kind = RequestKind::free;
    request->index = Buffers::index_of(buffer);
    ask_and_forget(std::move(request));
  } catch (const std::bad_alloc&) {
    residency.buffers.abandon(Buffers::index_of(buffer));
    port_->wake();
  }
  return {};
}

Span::Bytes Context::Impl::in_window_of(const Span& span, const void* memory,
                                        std::uint64_t length) {
  const BufferRecord& record = *span.record;
  const ExtentRef first = record.first.load(std::memory_order_relaxed);
  const std::byte* begin = record.windows[kHost].load(std::memory_order_relaxed);
  if (begin == nullptr) {
    // The memory of a view is pinned. Without a pin the address may belong to another buffer by
    // now.
    const ExtentBits bits = residency.extents.word(kHost, first).load();
    begin = bits.pinned() && bits.readable()
                ? residency.extents.address(first).load(std::memory_order_relaxed)
                : nullptr;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(begin);
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  const std::uint64_t bytes = std::uint64_t{record.extents.load(std::memory_order_relaxed)}
                              << span.shift;
  if (begin == nullptr || at >= base + bytes || (at < base && length <= base - at)) {
    return {0, 0};
  }
  const std::uint64_t from = at < base ? 0 : at - base;
  const std::uint64_t before = at < base ? base - at : 0;
  return {from, std::min(bytes, from + std::min(length - before, bytes))};
}

Status Context::Impl::check_apart(const char* call, const Span& span, std::uint64_t offset,
                                  const void* memory, const char* way) {
  const auto [begin, end] = in_window_of(span, memory, span.length);
  if (begin >= span.offset + span.length || span.offset >= end) {
    return {};
  }
  return fail(Code::invalid_argument,
              "{}: the range at offset {} of {} bytes and the memory to copy {} overlap in one "
              "buffer; copy through other memory",
              call, offset, span.length, way);
}

Status Context::Impl::acquire_within(const char* call, std::span<const Access> list,
                                     const CallLimits& limits, std::span<ViewRecord> views) {
  if (limits.cancelled()) {
    return fail(Code::cancelled, "{}: cancelled by its owner", call);
  }
  Status status = usable(call);
  if (!status.ok() || residency.try_acquire(list, views) == Code::ok) {
    return status;
  }
  return acquire_through_mover(list, limits.left(), views, {}, limits.cancel);
}

Status Context::Impl::copy(Context& context, Handle buffer, std::uint64_t offset, std::byte* to,
                           const std::byte* from, std::uint64_t length, const CallLimits& limits) {
  const char* call = to != nullptr ? "read" : "write";
  Status status = usable(call);
  if (!status.ok() || length == 0) {
    return status;
  }
  Span span;
  const Access whole{buffer, offset, length, to != nullptr ? kRead : kWrite, {}, 0};
  status = residency.resolve(whole, span, call);
  if (!status.ok()) {
    return status;
  }
  status = to != nullptr ? check_apart(call, span, offset, to, "to")
                         : check_apart(call, span, offset, from, "from");
  if (!status.ok()) {
    return status;
  }
  const std::uint64_t extent = std::uint64_t{1} << span.shift;
  const std::uint64_t lead = span.offset - offset;
  // Prefetches ahead by the device's depth, so that a long copy runs at the device's speed.
  const std::uint64_t window = extent * 16;
  std::uint64_t prefetched = offset;
  for (std::uint64_t at = offset; at < offset + length;) {
    if (to != nullptr && span.count > 1 && prefetched < offset + length &&
        prefetched < at + window / 2) {
      const Access ahead{buffer, prefetched, std::min(window, offset + length - prefetched),
                         kRead,  {},         0};
      (void)context.prefetch({&ahead, 1});
      prefetched += ahead.length;
    }
    const std::uint64_t in_extent = (at + lead) % extent;
    Access access{buffer,     at, std::min(extent - in_extent, offset + length - at),
                  whole.mode, {}, 0};
    if (from != nullptr && access.length == extent) {
      access.mode = kDiscard;
    }
    ViewRecord view;
    status = acquire_within(call, {&access, 1}, limits, {&view, 1});
    if (!status.ok()) {
      return status;
    }
    const HeldViews held(residency, {&view, 1});
    if (to != nullptr) {
      std::memcpy(to + (at - offset), view.data, access.length);
    } else {
      std::memcpy(view.data, from + (at - offset), access.length);
    }
    at += access.length;
  }
  return {};
}

Status Context::Impl::empty_edges(const Access& access, Span& span, bool wait) {
  for (const std::uint32_t i : {0u, span.count - 1}) {
    if (span.whole(i) || span.emptied(i)) {
      continue;
    }
    const auto [begin, end] = span.covered(i);
    const std::uint64_t lead = span.offset - access.offset;
    Access edge{access.buffer, begin - lead, end - begin, kWrite, {}, 0};
    ViewRecord view;
    Status status;
    if (residency.try_acquire({&edge, 1}, {&view, 1}) != Code::ok) {
      if (!wait) {
        continue;
      }
      status = acquire_through_mover({&edge, 1}, Timeout::forever(), {&view, 1});
    }
    if (!status.ok()) {
      return status;
    }
    const HeldViews held(residency, {&view, 1});
    // The pages may be read-only if the program has changed their protection.
    auto* const at = static_cast<std::byte*>(view.data);
    const bool pages =
        reinterpret_cast<std::uintptr_t>(at) % host::kPage == 0 && edge.length % host::kPage == 0;
    if (span.record->adopted()) {  // A private copy: its bytes are the file's again.
      status = files_->copy(span.record->first_slot(), begin, at, edge.length);
    } else if (!pages || !host_space_->altered_window(at) || host::drop(at, edge.length) != 0) {
      std::memset(at, 0, edge.length);
    }
    if (!status.ok()) {
      return status;
    }
    span.set_emptied(i);
  }
  return {};
}

}  // namespace tiermem
