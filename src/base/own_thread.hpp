// Threads of tiermem's own.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cassert>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/arena.hpp"
#include "base/arena_reserve.hpp"
#include "base/results.hpp"

namespace tiermem {

/// Whether a thread may use the arena's reserve. Only for a thread that bounds its own allocations.
enum class UsesReserve : bool { no, yes };

/// Whether a thread with this name is one of own_thread(). A program's threads may have such a
/// name, too.
constexpr bool is_own_name(std::string_view name) {
  return name.starts_with("tiermem-");
}

/// Starts a thread that works for tiermem. It receives no signal that is sent to the program, not
/// even while it starts, except SIGBUS and SIGSEGV. These are not blocked: where touches are
/// signals (`userfault=signal`), a thread that copies into a mapped buffer raises them itself. If
/// it blocked them, the kernel would end the process.
///
/// - `name`: up to 15 characters, for which is_own_name(); must stay valid forever.
/// - Errors: throws std::system_error if no thread can be created.
template <UsesReserve kReserve = UsesReserve::yes, typename Body>
std::thread own_thread(const char* name, Body body) {
  struct BlockedSignals {
    BlockedSignals() {
      sigset_t all;
      must(::sigfillset(&all));
      must(::sigdelset(&all, SIGBUS));
      must(::sigdelset(&all, SIGSEGV));
      must(::pthread_sigmask(SIG_SETMASK, &all, &before));
    }
    ~BlockedSignals() { must(::pthread_sigmask(SIG_SETMASK, &before, nullptr)); }
    sigset_t before;
  };
  assert(is_own_name(name));
  const BlockedSignals until_it_runs;
  return std::thread([name, body = std::move(body)]() mutable {
    const ArenaScope inside;
    std::optional<ReserveScope> reserve;
    if (kReserve == UsesReserve::yes) {
      reserve.emplace();
    }
    best_effort(::pthread_setname_np(::pthread_self(), name), "a name for people");
    body();
  });
}

}  // namespace tiermem
