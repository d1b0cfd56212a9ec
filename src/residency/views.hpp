// The live views of a context: the holder and the start of each. A second release is an error
// instead of the loss of another view's pin, and messages can name the holder.
//
// Each thread fills slots of its own chunk, so taking a slot is four plain stores. Any thread may
// release: it checks and clears the slot's sequence number. Two threads that release the same view
// at the same instant may both pass this check; the pin count is the second safeguard
// (ExtentWord::unpin_*).
//
// The slot of a view can be its pin (PinnedRun::in_slot, extent_state.hpp). Such a view has changed
// no word, and Residency::count_slot_pins finds it. If two threads release a view at the same
// instant, the later one must not end the next view of the slot. So only the thread that fills the
// slot ends its view by a plain store.
//
// The token of a view identifies the pins twice. It has the pins to drop, so that a release knows
// which word to change without waiting for the slot. It also has the slot's life, which must match
// before anything is changed. A life carries the tag of its context, so a token of another context
// never matches.
//
// A thread's chunks are in its record (thread_record.hpp), which returns them when the thread ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/arena.hpp"
#include "residency/context_tag.hpp"
#include "residency/extents.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

struct ThreadRecord;

/// The pins of a view in one word: first extent, number of extents, whether its slot is the pin,
/// space, and whether it writes.
struct PinnedRun {
  std::uint64_t bits = 0;

  static constexpr std::uint32_t kMaxCount = 1u << 28;
  static PinnedRun of(ExtentRef first, std::uint32_t count, unsigned space, bool writes) noexcept {
    return {first | std::uint64_t{count} << 32 | std::uint64_t{space} << 61 |
            std::uint64_t{writes} << 63};
  }
  ExtentRef first() const noexcept { return static_cast<ExtentRef>(bits); }
  std::uint32_t count() const noexcept {
    return static_cast<std::uint32_t>(bits >> 32) & (kMaxCount - 1);
  }
  unsigned space() const noexcept { return static_cast<unsigned>(bits >> 61) & 3; }
  bool writes() const noexcept { return bits >> 63 != 0; }
  /// Returns whether the slot of the view is its pin, instead of the counts in the words.
  bool in_slot() const noexcept { return (bits & kInSlot) != 0; }
  PinnedRun as_slot() const noexcept { return {bits | kInSlot}; }
  bool overlaps(ExtentRef from, std::uint32_t n) const noexcept {
    return first() < from + n && from < first() + count();
  }

 private:
  static constexpr std::uint64_t kInSlot = std::uint64_t{1} << 60;
};
static_assert(kMaxSpaces <= 4);

struct ViewSlot {
  /// Tag, count of uses, kHeld, index of the slot; 0 before the first use. Written by its holder,
  /// freed by any thread.
  std::atomic<std::uint64_t> life{0};
  // Written before the life has kHeld, read while it has. Atomics because `walk` reads them from
  // other threads.
  std::atomic<Handle> buffer{0};
  std::atomic<std::uint64_t> run{0};
  std::atomic<std::uint64_t> stamp{0};  ///< Start and thread of the view: LiveViews::stamp_of.
};
static_assert(sizeof(ViewSlot) == 32);

class LiveViews {
 public:
  struct Holder {
    Handle buffer;
    /// To the millisecond; a thread's view may carry the time of one of the fifteen before it.
    std::int64_t since_ns;
    std::int32_t thread;  ///< Kernel thread id.
    std::uint32_t extents;
    unsigned space;
  };
  static constexpr std::uint32_t kMaxViews = 1u << 22;
  static constexpr std::uint32_t kChunk = 64;  ///< Number of slots that a thread takes at a time.

  /// `tag`: the tag of the context.
  explicit LiveViews(std::uint64_t tag);
  ~LiveViews();
  LiveViews(const LiveViews&) = delete;
  LiveViews& operator=(const LiveViews&) = delete;

