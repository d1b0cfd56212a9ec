// What callers ask of the mover, and how far it has come. The caller fills the first part and posts
// it; from then on it is the mover's until `done`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/arena.hpp"
#include "mover/gather.hpp"
#include "observe/receipts.hpp"
#include "residency/residency.hpp"
#include "tier/tier.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

enum class Want : std::uint8_t {
  acquire,    ///< Views of all spans.
  gather,     ///< Blocks of the span's buffer, as `gather` lists them, without their extents.
  prefetch,   ///< Resident if it can be had; never an error.
  evict,      ///< Written down, frames given up.
  clean,      ///< Written down, frames kept.
  retreat,    ///< Out of the spans' devices, to DRAM or down, and so much memory to the drivers.
  hand_over,  ///< Extents of the first span become the second's, as far as they are in slots only.
  discard,    ///< Wholly covered extents read as zeros afterwards.
  free,       ///< Buffer `index`: everything given back, the record retired.
  stock,      ///< `index` spare buffers of one extent of `value` bytes, as far as there is room.
  advise,
  set_budget,
  info,
  stats,  ///< Counters, and what transfers did where `receipts` is set.
  where,  ///< Of the span's first byte.
  drain,  ///< All transfers ended.
};

/// One extent of a request in one space.
struct Need {
  ExtentRef ref = 0;
  std::uint8_t space = kHost;
  bool writes : 1 = false;
  bool discard : 1 = false;  ///< Wholly overwritten by the caller: its bytes need not come.
  bool tried : 1 = false;    ///< Of a mapped extent: what leaves it has been done once.
  bool held : 1 = false;     ///< Counted in Extent::holds.
  bool waiting : 1 =
      false;  ///< In the extent's list of waiters, or among those that wait for pins.
  bool changes : 1 = false;  ///< A touch that writes.
  bool planned : 1 = false;  ///< `part` is what room is for.
  bool shown : 1 = false;    ///< On a device: in the buffer's window there.
  bool charged : 1 = false;  ///< Room for `part` is reserved in the extent's own frame.
  PageMask pages = 0;        ///< The pages that are wanted; 0: all.
  PageMask part = 0;         ///< The pages that are to come; 0: all.
  FrameId frame{};           ///< Reserved and not yet used.
  bool has_room() const { return frame.valid() || charged; }
};

struct Request : InArena {
  static constexpr std::int64_t kForever = INT64_MAX;

  // The caller's.
  Want want = Want::acquire;
  Vector<Span> spans;
  ViewRecord* views = nullptr;  ///< acquire: filled; null: brought, and not pinned (a touch).
  std::int64_t deadline_ns = kForever;
  std::int32_t thread =
      0;  ///< Who asks, as the kernel numbers it; 0: not said. Named as the holder of views.
  std::uint32_t index = 0;  ///< free, info: the buffer's record.
  bool in_parts = false;    ///< A touch: of the page `page` of its extent, others need not come.
  std::uint8_t page = 0;
  bool changes = false;  ///< A touch: it writes, as far as is known.
  bool for_stream = false;  ///< acquire: whoever asks lets a stream wait for copies under way.
  Advice advice = Advice::normal;
  std::uint64_t value = 0;  ///< advise: its value. set_budget: bytes.
  Place tier{};             ///< set_budget.
  BufferInfo* info = nullptr;
  Stats* stats = nullptr;
  GatherList* gather = nullptr;    ///< gather: filled.
  ReceiptsCopy* receipts = nullptr;  ///< stats: the last `value` of them, and totals.
  Whereabouts* where = nullptr;
  std::uint8_t* handed = nullptr;  ///< hand_over: for each extent, whether it was.
  std::atomic<bool> cancel{false};
  /// Null, or another flag that means the same: of the operation that this is a part of.
  const std::atomic<bool>* cancel_with = nullptr;
  /// Of a request in `Ops`: called in the mover's thread, before anybody sees that it is done.
  void (*before_done)(Request&) = nullptr;
  void* before_context = nullptr;
  /// Called once by the mover, as the last thing it does with the request.
  void (*on_done)(Request&) = nullptr;
  void* context = nullptr;

  // The answer, readable once on_done was called.
  Status status;
  /// for_stream: by space, the copy to the device after which all views are there; 0: they are.
  std::array<std::uint64_t, kMaxSpaces> arrivals{};

  // The mover's.
  enum class State : std::uint8_t { posted, room, loading, giving, done } state = State::posted;
  Vector<Need> needs;
  std::uint32_t at = 0;        ///< Where it stands in the list of active ones.
  std::uint32_t armed = 0;     ///< Needs looked at so far.
  std::uint32_t pending = 0;   ///< Of these, not ready yet.
  /// retreat: bytes of extents that have left the device, and bytes given back to its driver.
  std::array<std::uint64_t, kMaxSpaces> bytes_left{}, bytes_given{};
  bool gives = false;          ///< retreat: it is in the list of requests that give memory back.
  bool collecting = false;     ///< Head of the room queue: its needs are held.
  bool was_there = false;      ///< A touch of a part: it was there already when it was admitted.
  bool last_look = false;      ///< No victim and no pin were seen: one more search decides.
  bool short_of_room = false;  ///< Waited for frames: decides how a missed deadline is reported.
  std::int64_t admitted_ns = 0;  ///< When the mover first saw it.
  Request* next = nullptr;     ///< In the queue of posts.
};

}  // namespace tiermem
