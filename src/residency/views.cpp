// Slots of live views, a chunk of them for each thread.
#include "residency/views.hpp"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace tiermem {
namespace {

std::mutex g_contexts_mutex;
std::vector<std::pair<std::uint64_t, LiveViews*>> g_contexts;  // Those alive; guarded by the mutex.
std::atomic<std::uint64_t> g_next_id{1};

// What one thread has of one context.
struct Mine {
  std::uint64_t context = 0;
  std::vector<LiveViews::Chunk*> chunks;  // The first is tried first.
};

struct ThreadViews {
  std::vector<Mine> mine;

  ~ThreadViews() {
    std::lock_guard lock(g_contexts_mutex);
    for (const Mine& m : mine) {
      for (const auto& [id, views] : g_contexts) {
        if (id == m.context) {
          views->give_back(m.chunks);
        }
      }
    }
  }
  Mine& of(std::uint64_t context) {
    for (Mine& m : mine) {
      if (m.context == context) {
        return m;
      }
    }
    return mine.emplace_back(Mine{context, {}});
  }
};

thread_local ThreadViews t_views;

// What the common case needs, without the initialisation check of t_views and in one instruction each:
// the context used last and its first chunk.
struct Last {
  std::uint64_t context;
  LiveViews::Chunk* chunk;
  std::int32_t thread;
};
__thread Last t_last __attribute__((tls_model("initial-exec"))) = {0, nullptr, 0};

// Milliseconds are exact enough for the age of a view, and this clock costs a third of the exact one.
std::int64_t coarse_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

ViewSlot* free_slot(LiveViews::Chunk& chunk) {
  for (std::uint32_t i = 0; i < LiveViews::kSlots; ++i) {
    ViewSlot& slot = chunk.slots[chunk.cursor++ % LiveViews::kSlots];
    // Acquire: whoever freed it has read what it needed of the slot.
    if ((slot.sequence.load(std::memory_order_acquire) & 1) == 0) {
      return &slot;
    }
  }
  return nullptr;
}

}  // namespace

LiveViews::LiveViews() : id_(g_next_id.fetch_add(1)), by_number_(kMaxChunks) {
  std::lock_guard lock(g_contexts_mutex);
  g_contexts.emplace_back(id_, this);
}

LiveViews::~LiveViews() {
  std::lock_guard lock(g_contexts_mutex);
  std::erase_if(g_contexts, [&](const auto& entry) { return entry.second == this; });
}

LiveViews::Chunk& LiveViews::new_chunk() {
  std::lock_guard lock(mutex_);
  if (!free_chunks_.empty()) {
    Chunk* chunk = free_chunks_.back();
    free_chunks_.pop_back();
    return *chunk;
  }
  const auto number = static_cast<std::uint32_t>(chunks_.size());
  if (number == kMaxChunks) {
    throw std::bad_alloc();  // Four million views held at once.
  }
  chunks_.push_back(std::make_unique<Chunk>());
  chunks_.back()->number = number;
  by_number_[number].store(chunks_.back().get(), std::memory_order_release);
  chunk_count_.store(number + 1, std::memory_order_release);
  return *chunks_.back();
}

void LiveViews::give_back(const std::vector<Chunk*>& chunks) {
  std::lock_guard lock(mutex_);
  free_chunks_.insert(free_chunks_.end(), chunks.begin(), chunks.end());
}

// The slow half of add(): this thread's chunks of this context, and a new one when all slots are held.
ViewSlot* LiveViews::find_slot() {
  auto& chunks = t_views.of(id_).chunks;
  ViewSlot* slot = nullptr;
  for (auto chunk = chunks.begin(); slot == nullptr && chunk != chunks.end(); ++chunk) {
    slot = free_slot(**chunk);
    t_last.chunk = *chunk;
  }
  // A chunk of an ended thread may still be full of views that others hold.
  while (slot == nullptr) {
    chunks.push_back(&new_chunk());
    t_last.chunk = chunks.back();
    slot = free_slot(*t_last.chunk);
  }
  t_last.context = id_;
  t_last.thread = static_cast<std::int32_t>(::syscall(SYS_gettid));
  return slot;
}

void LiveViews::add(ViewRecord& view, Handle buffer, const Held& held) {
  ViewSlot* slot = t_last.context == id_ ? free_slot(*t_last.chunk) : nullptr;
  if (slot == nullptr) [[unlikely]] {
    slot = find_slot();
  }
  Chunk& chunk = *t_last.chunk;
  slot->buffer.store(buffer, std::memory_order_relaxed);
  slot->first.store(held.first, std::memory_order_relaxed);
  slot->count.store(held.count, std::memory_order_relaxed);
  slot->since_ns.store(coarse_now_ns(), std::memory_order_relaxed);
  slot->thread.store(t_last.thread, std::memory_order_relaxed);
  slot->space.store(held.space, std::memory_order_relaxed);
  slot->writes.store(held.writes, std::memory_order_relaxed);
  const std::uint64_t sequence = chunk.next_sequence;
  chunk.next_sequence += 2;
  slot->sequence.store(sequence, std::memory_order_release);
  view.token[0] = std::uint64_t{chunk.number} << 32 | static_cast<std::uint32_t>(slot - chunk.slots);
  view.token[1] = sequence;
}

bool LiveViews::end(const ViewRecord& view, Held& held) {
  const auto number = static_cast<std::uint32_t>(view.token[0] >> 32);
  const auto index = static_cast<std::uint32_t>(view.token[0]);
  const std::uint64_t sequence = view.token[1];
  if (number >= chunk_count_.load(std::memory_order_acquire) || index >= kSlots || (sequence & 1) == 0) {
    return false;
  }
  ViewSlot& slot = by_number_[number].load(std::memory_order_acquire)->slots[index];
  if (slot.sequence.load(std::memory_order_acquire) != sequence) {
    return false;
  }
  held = {slot.first.load(std::memory_order_relaxed), slot.count.load(std::memory_order_relaxed),
          slot.space.load(std::memory_order_relaxed), slot.writes.load(std::memory_order_relaxed)};
  slot.sequence.store(sequence + 1, std::memory_order_release);
  return true;
}

std::uint64_t LiveViews::count() {
  std::uint64_t n = 0;
  walk([&](const Holder&) { ++n; });
  return n;
}

}  // namespace tiermem
