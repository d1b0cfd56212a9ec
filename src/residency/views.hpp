// The live views of a context: who holds what, since when. Makes a second release an error instead
// of somebody else's lost pin, and lets messages name the holder.
//
// Each thread fills slots of its own chunk, so taking one is four plain stores. A release may come
// from any thread: it checks and clears the slot's sequence number. Two threads that release the
// same view in the same instant may both pass that check; the pin count is the second line
// (ExtentWord::unpin_*).
//
// The token of a view says twice what is held: as the pins to drop, so that a release need not wait
// for the slot to know which word to change, and as the slot's life, which must agree before
// anything is changed. A life carries the tag of its context, so a token of another context never
// agrees.
//
// A thread's chunks are in its record (thread_record.hpp), which gives them back when it ends.
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

/// What a view pins, in one word: first extent, number of extents, space, and whether it writes.
struct HeldRun {
  std::uint64_t bits = 0;

  static constexpr std::uint32_t kMaxCount = 1u << 28;
  static HeldRun of(ExtentRef first, std::uint32_t count, unsigned space, bool writes) noexcept {
    return {first | std::uint64_t{count} << 32 | std::uint64_t{space} << 61 |
            std::uint64_t{writes} << 63};
  }
  ExtentRef first() const noexcept { return static_cast<ExtentRef>(bits); }
  std::uint32_t count() const noexcept {
    return static_cast<std::uint32_t>(bits >> 32) & (kMaxCount - 1);
  }
  unsigned space() const noexcept { return static_cast<unsigned>(bits >> 61) & 3; }
  bool writes() const noexcept { return bits >> 63 != 0; }
};
static_assert(kMaxSpaces <= 4);

struct ViewSlot {
  /// Tag, count of uses, kHeld, index of the slot; 0 before the first use. Written by its holder,
  /// freed by anyone.
  std::atomic<std::uint64_t> life{0};
  // Written before the life has kHeld, read while it has. Atomics because `walk` looks from
  // outside.
  std::atomic<Handle> buffer{0};
  std::atomic<std::uint64_t> run{0};
  std::atomic<std::uint64_t> stamp{0};  ///< Since when and by whom: LiveViews::stamp_of.
};
static_assert(sizeof(ViewSlot) == 32);

class LiveViews {
 public:
  struct Holder {
    Handle buffer;
    std::int64_t since_ns;  ///< To a millisecond; a thread's view may say the time of one of the
                            ///< fifteen before it.
    std::int32_t thread;    ///< As the kernel numbers it.
    std::uint32_t extents;
    unsigned space;
  };
  static constexpr std::uint32_t kMaxViews = 1u << 22;
  static constexpr std::uint32_t kChunk = 64;  ///< Slots that a thread takes at a time.

  /// `tag`: of the context.
  explicit LiveViews(std::uint64_t tag);
  ~LiveViews();
  LiveViews(const LiveViews&) = delete;
  LiveViews& operator=(const LiveViews&) = delete;

  /// Records a view and fills its token. The calling thread's own slots: no lock but for the first
  /// time and when all its slots are held. `thread`: for whom, when the caller works for another.
  /// False when kMaxViews are held, or there is no memory to note one more.
  [[gnu::always_inline]] bool add(ViewRecord& view, Handle buffer, HeldRun run,
                                  std::int32_t thread = 0) {
    std::uint32_t index = t_mine.next;
    if (t_mine.context != id_ || !is_free(index)) [[unlikely]] {
      if (!turn_to_free()) {
        return false;
      }
      index = t_mine.next;
    }
    t_mine.next = (index & ~(kChunk - 1)) | ((index + 1) & (kChunk - 1));
    // The clock costs more than all the rest: it is read for every sixteenth view.
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
    view.token[0] = life;
    view.token[1] = run.bits;
    return true;
  }

  /// Ends a view; false if it is not one of ours or was ended before.
  [[gnu::always_inline]] bool end(const ViewRecord& view, HeldRun& run) noexcept {
    const std::uint64_t token = view.token[0];
    ViewSlot& slot = slots_[token & (kMaxViews - 1)];  // One that was never used has no kHeld.
    run.bits = view.token[1];
    if (slot.life.load(std::memory_order_acquire) != token || (token & kHeld) == 0 ||
        slot.run.load(std::memory_order_relaxed) != run.bits) [[unlikely]] {
      return false;
    }
    slot.life.store(token & ~kHeld, std::memory_order_release);
    return true;
  }
  /// A token that another context gave out, if it is one at all.
  bool is_foreign(const ViewRecord& view) const noexcept {
    return (view.token[0] & kHeld) != 0 && view.token[0] >> kTagShift != held_ >> kTagShift;
  }

