// Fork handlers run in reverse order before the fork and in order after it. The program's handlers
// come after ours, also those that its libraries register before our constructor runs. So they may
// use tiered memory. The heap's come after our others: its locks are taken while tiered memory can
// still be touched, and released when it can be again. _Fork, which signal handlers may call, takes
// no lock of the heap (processes.cpp).
#include "preload/start.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/arena.hpp"
#include "base/kept_descriptors.hpp"
#include "base/large_stack.hpp"
#include "base/log.hpp"
#include "base/no_signals.hpp"
#include "base/results.hpp"
#include "base/sanitized.hpp"
#include "os/handed_descriptors.hpp"
#include "os/host_memory.hpp"
#include "preload/device_tiering.hpp"
#include "preload/heap.hpp"
#include "preload/last_thread.hpp"
#include "preload/libc_callers.hpp"
#include "preload/region.hpp"
#include "preload/run_broker.hpp"
#include "preload/share.hpp"
#include "preload/tiering.hpp"
#include "preload/wrap.hpp"
#include "runtime/fork.hpp"

namespace tiermem::preload {
namespace {

constinit std::atomic<bool> g_started{false};
constinit std::atomic<pid_t> g_own{0};

// While a thread forks, its handlers do not run, because they could wait for locks that it holds,
// and it is not cancelled.
thread_local constinit Interruptions t_interruptions{};

constexpr std::uint64_t kArenaBytes = std::size_t{1} << 38;

// Finds out whether the program calls another malloc, from something before us in the link order.
// It calls malloc to find out: in some programs its address is that of a jump.
void check_order() {
  // Without an arena nothing will be tiered. With a sanitizer, its malloc comes first, and only
  // mappings are tiered.
  if (!arena_is_enclosed() || kSanitized) {
    return;
  }
  using Malloc = void* (*)(std::size_t);
  using Free = void (*)(void*);
  const auto theirs = reinterpret_cast<Malloc>(::dlsym(RTLD_DEFAULT, "malloc"));
  const auto give_back = reinterpret_cast<Free>(::dlsym(RTLD_DEFAULT, "free"));
  void* const block = theirs(16);
  const bool is_ours = arena_contains(block);  // This thread is inside tiermem.
  give_back(block);
  if (!is_ours) {
    Dl_info found{};
    const bool known = ::dladdr(reinterpret_cast<void*>(theirs), &found) != 0;
    log_error("malloc: served by {}; put tiermem first in LD_PRELOAD",
              known ? found.dli_fname : "something else");
    stop_tiering("another malloc comes before tiermem's");
  }
}

__attribute__((constructor)) void on_load() {
  const ArenaScope inside;
  start_process();
  check_order();
}

__attribute__((destructor)) void on_exit() {
  end_run();
}

// Programs choose low numbers, for redirections and for inherited descriptors.
void keep_descriptors_out_of_the_way() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    // The program cannot use numbers above the limit, and dup2 refuses them. The kernel's table has
    // room for the highest number.
    constexpr rlim_t kMostBeyond = 1 << 14;
    const bool beyond = limit.rlim_cur <= kMostBeyond && limit.rlim_cur < limit.rlim_max;
    keep_descriptors_above(
        static_cast<int>(beyond ? limit.rlim_cur : std::min<rlim_t>(limit.rlim_cur / 2, 512)));
  }
}

int from_run(Handed what, const char* path, int (&descriptors)[kMostHanded]) {
  const auto kind = what == Handed::scratch_file ? BrokerRequest::What::scratch_file
                                                 : BrokerRequest::What::userfault_device;
  BrokerReply reply;
  if (!ask_broker(::secure_getenv("TIERMEM_RUN_BROKER"), kind, path, reply)) {
    return 0;
  }
  std::copy_n(reply.descriptors, kMostHanded, descriptors);
  return reply.count;
}

}  // namespace

std::size_t arena_bytes_under(std::uint64_t limit) {
  return std::bit_floor(std::min(kArenaBytes, limit / 16));
}

bool in_own_process() {
  const pid_t own = g_own.load(std::memory_order_relaxed);
  return own == 0 || own == ::getpid();
}

bool process_has_started() {
  return g_started.load(std::memory_order_acquire);
}

void start_process() {
  static const bool started = [] {
    const ArenaScope inside;
    (void)arena_enclose(arena_bytes_under(host::address_space_limit()));
    keep_descriptors_out_of_the_way();
    set_descriptor_source(::secure_getenv("TIERMEM_RUN_BROKER") != nullptr ? &from_run : nullptr);
    find_libc();
    find_own_name();
    prepare_wrapping();
    // A fork without the handlers would lose the child's memory.
    must(register_fork_handlers() ? 0 : -1);
    must(::pthread_atfork(before_fork_of_program, after_fork_of_program_in_parent,
                          after_fork_of_program_in_child));
    must(::pthread_atfork(heap_before_fork, heap_after_fork_in_parent, heap_after_fork_in_child));
    watch_first_thread();
    g_own.store(::getpid(), std::memory_order_relaxed);
    g_started.store(true, std::memory_order_release);
    return true;
  }();
  (void)started;
}

void before_fork_of_program() {
  t_interruptions = Interruptions::hold();
  bring_stack(__builtin_frame_address(0));  // Later no thread can bring it in.
  lock_regions();
}

void after_fork_of_program_in_parent() {
  unlock_regions();
  t_interruptions.allow();
}

void after_fork_of_program_in_child() {
  g_own.store(::getpid(), std::memory_order_relaxed);
  follow_fork_with_devices();
  renew_regions_lock();
  if (context() != nullptr) {
    LargeStack().run(rejoin_run_in_child);
  } else {
    rejoin_run_in_child();
  }
  watch_first_thread();
  t_interruptions.allow();
}

}  // namespace tiermem::preload