  /// Records a view and fills its token. Uses slots of the calling thread: no lock except for the
  /// first time and when all its slots are held. `thread`: the owner if the caller works for
  /// another thread. Returns false if kMaxViews are held, or if the allocation of a record fails.
  [[gnu::always_inline]] bool add(ViewRecord& view, Handle buffer, PinnedRun run,
                                  std::int32_t thread = 0) {
    const std::uint64_t life = take(buffer, run, thread);
    view.token[0] = life;
    view.token[1] = run.bits;
    return life != 0;
  }
  /// Records a view and returns its life, or 0 as add() returns false.
  [[gnu::always_inline]] std::uint64_t take(Handle buffer, PinnedRun run, std::int32_t thread = 0) {
    std::uint32_t index = t_mine.next;
    if (t_mine.context != id_ || !is_free(index)) [[unlikely]] {
      if (!turn_to_free()) {
        return 0;
      }
      index = t_mine.next;
    }
    t_mine.next = (index & ~(kChunk - 1)) | ((index + 1) & (kChunk - 1));
    // Reading the clock costs more than all other steps, so it is read for every sixteenth view.
    if (index % kViewsPerStamp == 0) [[unlikely]] {
      set_stamp();
    }
    ViewSlot& slot = slots_[index];
    slot.buffer.store(buffer, std::memory_order_relaxed);
    slot.run.store(run.bits, std::memory_order_relaxed);
    slot.stamp.store(thread == 0 ? t_mine.stamp : stamp_of(coarse_now_ns(), thread),
                     std::memory_order_relaxed);
    // The count of uses wraps within its own bits: it never changes the tag.
    const std::uint64_t life =
        ((slot.life.load(std::memory_order_relaxed) + kUseOne) & kUseMask) | held_ | index;
    slot.life.store(life, std::memory_order_release);
    return life;
  }
  /// Ends a view that the calling thread has taken, and has shown to no other thread.
  void undo(std::uint64_t life) noexcept {
    slots_[life & (kMaxViews - 1)].life.store(life & ~kHeld, std::memory_order_release);
  }
  /// Returns whether this is the n-th view of its thread, or a multiple of that, in its chunk.
  static bool is_nth(std::uint64_t life, std::uint32_t n) noexcept {
    return ((life & (kMaxViews - 1)) + 1) % n == 0;
  }

  /// Ends a view. Returns its life, or 0 if it is not from this context or was ended before.
  [[gnu::always_inline]] std::uint64_t end(const ViewRecord& view, PinnedRun& run) noexcept {
    const std::uint64_t token = view.token[0];
    ViewSlot& slot = slots_[token & (kMaxViews - 1)];  // A slot that was never used has no kHeld.
    run.bits = view.token[1];
    if (slot.life.load(std::memory_order_acquire) != token || (token & kHeld) == 0 ||
        slot.run.load(std::memory_order_relaxed) != run.bits) [[unlikely]] {
      return end_left(token, run);
    }
    if (is_mine(static_cast<std::uint32_t>(token) & (kMaxViews - 1))) [[likely]] {
      slot.life.store(token & ~kHeld, std::memory_order_release);
      return token;
    }
    return end_elsewhere(slot, token, run);
  }
  /// Returns whether the view has not ended.
  bool is_held(const ViewRecord& view) const noexcept {
    const std::uint64_t token = view.token[0];
    return (token & kHeld) != 0 && lives(token) &&
           slots_[token & (kMaxViews - 1)].run.load(std::memory_order_relaxed) == view.token[1];
  }
  /// Returns whether another context created this token, if it is a token at all.
  bool is_foreign(const ViewRecord& view) const noexcept {
    return (view.token[0] & kHeld) != 0 && view.token[0] >> kTagShift != held_ >> kTagShift;
  }

  // ---- Pins in slots that become pins that count

