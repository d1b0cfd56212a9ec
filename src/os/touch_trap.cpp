// The handler and its data: slots that are never freed, so the handler may read them at any time.
#include "os/touch_trap.hpp"

#include <fcntl.h>
#include <linux/futex.h>
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
  struct Range {
    std::atomic<std::uintptr_t> begin{0}, end{0};  // `end` is written last; 0: there is no range.
  };
  std::atomic<int> process{0};           // The process that owns the slot; 0: it is free.
  std::atomic<std::uint32_t> inside{0};  // Number of handlers that use the members below.
  std::array<Range, 64> ranges;
  // Futexes, by page: each wake changes the word. A sleeper that misses exactly 2^32 wakes between
  // its read and its sleep reads again after a second.
  std::array<std::atomic<std::uint32_t>, 64> woken{};
  std::atomic<int> read_end{-1}, write_end{-1};
};

namespace {

struct Touch {  // The record in the pipe, written and read as one unit.
  std::uintptr_t address = 0;
  std::uint32_t thread = 0;
  std::uint32_t write = 0;
};

struct Traps {
  std::array<TouchTrap::Slot, 32> slots;
  std::mutex mutex;        // Guards the assignment of slots, and the installation of the handler.
  bool installed = false;  // Guarded by mutex.
  struct sigaction before {};  // Written before the handler is set.
};
Traps traps;

std::atomic<std::uint32_t>& word_of(TouchTrap::Slot& slot, std::uintptr_t address) {
  return slot.woken[address / 4096 % slot.woken.size()];
}

void futex(std::atomic<std::uint32_t>& word, int call, std::uint32_t value, const timespec* time) {
  best_effort(
      ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), call, value, time, nullptr, 0),
      "the waiting thread looks again");
}

void wake_all(std::atomic<std::uint32_t>& word) {
  word.fetch_add(1);
  futex(word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
}

bool is_write([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  return false;
#endif
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

// Returns true if the thread must repeat its touch. A wake between the touch and the sleep changes
// the word. If no wake comes, the touch is reported again each second.
bool waited(std::uintptr_t address, const void* context) {
  const int process = ::getpid();
  for (TouchTrap::Slot& slot : traps.slots) {
    if (slot.process.load() != process) {
      continue;
    }
    slot.inside.fetch_add(1);
    const bool its = has(slot, address);
    if (its) {
      std::atomic<std::uint32_t>& word = word_of(slot, address);
      const std::uint32_t seen = word.load();
      const Touch touch{address, static_cast<std::uint32_t>(::syscall(SYS_gettid)),
                        is_write(context) ? 1U : 0U};
      const bool told = ::write(slot.write_end.load(), &touch, sizeof(touch)) == sizeof(touch);
      // The pipe is full: other threads wait as well.
      const timespec most = {told ? 1 : 0, told ? 0 : 1'000'000};
      futex(word, FUTEX_WAIT_PRIVATE, seen, &most);
    }
    slot.inside.fetch_sub(1);
    if (its) {
      return true;
    }
  }
  return false;
}

// Acts as if our handler were not installed.
void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = traps.before;
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
  sigset_t mask = before.sa_mask;
  if ((before.sa_flags & SA_NODEFER) == 0) {
    must(sigaddset(&mask, signal));
  }
  sigset_t old;
  must(::pthread_sigmask(SIG_BLOCK, &mask, &old));
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
  must(::pthread_sigmask(SIG_SETMASK, &old, nullptr));
}

void on_touch(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool again =
      info->si_code > 0 && waited(reinterpret_cast<std::uintptr_t>(info->si_addr), context);
  errno = error;
  if (!again) {
    pass_on(signal, info, context);
  }
}

// Requires the mutex. Another SIGSEGV may interrupt the handler, if another signal handler touches
// closed memory while its thread sleeps.
void install() {
  struct sigaction now {};
  must(::sigaction(SIGSEGV, nullptr, &now));
  if (traps.installed) {
    if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != on_touch) {
      log_warn(
          "the program has set a handler of SIGSEGV: mapped buffers work if it calls the one "
          "it found");
    }
    return;
  }
  traps.before = now;
  struct sigaction ours {};
  ours.sa_sigaction = on_touch;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  must(::sigaction(SIGSEGV, &ours, nullptr));
  traps.installed = true;
}

}  // namespace

Result<std::unique_ptr<TouchTrap>> TouchTrap::create() {
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
    slot.process = ::getpid();
    return std::unique_ptr<TouchTrap>(new TouchTrap(slot));
  }
  return fail(Code::no_capacity,
              "userfault: more than {} contexts without userfaultfd; close a context",
              traps.slots.size());
}

TouchTrap::~TouchTrap() {
  for (Slot::Range& range : slot_.ranges) {
    range.end = 0;
  }
  // A handler that is left by a longjmp from another handler never ends; its slot is not reused.
  for (int i = 0; i < 1000 && slot_.inside.load() != 0; ++i) {
    for (std::atomic<std::uint32_t>& word : slot_.woken) {
      wake_all(word);
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
  install();
  for (Slot::Range& range : slot_.ranges) {
    if (range.end.load() == 0) {
      const auto begin = reinterpret_cast<std::uintptr_t>(address);
      range.begin.store(begin, std::memory_order_relaxed);
      range.end.store(begin + bytes, std::memory_order_release);  // Partner of has().
      return {};
    }
  }
  return fail(
      Code::no_capacity,
      "userfault: more than {} ranges of mapped buffers without userfaultfd; free mapped buffers",
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
  wake_all(word_of(slot_, reinterpret_cast<std::uintptr_t>(page)));
}

}  // namespace tiermem
