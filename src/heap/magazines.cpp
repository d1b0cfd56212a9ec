// Binding magazines to threads and heaps, and emptying them.
#include "heap/magazines.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>

#include "heap/heap.hpp"

namespace tiermem::heap {
namespace {

// Constant-initialised and never destroyed: threads may end while the process does.
constinit std::mutex g_mutex;
constinit std::atomic<Magazines*> g_all{nullptr};  // Grows under g_mutex; no object is ever freed.
constinit std::uint64_t g_rounds = 0;              // Guarded by g_mutex: calls that empty.
// The key with the destructor Magazines::thread_ends. Guarded by g_mutex.
constinit pthread_key_t g_key{};
constinit bool g_has_key = false;

// The destructor of the key has run. It may not run again, so the thread has no magazines any more.
__thread bool t_ended __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

__thread Magazines* Magazines::t_first __attribute__((tls_model("initial-exec"))) = nullptr;

// ---- The thread's calls of the heap ------------------------------------------------------------

Magazines::Magazines() noexcept {
  for (unsigned size_class = 0; size_class < kKeptClasses; ++size_class) {
    magazines_[size_class].most = magazine_blocks(size_class);
  }
}

Magazines* Magazines::of_thread(Heap& heap) noexcept {
  for (Magazines* mine = t_first; mine != nullptr; mine = mine->next_of_thread_) {
    const Busy busy(*mine, heap.options_.owner);
    if (busy.may_use() && mine->heap_ == &heap) {
      return mine;
    }
  }
  return t_ended || heap.options_.magazines == 0 ? nullptr : bind(heap);
}

// Returns the thread's object that was shut and not emptied yet, or one of its spare ones.
Magazines* Magazines::spare_of_thread(const Heap& heap) noexcept {
  Magazines* spare = nullptr;
  for (Magazines* mine = t_first; mine != nullptr; mine = mine->next_of_thread_) {
    if (mine->heap_ == &heap) {
      return mine;
    }
    spare = mine->heap_ == nullptr ? mine : spare;
  }
  return spare;
}

Magazines* Magazines::bind(Heap& heap) noexcept {
  const std::lock_guard lock(g_mutex);
  Magazines* mine = spare_of_thread(heap);
  const bool bound = mine != nullptr && mine->heap_ == &heap;
  if (!heap.keeps_ || (!bound && heap.bound_ >= heap.options_.magazines)) {
    return nullptr;
  }
  if (mine == nullptr) {
    if (!g_has_key && ::pthread_key_create(&g_key, thread_ends) != 0) {
      return nullptr;
    }
    g_has_key = true;
    mine = g_all.load(std::memory_order_relaxed);
    while (mine != nullptr && (mine->has_thread_ || mine->heap_ != nullptr)) {
      mine = mine->next_of_all_;
    }
    if (mine == nullptr) {
      try {
        mine = new Magazines;
      } catch (const std::bad_alloc&) {
        return nullptr;
      }
      mine->next_of_all_ = g_all.load(std::memory_order_relaxed);
      g_all.store(mine, std::memory_order_release);
    }
    // Without it the thread's end would go unnoticed.
    if (::pthread_setspecific(g_key, mine) != 0) {
      return nullptr;
    }
    mine->has_thread_ = true;
    mine->next_of_thread_ = t_first;
    t_first = mine;
  }
  if (!bound) {
    ++heap.bound_;
    mine->uses_ = heap.options_.uses;
    mine->table_ = &heap.table_;
    mine->heap_ = &heap;
  }
  mine->shut_by_ = 0;
  mine->owner_.store(heap.options_.owner, std::memory_order_release);
  return mine;
}

void Magazines::fill(Batch& batch, unsigned size_class, const void* owner) noexcept {
  const Busy busy(*this, owner);
  Magazine& magazine = magazines_[size_class];
  if (!busy.may_use()) {
    return;
  }
  const std::uint32_t n = magazine.n.load(std::memory_order_relaxed);
  const std::uint32_t moved = std::min(batch.n, magazine.most - n);
  batch.n -= moved;
  std::copy_n(batch.blocks.begin() + batch.n, moved, magazine.blocks.begin() + n);
  magazine.n.store(n + moved, std::memory_order_relaxed);
}

// The half that stays is the one that was put in last: its memory is more likely in a cache.
void Magazines::keep(const KeptBlock& block, unsigned size_class, const void* owner,
                     Batch& batch) noexcept {
  const Busy busy(*this, owner);
  if (!busy.may_use()) {
    batch.add(block);
    return;
  }
  Magazine& magazine = magazines_[size_class];
  std::uint32_t n = magazine.n.load(std::memory_order_relaxed);
  if (n == magazine.most) {
    const std::uint32_t half = n - n / 2;
    std::copy_n(magazine.blocks.begin(), half, batch.blocks.begin() + batch.n);
    batch.n += half;
    std::copy(magazine.blocks.begin() + half, magazine.blocks.begin() + n, magazine.blocks.begin());
    n -= half;
  }
  magazine.blocks[n] = block;
  magazine.n.store(n + 1, std::memory_order_relaxed);
}

// ---- Emptying ----------------------------------------------------------------------------------

// Requires g_mutex.
void Magazines::shut(std::uint64_t round) noexcept {
  owner_.store(nullptr, std::memory_order_relaxed);  // The heavy fence follows.
  shut_by_ = round;
}

// Requires g_mutex.
bool Magazines::is_shut_by(std::uint64_t round, const Heap& heap) const noexcept {
  return heap_ == &heap && shut_by_ == round;
}

bool Magazines::await_not_busy(std::int64_t& patience_ns) const noexcept {
  constexpr auto kNap = std::chrono::microseconds(50);
  while (busy_.load(std::memory_order_acquire)) {
    if (patience_ns == 0) {
      return false;
    }
    std::this_thread::sleep_for(kNap);
    if (patience_ns != kNoLimit) {
      patience_ns -= std::min(patience_ns, std::int64_t{std::chrono::nanoseconds(kNap).count()});
    }
  }
  return true;
}

// The mutex is not held while blocks go back: that may call the source.
bool Magazines::empty(Heap& heap, std::uint64_t round) noexcept {
  bool gave = false;
  for (Magazine& magazine : magazines_) {
    Batch batch;
    {
      const std::lock_guard lock(g_mutex);
      if (!is_shut_by(round, heap)) {
        return gave;
      }
      batch.n = magazine.n.load(std::memory_order_relaxed);
      std::copy_n(magazine.blocks.begin(), batch.n, batch.blocks.begin());
      magazine.n.store(0, std::memory_order_relaxed);
    }
    gave = heap.put_back(batch) || gave;
  }
  const std::lock_guard lock(g_mutex);
  if (is_shut_by(round, heap)) {
    heap_ = nullptr;
    --heap.bound_;
  }
  return gave;
}

bool Magazines::empty_all(Heap& heap, std::int64_t patience_ns) noexcept {
  std::uint64_t round = 0;
  bool any = false;
  {
    const std::lock_guard lock(g_mutex);
    round = ++g_rounds;
    for (Magazines* at = g_all.load(); at != nullptr; at = at->next_of_all_) {
      if (at->heap_ == &heap) {
        at->shut(round);
        any = true;
      }
    }
  }
  if (!any) {
    return false;
  }
  heavy_fence();
  bool gave = false;
  for (Magazines* at = g_all.load(std::memory_order_acquire); at != nullptr;
       at = at->next_of_all_) {
    {
      const std::lock_guard lock(g_mutex);
      if (!at->is_shut_by(round, heap)) {
        continue;
      }
    }
    if (at->await_not_busy(patience_ns)) {
      gave = at->empty(heap, round) || gave;
    }
  }
  return gave;
}

void Magazines::allow(Heap& heap, bool on) noexcept {
  const std::lock_guard lock(g_mutex);
  heap.keeps_ = on;
}

// [its thread, at its end] The program's own destructors may use the heap after this one.
void Magazines::thread_ends(void* first) noexcept {
  const ArenaScope inside;
  t_ended = true;
  t_first = nullptr;
  for (Magazines* at = static_cast<Magazines*>(first); at != nullptr;) {
    Heap* heap = nullptr;
    std::uint64_t round = 0;
    {
      const std::lock_guard lock(g_mutex);
      heap = at->heap_;
      if (heap != nullptr) {
        round = ++g_rounds;
        at->shut(round);
        ++heap->ending_;  // The heap waits for it before it ends.
      }
    }
    if (heap != nullptr) {
      (void)at->empty(*heap, round);
    }
    const std::lock_guard lock(g_mutex);
    if (heap != nullptr) {
      --heap->ending_;
    }
    at->has_thread_ = false;
    at = std::exchange(at->next_of_thread_, nullptr);
  }
}

void Magazines::await_ending(const Heap& heap) noexcept {
  for (;;) {
    {
      const std::lock_guard lock(g_mutex);
      if (heap.ending_ == 0) {
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::uint64_t Magazines::bytes_in(const Heap& heap) noexcept {
  const std::lock_guard lock(g_mutex);
  std::uint64_t bytes = 0;
  for (const Magazines* at = g_all.load(); at != nullptr; at = at->next_of_all_) {
    for (unsigned size_class = 0; at->heap_ == &heap && size_class < kKeptClasses; ++size_class) {
      bytes += std::uint64_t{at->magazines_[size_class].n.load(std::memory_order_relaxed)} *
               class_bytes(size_class);
    }
  }
  return bytes;
}

// ---- Forks -------------------------------------------------------------------------------------

void Magazines::before_fork() noexcept {
  g_mutex.lock();
}

void Magazines::after_fork() noexcept {
  g_mutex.unlock();
}

// The other threads, which may have been busy, do not exist here.
void Magazines::after_fork_in_child() noexcept {
  for (Magazines* at = g_all.load(); at != nullptr; at = at->next_of_all_) {
    at->owner_.store(nullptr, std::memory_order_relaxed);
    at->busy_.store(false, std::memory_order_relaxed);
    at->shut_by_ = 0;
    at->has_thread_ = false;
    if (at->heap_ != nullptr) {
      at->heap_->bound_ = 0;
      at->heap_->ending_ = 0;
      at->heap_ = nullptr;
    }
    for (Magazine& magazine : at->magazines_) {
      magazine.n.store(0, std::memory_order_relaxed);
    }
  }
  for (Magazines* mine = t_first; mine != nullptr; mine = mine->next_of_thread_) {
    mine->has_thread_ = true;
  }
}

}  // namespace tiermem::heap
