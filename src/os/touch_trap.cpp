// The handler and its data: slots that are never freed, so the handler may read them at any time.
#include "os/touch_trap.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>

#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/log.hpp"
#include "base/results.hpp"
#include "os/userfault.hpp"

namespace tiermem {

struct TouchTrap::Slot {
  static constexpr unsigned kWords = 512;
  struct Range {
    std::atomic<std::uintptr_t> begin{0}, end{0};  // `end` is written last; 0: there is no range.
  };
  std::atomic<int> process{0};           // The process that owns the slot; 0: it is free.
  std::atomic<std::uint32_t> inside{0};  // Number of handlers that use the members below.
  std::array<Range, 64> ranges;
  // Futexes, by page: each wake changes the word. A sleeper that misses exactly 2^32 wakes between
  // its read and its sleep reads again after a second.
  std::array<std::atomic<std::uint32_t>, kWords> woken{};
  // By word: the number of threads that sleep on it, or are about to. A wake of none makes no
  // system call.
  std::array<std::atomic<std::uint32_t>, kWords> sleepers{};
  std::atomic<int> read_end{-1}, write_end{-1};
  std::atomic<Kind> kind{Kind::closed};  // Written before `process`.
  // For a registered trap. `argument` is written before `answer`.
  std::atomic<Answer> answer{nullptr};
  std::atomic<void*> argument{nullptr};
  std::atomic<std::uint32_t> answering{0};  // Number of handlers that may call it.
};

namespace {

struct Touch {  // The record in the pipe, written and read as one unit.
  std::uintptr_t address = 0;
  std::uint32_t thread = 0;
  std::uint32_t write = 0;
};

/// By kind of trap.
struct Handler {
  int signal = 0;
  const char* name = "";
  bool installed = false;      // Guarded by the mutex.
  struct sigaction before {};  // Written before the handler is set.
};

struct Traps {
  std::array<TouchTrap::Slot, 32> slots;
  std::mutex mutex;  // Guards the assignment of slots, and the installation of the handlers.
  std::array<Handler, 2> handlers = {Handler{SIGSEGV, "SIGSEGV"}, Handler{SIGBUS, "SIGBUS"}};
};
Traps traps;

Handler& handler_of(TouchTrap::Kind kind) {
  return traps.handlers[static_cast<std::size_t>(kind)];
}

unsigned word_of(std::uintptr_t address) {
  return address / 4096 % TouchTrap::Slot::kWords;
}

void futex(std::atomic<std::uint32_t>& word, int call, std::uint32_t value, const timespec* time) {
  best_effort(
      ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), call, value, time, nullptr, 0),
      "the waiting thread looks again");
}

// Sequentially consistent, as in sleep(): either the sleeper sees the new word, or this sees it.
void wake_all(TouchTrap::Slot& slot, unsigned number) {
  slot.woken[number].fetch_add(1);
  if (slot.sleepers[number].load() != 0) {
    futex(slot.woken[number], FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
  }
}

void sleep(TouchTrap::Slot& slot, unsigned number, std::uint32_t seen, const timespec& most) {
  slot.sleepers[number].fetch_add(1);
  futex(slot.woken[number], FUTEX_WAIT_PRIVATE, seen, &most);
  slot.sleepers[number].fetch_sub(1);
}

#if defined(__x86_64__)
constexpr bool kTellsWrites = true;
std::uint64_t error_of(const void* context) {
  return static_cast<std::uint64_t>(
      static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR]);
}
#else
constexpr bool kTellsWrites = false;
std::uint64_t error_of(const void*) {
  return 0;
}
#endif

bool is_write(const void* context) {
  return (error_of(context) & 2) != 0;
}

// The page is present, and not writable.
bool is_watched(const void* context) {
  return (error_of(context) & 3) == 3;
}

