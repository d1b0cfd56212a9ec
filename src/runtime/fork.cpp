// The handlers of fork, and how a context continues in parent and child. Runs on the forking
// thread.
#include "runtime/fork.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/arena.hpp"
#include "base/arena_reserve.hpp"
#include "base/error.hpp"
#include "base/immortal.hpp"
#include "base/kept_descriptors.hpp"
#include "base/large_stack.hpp"
#include "base/log.hpp"
#include "base/no_signals.hpp"
#include "base/results.hpp"
#include "heap/magazines.hpp"
#include "os/touch_trap.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {
namespace {

// A device that hangs must not hang fork. After this time the child has no context.
constexpr std::int64_t kMostRestNs = 10'000'000'000;
constexpr std::int64_t kLookForChildrenNs = 100'000'000;

// All live contexts. Locked during a fork, so that the child sees a complete list.
constinit std::mutex g_contexts_mutex;
constinit Immortal<Vector<Context::Impl*>> g_contexts;
constinit std::atomic<std::uint64_t> g_forks_behind{0};

// While movers stand still for a fork, a handler of the program that touched absent memory would
// wait for ever, and a cancellation would leave them standing. Guarded by g_contexts_mutex.
Interruptions g_interruptions;
// Where the child continues. It exists before the fork: what the child maps first could come to lie
// at addresses of views, which are closed again. Guarded by g_contexts_mutex.
constinit Immortal<std::optional<LargeStack>> g_childs_stack;

}  // namespace

// ---- Standing still ----------------------------------------------------------------------------

void StandStill::ask() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
}

bool StandStill::wait_until(std::int64_t deadline_ns) {
  // steady_clock is CLOCK_MONOTONIC here.
  const auto deadline =
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns));
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return standing_; });
}

void StandStill::end() {
  {
    const std::lock_guard lock(mutex_);
    asked_ = false;
  }
  changed_.notify_all();
}

void StandStill::follow_fork() {
  // Threads that waited do not exist here: neither object can be used or destroyed.
  new (&mutex_) std::mutex;
  new (&changed_) std::condition_variable;
  asked_ = standing_ = false;
}

bool StandStill::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

void StandStill::stand() {
  std::unique_lock lock(mutex_);
  standing_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !asked_; });
  standing_ = false;
}

// ---- Handlers ----------------------------------------------------------------------------------

bool register_fork_handlers() {
  static const bool registered = [] {
    log_follow_forks();
    return ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
  }();
  return registered;
}

void before_fork() {
  const ArenaScope inside;
  const ReserveScope reserve;
  const Interruptions held = Interruptions::hold();
  g_contexts_mutex.lock();
  g_interruptions = held;
  if (!g_contexts->empty()) {
    g_childs_stack->emplace();
  }
  for (Context::Impl* impl : *g_contexts) {
    impl->before_fork();
  }
  // After all movers stand still, because a mover empties magazines, and before the locks of the
  // heaps, because blocks go from magazines to heaps.
  heap::Magazines::before_fork();
  for (Context::Impl* impl : *g_contexts) {
    impl->hold_heaps();
  }
  LiveViews::before_fork();
  TouchTrap::before_fork();
  arena_before_fork();
}

void after_fork_in_parent() {
  const ArenaScope inside;
  const ReserveScope reserve;
  arena_after_fork();
  TouchTrap::after_fork();
  LiveViews::after_fork();
  heap::Magazines::after_fork();
  for (Context::Impl* impl : *g_contexts) {
    impl->after_fork_in_parent();
  }
  g_childs_stack->reset();
  const Interruptions held = g_interruptions;
  g_contexts_mutex.unlock();
  held.allow();
}

std::uint64_t forks_behind() noexcept {
  // Relaxed: it changes before any other thread of this process exists.
  return g_forks_behind.load(std::memory_order_relaxed);
}

