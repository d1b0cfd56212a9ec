// Slots of live views, a chunk of them for each thread.
#include "residency/views.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/arena.hpp"

namespace tiermem {
namespace {

std::mutex g_contexts_mutex;
Vector<std::pair<std::uint64_t, LiveViews*>> g_contexts;  // Those alive; guarded by the mutex.
std::atomic<std::uint64_t> g_next_id{1};

// What one thread has of one context.
struct ThreadChunks {
  std::uint64_t context = 0;
  Vector<std::uint32_t> chunks;  // The first is tried first.
};

struct ThreadViews : InArena {
  Vector<ThreadChunks> all;

  ~ThreadViews() {
    const ArenaScope inside;
    std::lock_guard lock(g_contexts_mutex);
    for (const ThreadChunks& mine : all) {
      for (const auto& [id, views] : g_contexts) {
        if (id == mine.context) {
          views->give_back(mine.chunks);
        }
      }
    }
  }
  Vector<std::uint32_t>& of(std::uint64_t context) {
    for (ThreadChunks& mine : all) {
      if (mine.context == context) {
        return mine.chunks;
      }
    }
    // Contexts come and go in a thread's life: what it had of those that have ended goes now.
    const std::lock_guard lock(g_contexts_mutex);
    std::erase_if(all, [](const ThreadChunks& mine) {
      return std::none_of(g_contexts.begin(), g_contexts.end(),
                          [&](const auto& entry) { return entry.first == mine.context; });
    });
    return all.emplace_back(ThreadChunks{context, {}}).chunks;
  }
};

__thread ThreadViews* t_views = nullptr;

// By a key, and not by a destructor of the thread's variable: to note that one down the C library
// takes from malloc, and where that has nothing it ends the process. Of a key beyond the first 32
// it takes, too, but answers: then the chunks of this thread stay with it.
ThreadViews& thread_views() {
  static const pthread_key_t at_end = [] {
    pthread_key_t key{};
    (void)pthread_key_create(&key, [](void* views) {
      t_views = nullptr;
      delete static_cast<ThreadViews*>(views);
    });
    return key;
  }();
  if (t_views == nullptr) {
    t_views = new ThreadViews;
    (void)pthread_setspecific(at_end, t_views);
  }
  return *t_views;
}
__thread std::int32_t t_thread = 0;  // Its number; 0: not asked for yet.

}  // namespace

__thread LiveViews::Mine LiveViews::t_mine __attribute__((tls_model("initial-exec"))) = {0, 0, 0};

LiveViews::LiveViews() : id_(g_next_id.fetch_add(1)), slots_(kMaxViews) {
  std::lock_guard lock(g_contexts_mutex);
  g_contexts.emplace_back(id_, this);
}

LiveViews::~LiveViews() {
  std::lock_guard lock(g_contexts_mutex);
  std::erase_if(g_contexts, [&](const auto& entry) { return entry.second == this; });
}

// Milliseconds are exact enough for the age of a view, and this clock costs a third of the exact
// one.
std::int64_t LiveViews::coarse_now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void LiveViews::before_fork() noexcept {
  g_contexts_mutex.lock();
  for (const auto& [id, views] : g_contexts) {
    views->mutex_.lock();
  }
}

void LiveViews::after_fork() noexcept {
  for (const auto& [id, views] : g_contexts) {
    views->mutex_.unlock();
  }
  g_contexts_mutex.unlock();
}

void LiveViews::after_fork_in_child() noexcept {
  t_thread = 0;  // The only thread here has another number than it had.
}

void LiveViews::set_stamp() noexcept {
  if (t_thread == 0) {
    t_thread = static_cast<std::int32_t>(::syscall(SYS_gettid));
  }
  t_mine.stamp = stamp_of(coarse_now_ns(), t_thread);
}

bool LiveViews::new_chunk(std::uint32_t& chunk) {
  std::lock_guard lock(mutex_);
  if (!free_chunks_.empty()) {
    chunk = free_chunks_.back();
    free_chunks_.pop_back();
    return true;
  }
  chunk = chunks_.load(std::memory_order_relaxed);
  if (chunk == kMaxViews / kChunk || !slots_.commit((chunk + 1) * std::size_t{kChunk})) {
    return false;
  }
  // Relaxed above, as only the holder of the mutex writes it. Release: pairs with walk().
  chunks_.store(chunk + 1, std::memory_order_release);
  return true;
}

void LiveViews::give_back(const Vector<std::uint32_t>& chunks) {
  std::lock_guard lock(mutex_);
  free_chunks_.insert(free_chunks_.end(), chunks.begin(), chunks.end());
}

// Points t_mine.next at a free slot of this thread, in a new chunk when all of its slots are held;
// false if there is none. A chunk of an ended thread may still be full of views that others hold.
bool LiveViews::turn_to_free() noexcept {
  const ArenaScope inside;
  try {
    auto& chunks = thread_views().of(id_);
    for (std::size_t i = 0;; ++i) {
      if (i == chunks.size()) {
        chunks.reserve(i + 1);
        std::uint32_t chunk = 0;
        if (!new_chunk(chunk)) {
          return false;
        }
        chunks.push_back(chunk);
      }
      const std::uint32_t first = chunks[i] * kChunk;
      for (std::uint32_t index = first; index < first + kChunk; ++index) {
        if (is_free(index)) {
          t_mine.context = id_;
          t_mine.next = index;
          set_stamp();
          return true;
        }
      }
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::uint64_t LiveViews::count() {
  std::uint64_t n = 0;
  walk([&](const Holder&) { ++n; });
  return n;
}

}  // namespace tiermem
