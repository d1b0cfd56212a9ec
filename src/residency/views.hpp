// The live views of a context: who holds what, since when. Makes a second release an error instead of
// somebody else's lost pin, and lets messages name the holder.
//
// Each thread fills slots of its own chunk, so taking one is a few plain stores. A release may come from any
// thread: it checks and clears the slot's sequence number. Two threads that release the same view in the
// same instant may both pass that check; the pin count is the second line (ExtentWord::unpin_*).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "residency/extents.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

struct alignas(64) ViewSlot {
  std::atomic<std::uint64_t> sequence{0};  ///< Odd while the view is held. Written by its holder, freed by anyone.
  // Written before the sequence turns odd, read while it is odd. Atomics because `walk` looks from outside.
  std::atomic<Handle> buffer{0};
  std::atomic<ExtentRef> first{0};
  std::atomic<std::uint32_t> count{0};
  std::atomic<std::int64_t> since_ns{0};
  std::atomic<std::int32_t> thread{0};
  std::atomic<std::uint8_t> space{0};
  std::atomic<bool> writes{false};
};

class LiveViews {
 public:
  struct Held {
    ExtentRef first;
    std::uint32_t count;
    std::uint8_t space;
    bool writes;
  };
  struct Holder {
    Handle buffer;
    std::int64_t since_ns;
    std::int32_t thread;
    std::uint32_t extents;
  };

  LiveViews();
  ~LiveViews();
  LiveViews(const LiveViews&) = delete;
  LiveViews& operator=(const LiveViews&) = delete;

  /// Records a view and fills its token. The calling thread's own slots: no lock but for the first time
  /// and when all its slots are held.
  void add(ViewRecord& view, Handle buffer, const Held& held);
  /// Ends a view; false if it is not one of ours or was ended before.
  bool end(const ViewRecord& view, Held& held);
  /// Calls `visit(holder)` for every live view, as they are now.
  template <typename Visit>
  void walk(Visit&& visit) {
    std::lock_guard lock(mutex_);
    for (const auto& chunk : chunks_) {
      for (const ViewSlot& slot : chunk->slots) {
        if ((slot.sequence.load(std::memory_order_acquire) & 1) != 0) {
          visit(Holder{slot.buffer.load(std::memory_order_relaxed), slot.since_ns.load(std::memory_order_relaxed),
                       slot.thread.load(std::memory_order_relaxed), slot.count.load(std::memory_order_relaxed)});
        }
      }
    }
  }
  std::uint64_t count();

  static constexpr std::uint32_t kSlots = 64;
  struct Chunk {
    ViewSlot slots[kSlots];
    std::uint32_t number = 0;
    std::uint32_t cursor = 0;  // Where its owning thread looks first.
    std::uint64_t next_sequence = 1;
  };
  /// Called when a thread ends: its chunks may be used by another.
  void give_back(const std::vector<Chunk*>& chunks);

 private:
  static constexpr std::uint32_t kMaxChunks = 1u << 16;
  Chunk& new_chunk();
  ViewSlot* find_slot();

  const std::uint64_t id_;  // Of this context, never reused: keys the threads' caches.
  std::mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<Chunk*> free_chunks_;
  // For end(), which has only a number: published after the chunk is complete.
  ReservedArray<std::atomic<Chunk*>> by_number_;
  std::atomic<std::uint32_t> chunk_count_{0};
};

}  // namespace tiermem
