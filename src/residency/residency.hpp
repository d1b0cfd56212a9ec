// The callers' side of residency: acquire and release on what is already resident. No lock, no system call,
// no allocation; one atomic add per extent each way. Anything else is a miss, and the mover's business.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "residency/buffers.hpp"
#include "residency/extents.hpp"
#include "residency/views.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

/// An Access, checked: extents instead of bytes.
struct Span {
  BufferRecord* record = nullptr;
  Handle buffer = 0;
  ExtentRef first = 0;
  std::uint32_t count = 0;
  std::uint64_t offset = 0;  ///< Of the first byte, in the window.
  std::uint64_t length = 0;
  std::uint8_t shift = 0;
  std::uint8_t space = kHost;
  bool writes = false;
  bool discards = false;
  bool whole_first = false, whole_last = false;  ///< The edge extents are covered wholly.

  /// The i-th extent is covered wholly, so that a discard need not read it.
  bool whole(std::uint32_t i) const noexcept { return (i > 0 || whole_first) && (i + 1 < count || whole_last); }
};

class Residency {
 public:
  Residency(std::uint32_t max_buffers, std::uint32_t max_extents, unsigned spaces)
      : extents(max_extents, spaces), buffers(extents, max_buffers) {}

  Extents extents;
  Buffers buffers;
  LiveViews views;

  /// Checks an access against its buffer. invalid_argument or stale_handle with a sentence.
  Status resolve(const Access& access, Span& span, const char* call);
  /// Same, for the hit path: only the code. Inline work, no sentence.
  Code resolve_quietly(const Access& access, Span& span) noexcept;

  /// Pins all ranges and fills the views, or pins none: ok, `busy` for "not resident, ask the mover", or
  /// the error of resolve_quietly.
  Code try_acquire(std::span<const Access> list, std::span<ViewRecord> out) noexcept;
  /// All views of the list; those that are not held are left and make it invalid_argument.
  Code release(std::span<const ViewRecord> list) noexcept;

  /// Pins the extents of a span; all or none. False: a phase or a pin count was in the way.
  bool pin(const Span& span) noexcept;
  void unpin(unsigned space, ExtentRef first, std::uint32_t count, bool writes) noexcept;
  void fill_view(const Span& span, ViewRecord& view) noexcept;

  /// The mover waits for pins to fall and wants to be told. Sequentially consistent with the pin counts:
  /// either the mover sees the fallen pin, or the releaser sees this flag.
  std::atomic<bool> pins_wanted{false};
  void (*wake)(void*) = nullptr;
  void* wake_argument = nullptr;
  /// Device address of an extent's frame; set by the runtime when there are device spaces.
  std::byte* (*device_address)(void*, unsigned space, ExtentRef) = nullptr;
  void* device_argument = nullptr;

 private:
  void tell_of_release() noexcept {
    if (pins_wanted.load(std::memory_order_seq_cst) && wake != nullptr) [[unlikely]] {
      wake(wake_argument);
    }
  }
};

}  // namespace tiermem
