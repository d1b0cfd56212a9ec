// The spinner.
#include "runtime/halt_poll.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/own_thread.hpp"
#include "base/results.hpp"
#include "os/proc_stat.hpp"

namespace tiermem {
namespace {

constexpr int kPauses = 32;  // Between two reads of the clock.
constexpr std::uint64_t kShortestTurnNs = 100'000;
// A longer gap between two reads of the clock means that another thread ran here.
constexpr std::int64_t kTakenNs = 1'000'000;
constexpr std::int64_t kRestNs = 10'000'000;  // The thread sleeps for this long after that.

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The kernel's struct sched_attr, first version: glibc before 2.41 lacks it.
struct Attributes {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime, deadline, period;
};

// Since Linux 6.12 a thread may ask for short time slices, and then also waits less for each. A
// thread that had spun for 1 ms ended 927 ms after its process called exit (median of 10, beside
// three busy threads on two processors, Linux 6.18), and with short slices 68 ms after.
void ask_for_short_turns() {
  Attributes attributes{};
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0) {
    attributes.size = sizeof attributes;
    attributes.runtime = kShortestTurnNs;
    best_effort(::syscall(SYS_sched_setattr, 0, &attributes, 0),
                "older kernels have no such turns");
  }
}

bool be_idle_class() {
  ask_for_short_turns();
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
    // The context works without it.
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
  if (asleep_.load(std::memory_order_seq_cst) != 0 &&
      now_ns() >= rests_until_.load(std::memory_order_relaxed)) {
    wake();
  }
}

void HaltPoll::wake() {
  asleep_.store(0, std::memory_order_seq_cst);
  asleep_.notify_one();
}

// A thread of the idle class ends only when the scheduler gives it a processor, and its process
// waits for that: up to 4.5 s beside busy threads. The thread therefore joins the class when it
// first spins, asks for short slices, and sleeps as soon as another thread has taken its processor.
void HaltPoll::run() {
  bool idle_class = false;
  int at = -1;
  std::int64_t looked = 0;  // The last read of the clock while spinning; 0: it slept.
  while (!stop_.load(std::memory_order_relaxed)) {
    const std::int64_t now = now_ns();
    if (looked != 0 && now - looked > kTakenNs) {
      rests_until_.store(now + kRestNs, std::memory_order_relaxed);
    }
    if (spins(now)) {
      if (!idle_class && !be_idle_class()) {
        return;
      }
      idle_class = true;
      if (const int to = processor_.load(std::memory_order_relaxed); to != at) {
        pin_to(to);
        at = to;
      }
      looked = now;
      for (int i = 0; i < kPauses; ++i) {
        pause_processor();
      }
      continue;
    }
    looked = 0;
    // Either this thread sees the new time, or the caller that set it sees that this thread sleeps.
    asleep_.store(1, std::memory_order_seq_cst);
    if (!spins(now_ns()) && !stop_.load(std::memory_order_seq_cst)) {
      asleep_.wait(1);
    } else {
      asleep_.store(0, std::memory_order_relaxed);
    }
  }
}

bool HaltPoll::spins(std::int64_t now) const {
  return now < until_.load(std::memory_order_seq_cst) &&
         now >= rests_until_.load(std::memory_order_relaxed);
}

}  // namespace tiermem