void after_fork_in_child() {
  const ArenaScope inside;
  const ReserveScope reserve;
  g_forks_behind.fetch_add(1, std::memory_order_relaxed);
  kept_descriptors_follow_fork();
  arena_after_fork();
  TouchTrap::after_fork();
  LiveViews::after_fork_in_child();
  LiveViews::after_fork();
  heap::Magazines::after_fork_in_child();
  heap::Magazines::after_fork();
  if (std::optional<LargeStack>& stack = *g_childs_stack; stack.has_value()) {
    stack->run([] {
      const BeyondLimit descriptors;
      std::erase_if(*g_contexts, [](Context::Impl* impl) { return !impl->after_fork_in_child(); });
    });
    stack.reset();
  }
  const Interruptions held = g_interruptions;
  g_contexts_mutex.unlock();
  held.allow();
}

void Context::Impl::enlist() {
  const std::lock_guard lock(g_contexts_mutex);
  g_contexts->push_back(this);
}

// Must not run while a fork waits for the mover.
void Context::Impl::order_stop() {
  const std::lock_guard lock(g_contexts_mutex);
  stop_.store(true, std::memory_order_release);
}

void Context::Impl::delist() {
  const std::lock_guard lock(g_contexts_mutex);
  std::erase(*g_contexts, this);
}

// ---- A context ---------------------------------------------------------------------------------

