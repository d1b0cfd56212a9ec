// Threads of tiermem are known by their names. The others are counted by looking: programs create
// threads in many ways, and this is needed only after the first thread has ended.
#include "preload/last_thread.hpp"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/arena.hpp"
#include "base/own_thread.hpp"
#include "base/results.hpp"
#include "os/proc_stat.hpp"

namespace tiermem::preload {
namespace {

constexpr std::int64_t kKernelsOwn = 0x10 | 0x4000;  // PF_IO_WORKER, PF_USER_WORKER.

/// Whether the thread does not keep the process alive: it is tiermem's or the kernel's, or has
/// ended.
bool does_not_count(const char* thread) {
  char path[64];
  (void)std::snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread);
  const ProcStat stat(path);
  if (!stat.found()) {
    return true;
  }
  return stat.state() == 'Z' || stat.state() == 'X' ||
         (stat.number(ProcStat::kFlags) & kKernelsOwn) != 0 || is_own_name(stat.name());
}

/// Whether no thread of the program is left, except the calling one.
bool is_last() {
  DIR* const threads = ::opendir("/proc/self/task");
  if (threads == nullptr) {
    return false;
  }
  char self[24];
  (void)std::snprintf(self, sizeof self, "%d", static_cast<int>(::gettid()));
  std::int64_t seen = 0;
  bool last = true;
  for (const dirent* entry = ::readdir(threads); entry != nullptr && last;
       entry = ::readdir(threads)) {
    if (entry->d_name[0] != '.') {
      ++seen;
      last = std::strcmp(entry->d_name, self) == 0 || does_not_count(entry->d_name);
    }
  }
  best_effort(::closedir(threads), "the descriptor is gone in any case");
  // A thread that was created while we looked may not have been listed.
  return last && ProcStat("/proc/self/stat").number(ProcStat::kThreads) <= seen;
}

void* wait_for_others(void* mask) {
  {
    const ArenaScope inside;
    constexpr long kLeastNs = 1'000'000, kMostNs = 50'000'000;
    for (long pause = kLeastNs; !is_last(); pause = std::min(pause * 2, kMostNs)) {
      const timespec time{.tv_sec = 0, .tv_nsec = pause};
      best_effort(::nanosleep(&time, nullptr), "a shorter pause will do");
    }
  }
  auto* const before = static_cast<sigset_t*>(mask);
  must(::pthread_sigmask(SIG_SETMASK, before, nullptr));
  ::exit(0);
}

// Runs in the first thread after pthread_exit(), or after it returned from its function; not after
// exit(). This thread must not wait: it still has locks and stacks that others wait for.
void first_thread_ends(void*) {
  static constinit sigset_t before;
  sigset_t all;
  must(::sigfillset(&all));
  must(::pthread_sigmask(SIG_SETMASK, &all, &before));
  pthread_t watcher{};
  if (::pthread_create(&watcher, nullptr, wait_for_others, &before) == 0) {
    must(::pthread_detach(watcher));
  }
  must(::pthread_sigmask(SIG_SETMASK, &before, nullptr));
}

}  // namespace

void watch_first_thread() noexcept {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    return ::pthread_key_create(&made, first_thread_ends) == 0 ? made : ~pthread_key_t{0};
  }();
  best_effort(::pthread_setspecific(key, &key), "libc then waits for tiermem's threads, too");
}

}  // namespace tiermem::preload
