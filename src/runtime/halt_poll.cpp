// The spinner.
#include "runtime/halt_poll.hpp"

#include <sched.h>

#include <new>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/own_thread.hpp"
#include "base/results.hpp"
#include "os/proc_stat.hpp"

namespace tiermem {
namespace {

constexpr int kPauses = 32;  // Between two looks at the clock.

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool be_idle_class() {
  const sched_param none{};
  return ::sched_setscheduler(0, SCHED_IDLE, &none) == 0;
}

void pin_to(int processor) {
  if (processor < 0 || processor >= CPU_SETSIZE) {
    return;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(processor), &one);
  best_effort(::sched_setaffinity(0, sizeof one, &one),
              "a processor that is not ours to use: the thread stays where it is");
}

}  // namespace

int processor_of(std::uint32_t thread) {
  char path[48];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/self/task/{}/stat", thread).out = '\0';
  return static_cast<int>(ProcStat(path).number(ProcStat::kProcessor));
}

void HaltPoll::start() {
  try {
    thread_ = own_thread("tiermem-poll", [this] { run(); });
  } catch (const std::system_error&) {
    // Everything works without.
  }
}

void HaltPoll::stop() {
  if (thread_.joinable()) {
    stop_.store(true, std::memory_order_seq_cst);
    wake();
    thread_.join();
  }
}

void HaltPoll::forget() {
  new (this) HaltPoll;
}

void HaltPoll::spin_until(std::int64_t until) {
  until_.store(until, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) != 0) {
    wake();
  }
}

void HaltPoll::wake() {
  asleep_.store(0, std::memory_order_seq_cst);
  asleep_.notify_one();
}

void HaltPoll::run() {
  // A thread of the idle class ends only when a processor has time for it, and its process with it:
  // beside busy threads each exit took 0.2 s. So the thread joins the class when it first spins.
  bool idle_class = false;
  int at = -1;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (now_ns() < until_.load(std::memory_order_relaxed)) {
      if (!idle_class && !be_idle_class()) {
        return;
      }
      idle_class = true;
      if (const int to = processor_.load(std::memory_order_relaxed); to != at) {
        pin_to(to);
        at = to;
      }
      for (int i = 0; i < kPauses; ++i) {
        pause_processor();
      }
      continue;
    }
    // Either this sees the new time, or whoever set it sees that this sleeps.
    asleep_.store(1, std::memory_order_seq_cst);
    if (now_ns() >= until_.load(std::memory_order_seq_cst) &&
        !stop_.load(std::memory_order_seq_cst)) {
      asleep_.wait(1);
    } else {
      asleep_.store(0, std::memory_order_relaxed);
    }
  }
}

}  // namespace tiermem
