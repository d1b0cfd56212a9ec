// The end of a context: its threads and memory go at once, its records a little later. Runs on the
// thread that ends it.
//
// A late thread may still read the Impl itself and the arrays of Residency. The hit path marks
// nothing, so the end cannot wait for a thread that was preempted in the middle of a hit. That
// thread's reads, and its one or two atomic adds, go to memory that stays mapped and that no other
// context uses, until kKept more contexts have ended.
#include <unistd.h>

#include <array>
#include <new>
#include <thread>
#include <utility>

#include "base/arena.hpp"
#include "base/results.hpp"
#include "os/asymmetric_fence.hpp"
#include "os/host_memory.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/in_call.hpp"

namespace tiermem {
namespace {

constexpr std::size_t kKept = 8;
// If address space is limited, the next context needs that of the last one.
constexpr std::size_t kKeptWhereLimited = 1;
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 46;

// Without locks, because a child of fork may end contexts.
constinit std::atomic<Context::Impl*> g_tombstone{nullptr};
constinit std::array<std::atomic<Context::Impl*>, kKept> g_buried{};
constinit std::atomic<std::size_t> g_next_grave{0};

}  // namespace

Context::Impl* Context::Impl::tombstone() noexcept {
  return g_tombstone.load(std::memory_order_acquire);
}

bool Context::Impl::make_tombstone() {
  if (tombstone() != nullptr) {
    return true;
  }
  prepare_fences();
  try {
    std::unique_ptr<Impl> made(new Impl(Config{}, 1, 1));
    made->state_.store(State::tombstone, std::memory_order_relaxed);
    Impl* none = nullptr;
    // Release: a thread that finds the pointer sees the whole object.
    if (g_tombstone.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel)) {
      (void)made.release();  // It lives for ever.
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void Context::Impl::bury(Impl* impl) noexcept {
  if (impl->is_tombstone()) {
    return;  // Two threads destroyed one context; the other one ends it.
  }
  if (!impl->forked()) {
    (void)impl->close(true, Timeout::seconds(10));  // Ends everything that its callers wait for.
    CallMark::await_none(*impl);
  }
  impl->end();
  impl->residency.release_memory();
  const std::size_t graves = host::address_space_limit() >= kUnlimited ? kKept : kKeptWhereLimited;
  std::atomic<Impl*>& grave = g_buried[g_next_grave.fetch_add(1) % graves];
  delete grave.exchange(impl);
}

bool Context::Impl::forget_buried() noexcept {
  bool any = false;
  for (std::atomic<Impl*>& grave : g_buried) {
    Impl* const impl = grave.exchange(nullptr);
    any = any || impl != nullptr;
    delete impl;
  }
  return any;
}

// For a context that was not buried because creating it failed.
Context::Impl::~Impl() {
  end();
}

void Context::Impl::end() {
  if (mover_ == nullptr && port_ == nullptr && host_space_ == nullptr) {
    return;  // Ended before, or never built.
  }
  if (state_.load(std::memory_order_acquire) == State::forked) {
    // Threads, ring and userfaultfd belong to the parent, and its memory is shared. Nothing here
    // may be touched, and the handlers of fork no longer know this context. The records of the
    // threads may name threads of this process by now.
    new (&mover_thread_) std::thread;
    new (&fault_thread_) std::thread;
    halt_poll_.forget();
    (void)errands_.release();
    (void)copy_errands_.release();
    (void)host_space_.release();
    for (std::unique_ptr<GpuTier>& gpu : gpus_) {
      (void)gpu.release();
    }
    (void)port_.release();
    (void)direct_.release();
    (void)workers_.release();
    (void)mover_.release();
    for (std::unique_ptr<BlockTier>& block : blocks_) {
      (void)block.release();
    }
    (void)compressed_.release();
    (void)files_.release();
    (void)lanes_.release();
    return;
  }
  best_effort(close(true, Timeout::seconds(10)), "the descriptor is gone in any case");
  placed.close();  // A call may have made a heap during close().
  stop();
  delist();
  (void)await_releases(Request::kForever);  // Memory that a kernel still uses must not be freed.
  errands_.reset();
  copy_errands_.reset();
  ops.end_queues();
  // Users before the things they use: transfers into frames must end before the frames go.
  workers_.reset();
  direct_.reset();
  mover_.reset();
  blocks_.clear();
  compressed_.reset();
  files_.reset();
  port_.reset();
  lanes_.reset();
  row_cache_.reset();
  gpus_.clear();
  host_space_.reset();
  for (const Child& child : children_) {
    best_effort(::close(child.lifeline), "it was only read");
  }
  children_.clear();
  for (const int end : lifelines_) {
    best_effort(::close(end), "nothing was written to it");
  }
  lifelines_.clear();
}

// The mover waits for something that a caller has just released. The caller may be on the unmarked
// hit path, so the call is counted here, where the port is used.
void Context::Impl::wake() noexcept {
  const NoCancel until_woken;
  unmarked_calls.fetch_add(1, std::memory_order_seq_cst);
  if (state_.load(std::memory_order_seq_cst) <= State::closing) {
    port_->wake();
  }
  unmarked_calls.fetch_sub(1, std::memory_order_release);
}

}  // namespace tiermem