  /// Calls `visit(holder)` for every live view, as they are now.
  template <typename Visit>
  void walk(Visit&& visit) {
    const std::uint32_t end = chunks_.load(std::memory_order_acquire) * kChunk;
    for (std::uint32_t index = 0; index < end; ++index) {
      if (!is_free(index)) {
        const ViewSlot& slot = slots_[index];
        const std::uint64_t stamp = slot.stamp.load(std::memory_order_relaxed);
        const HeldRun run{slot.run.load(std::memory_order_relaxed)};
        visit(Holder{slot.buffer.load(std::memory_order_relaxed),
                     static_cast<std::int64_t>(stamp >> kThreadBits) * kNanosPerMilli,
                     static_cast<std::int32_t>(stamp & kMaxThread), run.count(), run.space()});
      }
    }
  }
  std::uint64_t count();
  /// The context has ended: see ReservedArray.
  void release_memory() noexcept { slots_.release_memory(); }

  /// For all contexts, by the thread that forks: nobody is inside meanwhile. A view that another
  /// thread holds stays held in the child.
  static void before_fork() noexcept;
  static void after_fork() noexcept;
  /// Before it, in the child: the other threads' chunks are free.
  static void after_fork_in_child() noexcept;

  /// Slots of the chunks that threads own or may take: how far the slots in use spread.
  std::uint32_t test_slots() const noexcept {
    return chunks_.load(std::memory_order_relaxed) * kChunk;
  }

 private:
  // A life: index of the slot, kHeld, count of uses, tag.
  static constexpr unsigned kIndexBits = 22;
  static_assert(kMaxViews == 1u << kIndexBits);
  static constexpr std::uint64_t kHeld = std::uint64_t{1} << kIndexBits;
  static constexpr unsigned kTagShift = 64 - ContextTag::kBits;
  static constexpr std::uint64_t kUseOne = kHeld << 1;
  static constexpr std::uint64_t kUseMask = (std::uint64_t{1} << kTagShift) - kUseOne;
  static constexpr std::uint32_t kViewsPerStamp = 16;
  static constexpr std::uint32_t kFirstSweep = 16;
  // Threads' numbers are below 2^22 (Linux's PID_MAX_LIMIT); 2^42 milliseconds are 139 years.
  static constexpr unsigned kThreadBits = 22;
  static constexpr std::uint64_t kMaxThread = (std::uint64_t{1} << kThreadBits) - 1;
  static constexpr std::int64_t kNanosPerMilli = 1'000'000;

  // What the common case needs of the calling thread, without the initialisation check of the list
  // of all its chunks: for the context it used last, the slot to be tried next; and the stamp of
  // its next views. Reset when the thread's chunks are given back.
  struct Mine {
    std::uint64_t context;
    std::uint64_t stamp;
    std::uint32_t next;
  };
  static __thread Mine t_mine __attribute__((tls_model("initial-exec")));

  bool is_free(std::uint32_t index) const noexcept {
    // Acquire: whoever freed it has read what it needed of the slot.
    return (slots_[index].life.load(std::memory_order_acquire) & kHeld) == 0;
  }
  static std::uint64_t stamp_of(std::int64_t ns, std::int32_t thread) noexcept {
    return static_cast<std::uint64_t>(ns / kNanosPerMilli) << kThreadBits |
           (static_cast<std::uint64_t>(thread) & kMaxThread);
  }
  static std::int64_t coarse_now_ns() noexcept;
  [[gnu::noinline, gnu::cold]] static void set_stamp() noexcept;
  [[gnu::noinline, gnu::cold]] bool turn_to_free() noexcept;
  bool new_chunk(std::uint32_t& chunk);
  bool take_free_chunk(std::uint32_t& chunk);
  Vector<std::uint32_t>& chunks_of_thread();
  static void thread_ends(void* record) noexcept;
  static void give_back_all(ThreadRecord& record, bool held_up) noexcept;
  static void reclaim_ended() noexcept;

  const std::uint64_t id_;    // Of this context, never reused: keys the threads' caches.
  const std::uint64_t held_;  // What the life of every held slot has: tag and kHeld.
  ReservedArray<ViewSlot> slots_;
  std::atomic<std::uint32_t> chunks_{0};  // Ever given out.
  LiveViews* next_ = nullptr;             // In the list of contexts.
  std::mutex mutex_;
  // Guarded by mutex_.
  Vector<std::uint32_t> free_chunks_;
  std::uint32_t next_sweep_ = kFirstSweep;  // Chunks given out before ended threads are looked for.
};

}  // namespace tiermem