bool has(const TouchTrap::Slot& slot, std::uintptr_t address) {
  for (const TouchTrap::Slot::Range& range : slot.ranges) {
    // Acquire: partner of the release in add(), so that `begin` belongs to `end`.
    const std::uintptr_t end = range.end.load(std::memory_order_acquire);
    if (address < end && address >= range.begin.load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

// A wake between the touch and the sleep changes the word. If no wake comes, the touch is reported
// again each second.
void report(TouchTrap::Slot& slot, std::uintptr_t address, const void* context) {
  const unsigned number = word_of(address);
  const std::uint32_t seen = slot.woken[number].load();
  const Touch touch{address, static_cast<std::uint32_t>(::syscall(SYS_gettid)),
                    is_write(context) ? 1U : 0U};
  const bool told = ::write(slot.write_end.load(), &touch, sizeof(touch)) == sizeof(touch);
  // The pipe is full: other threads wait as well.
  sleep(slot, number, seen, {told ? 1 : 0, told ? 0 : 1'000'000});
}

// Returns false if the touch is a mistake. After a minute without a wake the touch is made again:
// its device may hang. The program's signals are served while the thread sleeps.
bool answer(TouchTrap::Slot& slot, std::uintptr_t address, const void* context) {
  const unsigned number = word_of(address);
  const std::uint32_t seen = slot.woken[number].load();
  const UserfaultEvent touch{.address = reinterpret_cast<std::byte*>(address),
                             .write = is_write(context),
                             .watched = is_watched(context),
                             .thread = static_cast<std::uint32_t>(::syscall(SYS_gettid))};
  slot.answering.fetch_add(1);
  // Sequentially consistent: answer_by() changes it before it looks at `answering`.
  const TouchTrap::Answer begin = slot.answer.load();
  const bool begun = begin != nullptr && begin(slot.argument.load(), touch);
  slot.answering.fetch_sub(1);
  if (begun && slot.woken[number].load() == seen) {
    must(::pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask,
                           nullptr));
    sleep(slot, number, seen, {60, 0});
  }
  return begun;
}

// Returns true if the thread must repeat its touch.
bool waited(TouchTrap::Kind kind, std::uintptr_t address, const void* context) {
  const int process = ::getpid();
  for (TouchTrap::Slot& slot : traps.slots) {
    if (slot.process.load() != process || slot.kind.load() != kind) {
      continue;
    }
    slot.inside.fetch_add(1);
    const bool its = has(slot, address);
    bool again = its;
    if (its && kind == TouchTrap::Kind::closed) {
      report(slot, address, context);
    } else if (its) {
      again = answer(slot, address, context);
    }
    slot.inside.fetch_sub(1);
    if (its) {
      return again;
    }
  }
  return false;
}

// Acts as if our handler were not installed.
void pass_on(const Handler& handler, siginfo_t* info, void* context) {
  const int signal = handler.signal;
  const struct sigaction& before = handler.before;
  if ((before.sa_flags & SA_SIGINFO) == 0 &&
      (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) {
    if (before.sa_handler == SIG_IGN && info->si_code <= 0) {
      return;  // A process sent the signal.
    }
    struct sigaction end {};
    end.sa_handler = SIG_DFL;
    must(::sigaction(signal, &end, nullptr));
    if (info->si_code <= 0) {
      best_effort(::raise(signal), "the touch is made again, and is the end");
    }
    return;  // The repeated touch ends the process.
  }
  // As the kernel would have set it for that handler. Ours may have more signals blocked.
  sigset_t mask;
  must(::sigorset(&mask, &static_cast<const ucontext_t*>(context)->uc_sigmask, &before.sa_mask));
  if ((before.sa_flags & SA_NODEFER) == 0) {
    must(sigaddset(&mask, signal));
  }
  sigset_t old;
  must(::pthread_sigmask(SIG_SETMASK, &mask, &old));
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
  must(::pthread_sigmask(SIG_SETMASK, &old, nullptr));
}

void on_touch(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const TouchTrap::Kind kind =
      signal == SIGBUS ? TouchTrap::Kind::registered : TouchTrap::Kind::closed;
  // Other reasons of SIGBUS are not touches of absent memory.
  const bool touches =
      kind == TouchTrap::Kind::closed ? info->si_code > 0 : info->si_code == BUS_ADRERR;
  const bool again =
      touches && waited(kind, reinterpret_cast<std::uintptr_t>(info->si_addr), context);
  errno = error;
  if (!again) {
    pass_on(handler_of(kind), info, context);
  }
}

// Requires the mutex. Another signal of the kind may interrupt the handler, if another signal
// handler touches such memory while its thread sleeps. The answer to a touch of registered memory
// needs more stack than an alternate stack may have, and holds locks, so no signal interrupts it.
void install(TouchTrap::Kind kind) {
  Handler& handler = handler_of(kind);
  struct sigaction now {};
  must(::sigaction(handler.signal, nullptr, &now));
  if (handler.installed) {
    if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != on_touch) {
      log_warn(
          "the program has set a handler of {}: mapped buffers work if it calls the one it found",
          handler.name);
    }
    return;
  }
  handler.before = now;
  struct sigaction ours {};
  ours.sa_sigaction = on_touch;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  if (kind == TouchTrap::Kind::closed) {
    ours.sa_flags |= SA_ONSTACK;
  } else {
    must(::sigfillset(&ours.sa_mask));
  }
  must(::sigaction(handler.signal, &ours, nullptr));
  handler.installed = true;
}

}  // namespace

Result<std::unique_ptr<TouchTrap>> TouchTrap::create(Kind kind) {
  if (kind == Kind::registered && !kTellsWrites) {
    return fail(Code::unsupported,
                "userfault=signal: a signal handler on this processor does not learn which touches "
                "write; set userfault=auto");
  }
  const std::lock_guard lock(traps.mutex);
  for (Slot& slot : traps.slots) {
    if (slot.process.load() != 0) {
      continue;
    }
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      return fail_native(Code::no_capacity, errno, "a pipe for touches: {}", std::strerror(errno));
    }
    slot.read_end = keep_descriptor(ends[0]);
    slot.write_end = keep_descriptor(ends[1]);
    slot.kind = kind;
    slot.process = ::getpid();
    return std::unique_ptr<TouchTrap>(new TouchTrap(slot));
  }
  return fail(Code::no_capacity,
              "userfault: more than {} contexts that learn of touches by signals; close a context",
              traps.slots.size());
}