  /// For the thread that counts them, one at a time.
  std::unique_lock<std::mutex> lock_counting() { return std::unique_lock(mutex_); }
  /// Calls `visit(life, run)` for every view that is pinned by its slot alone.
  template <typename Visit>
  void each_slot_pin(Visit&& visit) {
    const std::uint32_t end = chunks_.load(std::memory_order_acquire) * kChunk;
    for (std::uint32_t index = 0; index < end; ++index) {
      const ViewSlot& slot = slots_[index];
      const std::uint64_t life = slot.life.load(std::memory_order_acquire);
      const PinnedRun run{slot.run.load(std::memory_order_relaxed)};
      if ((life & kHeld) != 0 && run.in_slot() &&
          counted_[index].load(std::memory_order_relaxed) != life) {
        visit(life, run);
      }
    }
  }
  /// The words count the pins of this view. Its end takes them off. The caller next runs the heavy
  /// half of a fence, and takes them off itself if the view ended before.
  void set_counted(std::uint64_t life) noexcept {
    counted_[life & (kMaxViews - 1)].store(life, std::memory_order_release);
  }
  bool lives(std::uint64_t life) const noexcept {
    return slots_[life & (kMaxViews - 1)].life.load(std::memory_order_acquire) == life;
  }
  /// After the view has ended: returns true, once, if its pins count and are to be taken off.
  bool take_counted(std::uint64_t life) noexcept {
    std::atomic<std::uint64_t>& counted = counted_[life & (kMaxViews - 1)];
    return counted.load(std::memory_order_relaxed) == life &&
           counted.compare_exchange_strong(life, 0, std::memory_order_acq_rel);
  }

  /// Calls `visit(holder)` for every live view, as it is at present.
  template <typename Visit>
  void walk(Visit&& visit) {
    const std::uint32_t end = chunks_.load(std::memory_order_acquire) * kChunk;
    for (std::uint32_t index = 0; index < end; ++index) {
      if (!is_free(index)) {
        const ViewSlot& slot = slots_[index];
        const std::uint64_t stamp = slot.stamp.load(std::memory_order_relaxed);
        const PinnedRun run{slot.run.load(std::memory_order_relaxed)};
        visit(Holder{slot.buffer.load(std::memory_order_relaxed),
                     static_cast<std::int64_t>(stamp >> kThreadBits) * kNanosPerMilli,
                     static_cast<std::int32_t>(stamp & kMaxThread), run.count(), run.space()});
      }
    }
  }
  std::uint64_t count();
  /// For a context that has ended: see ReservedArray.
  void release_memory() noexcept {
    slots_.release_memory();
    counted_.release_memory();
  }

  /// Called for all contexts by the forking thread, while no other thread is inside. A view that
  /// another thread holds stays held in the child.
  static void before_fork() noexcept;
  static void after_fork() noexcept;
  /// Called before it in the child: frees the other threads' chunks.
  static void after_fork_in_child() noexcept;
  /// [child of fork, its only thread] Ends the views of a buffer for which `left(handle)` returns
  /// true: it stays with the parent. The pins of these views have ended. end() of such a view
  /// succeeds once, and returns a run without extents. Throws bad_alloc.
  template <typename Left>
  void leave_to_parent(Left&& left) {
    const std::uint32_t end = chunks_.load(std::memory_order_relaxed) * kChunk;
    for (std::uint32_t index = 0; index < end; ++index) {
      ViewSlot& slot = slots_[index];
      if (!is_free(index) && left(slot.buffer.load(std::memory_order_relaxed))) {
        const std::uint64_t life = slot.life.load(std::memory_order_relaxed);
        left_.insert(life);
        slot.life.store(life & ~kHeld, std::memory_order_relaxed);
        counted_[index].store(0, std::memory_order_relaxed);
      }
    }
    any_left_.store(!left_.empty());
  }

  /// Returns the number of slots in chunks that threads own or may take: how far the slots in use
  /// spread.
  std::uint32_t test_slots() const noexcept {
    return chunks_.load(std::memory_order_relaxed) * kChunk;
  }

