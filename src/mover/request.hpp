// A request to the mover, and its progress. The caller fills the first part and posts the request.
// From then on the mover owns it until `done`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/arena.hpp"
#include "mover/gather.hpp"
#include "observe/receipts.hpp"
#include "residency/residency.hpp"
#include "tier/frame.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

enum class RequestKind : std::uint8_t {
  acquire,         ///< Views of all spans.
  gather,          ///< Blocks of the spans' buffers, as `gather` lists them, without their extents.
  prefetch,        ///< Makes the spans resident if there is room; never an error.
  evict,           ///< Writes the bytes to slots and frees the frames.
  clean,           ///< Writes the bytes to slots and keeps the frames.
  release_memory,  ///< Moves the spans off their devices, and returns as much memory to the
                   ///< drivers.
  move_slots,      ///< Gives extents of the first span to the second, if they are only in slots.
  discard,         ///< Extents that the span covers entirely read as zeros afterwards.
  free,            ///< Frees everything of buffer `index` and retires its record.
  stock,           ///< Makes up to `index` spare buffers of one extent of `value` bytes.
  advise,
  set_budget,
  info,
  stats,   ///< Counters, and receipts of transfers if `receipts` is set.
  where,   ///< Where the span's first byte is.
  drain,   ///< Waits for the end of all transfers.
  census,  ///< Where the bytes of the next buffers are.
};

/// One extent of a request in one space.
struct Need {
  ExtentRef ref = 0;
  std::uint8_t space = kHost;
  bool writes : 1 = false;
  bool discard : 1 = false;  ///< The caller overwrites it all: its bytes are not read.
  bool tried : 1 = false;    ///< A mapped extent: it was written or evicted once.
  bool held : 1 = false;     ///< Counted in Extent::holds.
  bool waiting : 1 =
      false;  ///< In the extent's list of waiters, or in the list of waiters for pins.
  bool changes : 1 = false;  ///< A touch that writes.
  bool planned : 1 = false;  ///< Room was planned for `part`.
  bool shown : 1 = false;    ///< On a device: mapped in the buffer's window there.
  bool charged : 1 = false;  ///< Room for `part` is reserved in the extent's own frame.
  PageMask pages = 0;        ///< The requested pages; 0: all.
  PageMask part = 0;         ///< The pages to read; 0: all.
  FrameId frame{};           ///< Reserved and not yet used.
  bool has_room() const { return frame.valid() || charged; }
};

/// The next buffers of a walk over all of them. A request takes some, so that a step stays short.
struct Census {
  struct Row {
    BufferInfo info;
    std::array<std::uint64_t, Stats::kMostTiers> tiers{};  ///< As in LabelStats.
  };
  std::uint32_t next = 0;  ///< The first record to look at; after the request, the next one.
  std::uint32_t end = 0;   ///< The end of the records.
  Vector<Row> rows;        ///< Filled up to its capacity.
};

struct Request : InArena {
  static constexpr std::int64_t kForever = INT64_MAX;

  // Set by the caller.
  RequestKind kind = RequestKind::acquire;
  Vector<Span> spans;
  ViewRecord* views = nullptr;  ///< acquire: filled; null: promoted but not pinned (a touch).
  std::int64_t deadline_ns = kForever;
  std::int32_t thread =
      0;  ///< The requesting thread (gettid), named as the holder of views; 0: unknown.
  std::uint32_t index = 0;  ///< free, info: the buffer's record.
  bool in_parts = false;    ///< A touch: only page `page` of its extent is required.
  std::uint8_t page = 0;
  bool changes = false;     ///< A touch that is known to write.
  bool for_stream = false;  ///< acquire: the caller makes a stream wait for copies in progress.
  Advice advice = Advice::normal;
  std::uint64_t value = 0;  ///< advise: its value. set_budget: bytes.
  Place tier{};             ///< set_budget; advise with Advice::preferred: the memory.
  BufferInfo* info = nullptr;
  Census* census = nullptr;
  Stats* stats = nullptr;
  GatherList* gather = nullptr;      ///< gather: filled.
  ReceiptsCopy* receipts = nullptr;  ///< stats: the last `value` receipts, and totals.
  Whereabouts* where = nullptr;
  std::uint8_t* moved = nullptr;  ///< move_slots: whether each extent was given.
  std::atomic<bool> cancel{false};
  /// Null, or another cancel flag: that of the operation to which this request belongs.
  const std::atomic<bool>* cancel_with = nullptr;
  /// Set for requests in `Ops`: called in the mover's thread before the request is seen as done.
  void (*before_done)(Request&) = nullptr;
  void* before_context = nullptr;
  /// Called once by the mover, as the last thing it does with the request.
  void (*on_done)(Request&) = nullptr;
  void* context = nullptr;

  // The answer, readable once on_done was called.
  Status status;
  /// for_stream: by space, the ordinal of the last copy that the views need; 0: none is in
  /// progress.
  std::array<std::uint64_t, kMaxSpaces> arrivals{};

  // Used by the mover.
  enum class State : std::uint8_t { posted, room, loading, giving, done } state = State::posted;
  Vector<Need> needs;
  std::uint32_t at = 0;       ///< Its position in the list of active requests.
  std::uint32_t armed = 0;    ///< Needs examined so far.
  std::uint32_t pending = 0;  ///< Examined needs that are not ready yet.
  /// release_memory: bytes of extents that have left the device, and bytes given back to its
  /// driver.
  std::array<std::uint64_t, kMaxSpaces> bytes_left{}, bytes_given{};
  bool collecting = false;  ///< Head of the room queue: its needs are held.
  bool was_there = false;   ///< A touch: the page was resident at admission.
  bool last_look = false;   ///< No victim and no pin were seen: one more search decides.
  /// A gather that has failed, and waits for its reads to the program's memory.
  bool ending = false;
  bool short_of_room = false;    ///< Waited for frames: decides how a missed deadline is reported.
  std::int64_t admitted_ns = 0;  ///< When the mover first saw it.
  Request* next = nullptr;       ///< In the queue of posts.
};

}  // namespace tiermem