void TouchTrap::forget_ranges() {
  for (Slot::Range& range : slot_.ranges) {
    range.end = 0;
  }
}

void TouchTrap::before_fork() {
  traps.mutex.lock();
}

void TouchTrap::after_fork() {
  traps.mutex.unlock();
}

TouchTrap::~TouchTrap() {
  forget_ranges();
  slot_.answer = nullptr;
  // A handler that is left by a longjmp from another handler never ends; its slot is not reused.
  for (int i = 0; i < 1000 && slot_.inside.load() != 0; ++i) {
    for (unsigned number = 0; number < Slot::kWords; ++number) {
      wake_all(slot_, number);
    }
    const timespec moment = {0, 1'000'000};
    best_effort(::nanosleep(&moment, nullptr), "a shorter nap will do");
  }
  if (slot_.inside.load() != 0) {
    return;
  }
  close_kept(slot_.read_end.exchange(-1));
  close_kept(slot_.write_end.exchange(-1));
  slot_.process = 0;
}

Status TouchTrap::add(const std::byte* address, std::uint64_t bytes) {
  const std::lock_guard lock(traps.mutex);
  install(slot_.kind.load());
  for (Slot::Range& range : slot_.ranges) {
    if (range.end.load() == 0) {
      const auto begin = reinterpret_cast<std::uintptr_t>(address);
      range.begin.store(begin, std::memory_order_relaxed);
      range.end.store(begin + bytes, std::memory_order_release);  // Partner of has().
      return {};
    }
  }
  return fail(Code::no_capacity,
              "userfault: more than {} ranges of buffers with touches that are signals; free "
              "mapped buffers",
              slot_.ranges.size());
}

int TouchTrap::fd() const {
  return slot_.read_end.load();
}

int TouchTrap::read_event(UserfaultEvent& event) const {
  Touch touch;
  const ssize_t got = ::read(fd(), &touch, sizeof(touch));
  if (got < 0) {
    return errno;
  }
  if (got != sizeof(touch)) {
    return EAGAIN;
  }
  event.address = reinterpret_cast<std::byte*>(touch.address);
  event.write = touch.write != 0;
  event.thread = touch.thread;
  return 0;
}

void TouchTrap::wake(const std::byte* page) {
  wake_all(slot_, word_of(reinterpret_cast<std::uintptr_t>(page)));
}

void TouchTrap::answer_by(Answer answer, void* argument) {
  if (answer != nullptr) {
    slot_.argument = argument;
  }
  slot_.answer = answer;
  while (answer == nullptr && slot_.answering.load() != 0) {
    ::sched_yield();
  }
}

}  // namespace tiermem