 private:
  // A life consists of the index of the slot, kHeld, the count of uses, and the tag.
  static constexpr unsigned kIndexBits = 22;
  static_assert(kMaxViews == 1u << kIndexBits);
  static constexpr std::uint64_t kHeld = std::uint64_t{1} << kIndexBits;
  static constexpr unsigned kTagShift = 64 - ContextTag::kBits;
  static constexpr std::uint64_t kUseOne = kHeld << 1;
  static constexpr std::uint64_t kUseMask = (std::uint64_t{1} << kTagShift) - kUseOne;
  static constexpr std::uint32_t kViewsPerStamp = 16;
  static constexpr std::uint32_t kFirstSweep = 16;
  // Kernel thread ids are below 2^22 (Linux's PID_MAX_LIMIT); 2^42 milliseconds are 139 years.
  static constexpr unsigned kThreadBits = 22;
  static constexpr std::uint64_t kMaxThread = (std::uint64_t{1} << kThreadBits) - 1;
  static constexpr std::int64_t kNanosPerMilli = 1'000'000;

  // The data of the calling thread for the common case, without the initialisation check of the
  // list of all its chunks: for the context that it used last, the slot to try next; and the stamp
  // of its next views. Reset when the thread's chunks are returned.
  struct Mine {
    std::uint64_t context;
    std::uint64_t stamp;
    std::uint32_t next;
  };
  static __thread Mine t_mine __attribute__((tls_model("initial-exec")));

  bool is_free(std::uint32_t index) const noexcept {
    // Acquire: the thread that freed it has finished reading the slot.
    return (slots_[index].life.load(std::memory_order_acquire) & kHeld) == 0;
  }
  /// Returns whether the calling thread fills this slot.
  bool is_mine(std::uint32_t index) const noexcept {
    return t_mine.context == id_ && (index ^ t_mine.next) < kChunk;
  }
  static std::uint64_t stamp_of(std::int64_t ns, std::int32_t thread) noexcept {
    return static_cast<std::uint64_t>(ns / kNanosPerMilli) << kThreadBits |
           (static_cast<std::uint64_t>(thread) & kMaxThread);
  }
  static std::int64_t coarse_now_ns() noexcept;
  [[gnu::noinline, gnu::cold]] static void set_stamp() noexcept;
  [[gnu::noinline, gnu::cold]] bool turn_to_free() noexcept;
  [[gnu::noinline]] std::uint64_t end_elsewhere(ViewSlot& slot, std::uint64_t token,
                                                PinnedRun& run) noexcept;
  [[gnu::noinline, gnu::cold]] std::uint64_t end_left(std::uint64_t token, PinnedRun& run) noexcept;
  bool new_chunk(std::uint32_t& chunk);
  bool take_free_chunk(std::uint32_t& chunk);
  Vector<std::uint32_t>& chunks_of_thread();
  static void thread_ends(void* record) noexcept;
  static void give_back_all(ThreadRecord& record, bool held_up) noexcept;
  static void reclaim_ended() noexcept;

  const std::uint64_t id_;    // Id of this context, never reused: the key of the threads' caches.
  const std::uint64_t held_;  // The part of a life that every held slot shares: tag and kHeld.
  ReservedArray<ViewSlot> slots_;
  /// By slot: the life of its view, if that is pinned by the slot and the words count it, too.
  ReservedArray<std::atomic<std::uint64_t>> counted_;
  std::atomic<std::uint32_t> chunks_{0};  // Number of chunks ever allocated.
  LiveViews* next_ = nullptr;             // Next in the list of contexts.
  // Written under mutex_: left_ is not empty.
  std::atomic<bool> any_left_{false};
  std::mutex mutex_;
  // Guarded by mutex_.
  Vector<std::uint32_t> free_chunks_;
  Set<std::uint64_t> left_;  // The lives of views that were left to the parent of this process.
  // Number of allocated chunks at which the next search for ended threads starts.
  std::uint32_t next_sweep_ = kFirstSweep;
};

}  // namespace tiermem