void Context::Impl::before_fork() {
  held_ = config.fork == Fork::follow && open();
  follows_ = false;
  if (!held_) {
    return;
  }
  still_.ask();
  port_->wake();
  bool stands = still_.wait_until(now_ns() + kMostRestNs);
  if (stands && !mover_->can_follow_fork()) {
    stands = false;
    log_error(
        "fork: this context has followed {} forks, which is the maximum: the child has no context; "
        "create a new context",
        SharedSlots::kMostForks);
  } else if (!stands) {
    log_error("fork: transfers did not end in {} s: the child has no context; create a new context",
              kMostRestNs / 1'000'000'000);
  }
  gate_.close();
  errands_->before_fork();  // Before the operations: an errand begins one.
  copy_errands_->before_fork();
  ops.before_fork();
  if (stands) {
    reap_children();  // Each child costs a descriptor.
    bool has_room = true;
    try {
      children_.reserve(children_.size() + 1);  // The handlers after the fork must not fail.
    } catch (const std::bad_alloc&) {
      has_room = false;
      errno = ENOMEM;
    }
    const BeyondLimit descriptors;
    follows_ = has_room && ::pipe2(lifeline_, O_CLOEXEC) == 0;
    if (follows_) {
      lifeline_[0] = keep_descriptor(lifeline_[0]);
      lifeline_[1] = keep_descriptor(lifeline_[1]);
    }
    if (!follows_) {
      log_error(
          "fork: cannot create a pipe and a record for the child ({}): the child has no context; "
          "create a new context",
          std::strerror(errno));
    }
  }
}

void Context::Impl::hold_heaps() {
  if (held_) {
    placed.before_fork();
  }
}

void Context::Impl::after_fork_in_parent() {
  if (!held_) {
    return;
  }
  host_space_->note_fork();
  if (follows_) {
    close_kept(lifeline_[1]);
    children_.push_back({lifeline_[0], mover_->parent_of_child()});
  }
  placed.after_fork();
  ops.after_fork();
  copy_errands_->after_fork();
  errands_->after_fork();
  gate_.open();
  still_.end();
  port_->wake();  // It may have gone to sleep with requests that it did not accept at rest.
}

// A child that has ended, or runs another program, reads no slots any more: the other end of its
// pipe is closed.
void Context::Impl::reap_children() {
  std::erase_if(children_, [this](const Child& child) {
    pollfd end{child.lifeline, POLLIN, 0};
    if (::poll(&end, 1, 0) != 1) {
      return false;
    }
    close_kept(child.lifeline);
    mover_->child_ended(child.number);
    return true;
  });
}

std::int64_t Context::Impl::look_after_children(std::int64_t now) {
  if (!mover_->waits_for_child()) {
    return Mover::kNever;
  }
  if (now >= next_look_) {
    reap_children();
    next_look_ = now + kLookForChildrenNs;
  }
  return mover_->waits_for_child() ? next_look_ : Mover::kNever;
}

bool Context::Impl::after_fork_in_child() {
  inspector_.forget();
  // Threads of the parent may have held these locks. No thread of this process does.
  new (&close_mutex_) std::mutex;
  changes_dram_.store(false, std::memory_order_relaxed);
  device_memory.follow_fork();
  if (config.fork == Fork::end) {
    state_.store(State::forked, std::memory_order_release);
    return false;
  }
  // Their receivers belong to the parent, and may not be ready for this process.
  observer_.store(nullptr, std::memory_order_relaxed);
  faults_.on_refusal(nullptr);
  if (held_) {
    gate_.follow_fork();
    placed.after_fork();
    ops.after_fork();
    still_.follow_fork();
    posting_.store(0);
    unmarked_calls.store(0);
  }
  if (config.log != LogLevel::off) {
    (void)log_open(config.log, config.log_file);
  }
  Status status =
      fail(Code::unavailable, "fork: the parent could not prepare it; create a new context");
  if (follows_) {
    try {
      status = follow_fork();
    } catch (const std::exception& error) {
      status = fail(Code::no_capacity, "{}", error.what());
    }
  }
  if (!status.ok()) {
    log_error("fork: this child has no context, and a touch of its mapped buffers is SIGSEGV: {}",
              status.message());
    state_.store(State::forked, std::memory_order_release);
    host_space_->close_windows();
    for (const int end : lifelines_) {
      close_kept(end);
    }
    lifelines_.clear();
    return false;
  }
  placed.recover();
  if (const Status seen = start_inspector(); !seen.ok()) {
    log_warn("fork: this child cannot answer `tiermem why`: {}", seen.message());
  }
  return true;
}

Status Context::Impl::follow_fork() {
  for (const Child& sibling : children_) {
    close_kept(sibling.lifeline);
  }
  children_.clear();
  close_kept(lifeline_[0]);
  lifelines_.push_back(lifeline_[1]);

  if (Status status = host_space_->follow_fork(); !status.ok()) {
    return status;
  }
  host_space_->note_fork();
  ops.follow_fork();  // Before operations end here.
  errands_->follow_fork();
  copy_errands_->follow_fork();
  placed.leave_to_parent();
  // Before any thread starts: a new thread may get the stack that holds the request of an ended
  // thread.
  mover_->child_of_parent();
  mover_->rest(false);
  host_space_->forget_free_pages();
  assert(mover_->check_invariants() == "");

  std::vector<std::unique_ptr<BlockFile>> files = port_->leave();
  const std::string why_none = add_own_files(files);
  std::string reason;
  auto port = make_io_port(std::move(files), port_options(), reason);
  if (port == nullptr) {
    return fail(Code::unavailable, "{}", reason);
  }
  port_ = std::move(port);
  lanes_->change_port(*port_);
  files_->follow_fork();
  for (const std::unique_ptr<BlockTier>& block : blocks_) {
    block->follow_fork(why_none.c_str());
  }
  if (!workers_->follow_fork()) {
    return fail(Code::unavailable,
                "fork: no thread can be created (RLIMIT_NPROC or pids.max); raise the limit");
  }
  new (&mover_thread_) std::thread;
  new (&fault_thread_) std::thread;
  halt_poll_.forget();
  return start_threads();
}

// The parent's files remain readable. Returns an empty text, or the reason why there is no file to
// write to.
std::string Context::Impl::add_own_files(std::vector<std::unique_ptr<BlockFile>>& files) {
  if (config.block.empty()) {
    return {};
  }
  std::string why;
  if (files.size() + config.block.size() + config.slow.size() > SlotAllocator::kMostDevices) {
    why = fmt::format(
        "this child cannot have files of its own, because it already reads {} files of its "
        "ancestors",
        files.size());
  } else {
    unsigned number = 0;
    for (const std::vector<BlockFileOptions>& tier : file_options()) {
      for (const BlockFileOptions& options : tier) {
        auto file = BlockFile::open(options);  // Refuses a raw device, because the parent has it.
        if (file.ok()) {
          files.push_back(std::move(file).value());
          lanes_->give_devices(number, 1);
        } else {
          why = file.message();
          log_warn("fork: {}", why);
        }
      }
      ++number;
    }
  }
  return why;
}

}  // namespace tiermem
