// Owners of rows. The word has 2 bits of state, 22 bits of pid (the kernel's largest), and 40 bits
// of start time in ticks (348 years).
#include "preload/run_owner.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "os/proc_stat.hpp"

namespace tiermem::run {
namespace {

constexpr unsigned kStartBits = 40;
constexpr unsigned kPidBits = 22;
constexpr std::uint64_t kStartMask = (std::uint64_t{1} << kStartBits) - 1;
constexpr std::uint64_t kIdentityMask = (std::uint64_t{1} << (kStartBits + kPidBits)) - 1;

struct StatPath {
  explicit StatPath(std::uint64_t owner) {
    std::snprintf(text, sizeof text, "/proc/%u/stat", pid_of(owner));
  }
  char text[32];
};

std::uint64_t start_of(const ProcStat& stat) {
  return static_cast<std::uint64_t>(stat.number(ProcStat::kStart)) & kStartMask;
}

/// Whether all threads have exited: a main thread may end before the others.
bool has_exited(const ProcStat& stat) {
  return stat.state() == 'X' || (stat.state() == 'Z' && stat.number(ProcStat::kThreads) <= 1);
}

bool is_gone(std::uint64_t owner) {
  const ProcStat stat(StatPath(owner).text);
  if (!stat.found()) {
    // Both must agree: /proc may hide a living process (hidepid, too many open files).
    return ::kill(static_cast<pid_t>(pid_of(owner)), 0) != 0 && errno == ESRCH;
  }
  return has_exited(stat) || start_of(stat) != (owner & kStartMask);
}

}  // namespace

std::uint64_t owned(State state, std::uint64_t identity) {
  return (static_cast<std::uint64_t>(state) << (kStartBits + kPidBits)) |
         (identity & kIdentityMask);
}
State state_of(std::uint64_t owner) {
  return static_cast<State>(owner >> (kStartBits + kPidBits));
}
std::uint32_t pid_of(std::uint64_t owner) {
  return static_cast<std::uint32_t>((owner & kIdentityMask) >> kStartBits);
}
bool has_process(std::uint64_t owner) {
  return state_of(owner) == State::joining || state_of(owner) == State::live;
}
bool is_of(std::uint64_t owner, std::uint64_t identity) {
  return has_process(owner) && (owner & kIdentityMask) == identity;
}

std::uint64_t own_identity() {
  char pid[16] = {};
  const ssize_t got = ::readlink("/proc/self", pid, sizeof(pid) - 1);
  const ProcStat stat("/proc/self/stat");
  if (got <= 0 || !stat.found()) {
    return 0;
  }
  return owned(State::unused, (std::strtoull(pid, nullptr, 10) << kStartBits) | start_of(stat));
}

std::uint64_t identity_of(std::uint32_t pid) {
  const std::uint64_t owner = std::uint64_t{pid} << kStartBits;
  const ProcStat stat(StatPath(owner).text);
  return stat.found() ? owned(State::unused, owner | start_of(stat)) : 0;
}

Row* claim(RunPage& page, std::uint64_t identity) {
  for (const State wanted : {State::unused, State::ended}) {
    for (Row& row : page.rows) {
      std::uint64_t owner = row.owner.load();
      if (state_of(owner) == wanted &&
          row.owner.compare_exchange_strong(owner, owned(State::joining, identity))) {
        return &row;
      }
    }
  }
  return nullptr;
}

bool end_row(Row& row, std::uint64_t owner) {
  const std::uint64_t identity = state_of(owner) == State::live ? owner : 0;
  return row.owner.compare_exchange_strong(owner, owned(State::ended, identity));
}

bool end_rows_of_the_dead(RunPage& page) {
  bool any = false;
  for (Row& row : page.rows) {
    const std::uint64_t owner = row.owner.load();
    any |= has_process(owner) && is_gone(owner) && end_row(row, owner);
  }
  return any;
}

Life life_of(std::uint64_t owner) {
  const ProcStat stat(StatPath(owner).text);
  const char state = stat.state();
  return {.found = stat.found(),
          .sleeps = state == 'S' || state == 'T' || state == 't',
          .ticks = static_cast<std::uint64_t>(stat.number(ProcStat::kUserTicks) +
                                              stat.number(ProcStat::kSystemTicks))};
}

}  // namespace tiermem::run
