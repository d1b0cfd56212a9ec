// Slots of live views, one chunk of them for each thread.
#include "residency/views.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/arena.hpp"
#include "base/results.hpp"
#include "residency/thread_record.hpp"

namespace tiermem {
namespace {

// Constant-initialised and never destroyed: other threads and exit handlers may use it while the
// process ends.
constinit std::mutex g_mutex;
constinit LiveViews* g_contexts = nullptr;                // The live contexts; guarded by g_mutex.
constinit std::atomic<ThreadRecord*> g_threads{nullptr};  // All records; grows under g_mutex.
constinit std::atomic<std::uint64_t> g_next_id{1};

// The key with the destructor LiveViews::thread_ends. A key instead of a destructor of a thread
// variable: to register such a destructor the C library calls malloc, and ends the process if that
// fails. Written under g_mutex, once; kNoKey while the program uses all keys.
constexpr std::uint64_t kNoKey = ~std::uint64_t{0};
constinit std::atomic<std::uint64_t> g_key{kNoKey};

__thread std::int32_t t_thread = 0;  // Its thread id; 0: not queried yet.

}  // namespace

std::int32_t this_thread() noexcept {
  if (t_thread == 0) {
    t_thread = static_cast<std::int32_t>(::syscall(SYS_gettid));
  }
  return t_thread;
}

// ---- Records of threads ------------------------------------------------------------------------

__thread ThreadRecord* ThreadRecord::t_record __attribute__((tls_model("initial-exec"))) = nullptr;

const ThreadRecord* ThreadRecord::first() noexcept {
  return g_threads.load(std::memory_order_acquire);
}

bool ThreadRecord::has_ended() const noexcept {
  const std::int32_t number = thread.load(std::memory_order_relaxed);
  return number == 0 || (::syscall(SYS_tgkill, ::getpid(), number, 0) != 0 && errno == ESRCH);
}

ThreadRecord& ThreadRecord::mine() {
  if (t_record != nullptr) {
    return *t_record;
  }
  const std::int32_t me = this_thread();
  {
    const std::lock_guard lock(g_mutex);
    ThreadRecord* found = nullptr;
    for (ThreadRecord* record = g_threads.load(); record != nullptr; record = record->next) {
      const std::int32_t owner = record->thread.load(std::memory_order_relaxed);
      if (owner == me) {  // It belongs to an ended thread with the same id.
        found = record;
        break;
      }
      found = owner == 0 ? record : found;
    }
    if (found == nullptr) {
      found = new ThreadRecord;
      found->next = g_threads.load();
      g_threads.store(found, std::memory_order_release);
    }
    found->inside.store(nullptr, std::memory_order_relaxed);
    found->thread.store(me, std::memory_order_relaxed);
    t_record = found;
  }
  const std::uint64_t key = g_key.load(std::memory_order_acquire);
  if (key != kNoKey) {
    best_effort(::pthread_setspecific(static_cast<pthread_key_t>(key), t_record),
                "without memory for it the record is found by the thread's number");
  }
  return *t_record;
}

// ---- Views -------------------------------------------------------------------------------------

__thread LiveViews::Mine LiveViews::t_mine __attribute__((tls_model("initial-exec"))) = {0, 0, 0};

LiveViews::LiveViews(std::uint64_t tag)
    : id_(g_next_id.fetch_add(1)),
      held_(tag << kTagShift | kHeld),
      slots_(kMaxViews),
      counted_(kMaxViews) {
  const std::lock_guard lock(g_mutex);
  pthread_key_t key{};
  if (g_key.load(std::memory_order_relaxed) == kNoKey &&
      ::pthread_key_create(&key, thread_ends) == 0) {
    g_key.store(key, std::memory_order_release);
  }
  next_ = g_contexts;
  g_contexts = this;
}

LiveViews::~LiveViews() {
  const std::lock_guard lock(g_mutex);
  LiveViews** link = &g_contexts;
  while (*link != this) {
    link = &(*link)->next_;
  }
  *link = next_;
}

// [its thread, at its end] The program's own destructors may use tiermem after this one. The thread
// then has a record again, and this is called again, up to PTHREAD_DESTRUCTOR_ITERATIONS times.
void LiveViews::thread_ends(void* record) noexcept {
  const ArenaScope inside;
  ThreadRecord::t_record = nullptr;
  t_mine = {0, 0, 0};
  const std::lock_guard lock(g_mutex);
  give_back_all(*static_cast<ThreadRecord*>(record), false);
}

// Requires g_mutex. `held_up`: the caller holds the mutexes of all contexts, too.
void LiveViews::give_back_all(ThreadRecord& record, bool held_up) noexcept {
  for (const ThreadRecord::OfContext& mine : record.chunks) {
    for (LiveViews* views = g_contexts; views != nullptr; views = views->next_) {
      if (views->id_ == mine.context) {
        std::unique_lock lock(views->mutex_, std::defer_lock);
        if (!held_up) {
          lock.lock();
        }
        // The list has room: see new_chunk().
        views->free_chunks_.insert(views->free_chunks_.end(), mine.chunks.begin(),
                                   mine.chunks.end());
      }
    }
  }
  record.chunks.clear();
  record.inside.store(nullptr, std::memory_order_relaxed);
  record.thread.store(0, std::memory_order_relaxed);
}

// Returns the chunks of ended threads if their end was not detected.
void LiveViews::reclaim_ended() noexcept {
  const std::lock_guard lock(g_mutex);
  for (ThreadRecord* record = g_threads.load(); record != nullptr; record = record->next) {
    if (record->thread.load(std::memory_order_relaxed) != 0 && record != ThreadRecord::t_record &&
        record->has_ended()) {
      give_back_all(*record, false);
    }
  }
}

// Returns the chunks that the calling thread has in this context.
Vector<std::uint32_t>& LiveViews::chunks_of_thread() {
  auto& all = ThreadRecord::mine().chunks;
  for (ThreadRecord::OfContext& mine : all) {
    if (mine.context == id_) {
      return mine.chunks;
    }
  }
  // Contexts begin and end during a thread's life: removes its chunks of those that have ended.
  const std::lock_guard lock(g_mutex);
  std::erase_if(all, [](const ThreadRecord::OfContext& mine) {
    const LiveViews* views = g_contexts;
    while (views != nullptr && views->id_ != mine.context) {
      views = views->next_;
    }
    return views == nullptr;
  });
  return all.emplace_back(ThreadRecord::OfContext{id_, {}}).chunks;
}

// Milliseconds are exact enough for the age of a view, and this clock costs a third of the exact
// one.
std::int64_t LiveViews::coarse_now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void LiveViews::before_fork() noexcept {
  g_mutex.lock();
  for (LiveViews* views = g_contexts; views != nullptr; views = views->next_) {
    views->mutex_.lock();
  }
}

void LiveViews::after_fork() noexcept {
  for (LiveViews* views = g_contexts; views != nullptr; views = views->next_) {
    views->mutex_.unlock();
  }
  g_mutex.unlock();
}

void LiveViews::after_fork_in_child() noexcept {
  t_thread = 0;  // The only thread of the child has a new thread id.
  for (ThreadRecord* record = g_threads.load(); record != nullptr; record = record->next) {
    if (record == ThreadRecord::t_record) {
      record->thread.store(this_thread(), std::memory_order_relaxed);
    } else {
      give_back_all(*record, true);
    }
  }
}

void LiveViews::set_stamp() noexcept {
  t_mine.stamp = stamp_of(coarse_now_ns(), this_thread());
}

// The view may be released twice at the same instant, and the owner of the slot may have filled it
// again since: a store would end that view.
std::uint64_t LiveViews::end_elsewhere(ViewSlot& slot, std::uint64_t token,
                                       PinnedRun& run) noexcept {
  std::uint64_t seen = token;
  return slot.life.compare_exchange_strong(seen, token & ~kHeld, std::memory_order_acq_rel)
             ? token
             : end_left(token, run);
}

// The slot may belong to another view by now.
std::uint64_t LiveViews::end_left(std::uint64_t token, PinnedRun& run) noexcept {
  if (!any_left_.load(std::memory_order_relaxed)) {
    return 0;
  }
  const ArenaScope inside;
  const std::lock_guard lock(mutex_);
  run.bits = 0;
  return left_.erase(token) != 0 ? token : 0;
}

bool LiveViews::take_free_chunk(std::uint32_t& chunk) {
  if (free_chunks_.empty()) {
    return false;
  }
  chunk = free_chunks_.back();
  free_chunks_.pop_back();
  return true;
}

bool LiveViews::new_chunk(std::uint32_t& chunk) {
  // Relaxed: only the holder of mutex_ writes it.
  const auto given_out = [this] { return chunks_.load(std::memory_order_relaxed); };
  std::unique_lock lock(mutex_);
  if (take_free_chunk(chunk)) {
    return true;
  }
  if (given_out() >= next_sweep_ || given_out() == kMaxViews / kChunk) {
    lock.unlock();
    reclaim_ended();
    lock.lock();
    // A search that frees at least half of the chunks was worth its calls, so the limit stays.
    if (free_chunks_.size() < given_out() / 2) {
      next_sweep_ = 2 * given_out();
    }
    if (take_free_chunk(chunk)) {
      return true;
    }
  }
  chunk = given_out();
  const std::size_t wanted = (chunk + 1) * std::size_t{kChunk};
  if (chunk == kMaxViews / kChunk || !slots_.commit(wanted) || !counted_.commit(wanted)) {
    return false;
  }
  if (free_chunks_.capacity() <= chunk) {
    // Reserve now, so that the end of a thread allocates nothing.
    free_chunks_.reserve(2 * std::size_t{chunk} + kFirstSweep);
  }
  // Release: pairs with walk().
  chunks_.store(chunk + 1, std::memory_order_release);
  return true;
}

// Points t_mine.next at a free slot of this thread, in a new chunk if all of its slots are held.
// Returns false if there is none. A chunk of an ended thread may still be full of views that other
// threads hold.
bool LiveViews::turn_to_free() noexcept {
  const ArenaScope inside;
  try {
    auto& chunks = chunks_of_thread();
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
