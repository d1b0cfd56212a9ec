// One loop over descriptors: a signalfd, one for processes that join, and a pidfd for each process
// in the run.
#include "cli/run_child.hpp"
#include "cli/terminal.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "base/results.hpp"
#include "base/shown.hpp"

namespace tiermem::cli {
namespace {

constexpr int kFirstLookMs = 200, kBetweenLooksMs = 1000;
constexpr int kExecMissing = 127;  // As in shells.
constexpr int kExecRefused = 126;

sigset_t watched_signals() {
  sigset_t set;
  must(sigemptyset(&set));
  for (const int signal :
       {SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGTSTP}) {
    must(sigaddset(&set, signal));
  }
  return set;
}

[[noreturn]] void exec_child(const ChildOptions& options, const sigset_t& mask) {
  must(sigprocmask(SIG_SETMASK, &mask, nullptr));
  for (const auto& [name, value] : options.environment) {
    if (setenv(name.c_str(), value.c_str(), 1) != 0) {
      std::perror("tiermem run: cannot set the program's environment");
      _exit(kExecRefused);  // Without it the program would not be tiered.
    }
  }
  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  say(fmt::format("tiermem: {}: {}\n", shown(options.arguments[0]), std::strerror(error)));
  _exit(error == ENOENT ? kExecMissing : kExecRefused);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      best_effort(::close(fd_), "the descriptor is gone in any case");
    }
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Turns the page's futex into a descriptor: a thread waits for the futex and writes to the
/// descriptor.
class Changes {
 public:
  explicit Changes(RunHost& host)
      : host_(host), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { watch(); }) {}
  ~Changes() {
    stop_.store(true);
    host_.notify();
    thread_.join();
  }
  int fd() const { return event_.get(); }
  void clear() const {
    std::uint64_t count = 0;
    (void)!::read(event_.get(), &count, sizeof(count));
  }

 private:
  void watch() {
    for (std::uint32_t seen = host_.generation(); !stop_.load();) {
      const std::uint64_t one = 1;
      (void)!::write(event_.get(), &one, sizeof(one));
      seen = host_.wait_for_change(seen);
    }
  }

  RunHost& host_;
  Descriptor event_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// A pidfd for each process in the run. It is readable when the process has ended.
class Mourner {
 public:
  explicit Mourner(RunHost& host) : host_(host) {}

  void look_for_new() {
    std::vector<RunProcess> all(kRunRows);
    all.resize(host_.processes(all));
    for (const RunProcess& process : all) {
      const bool known = std::any_of(watched_.begin(), watched_.end(),
                                     [&](const Watched& one) { return one.pid == process.pid; });
      if (process.live && !known) {
        Descriptor fd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
        if (fd.get() >= 0) {
          watched_.push_back({process.pid, std::move(fd)});
        } else {
          host_.settle();  // The process has ended already, or there are no descriptors left.
        }
      }
    }
  }
  void add_to(std::vector<pollfd>& polled) const {
    for (const Watched& one : watched_) {
      polled.push_back({one.fd.get(), POLLIN, 0});
    }
  }
  /// `polled` are the entries that add_to() added.
  void forget_ended(const pollfd* polled) {
    const std::size_t before = watched_.size();
    std::erase_if(watched_,
                  [&, i = 0](const Watched&) mutable { return polled[i++].revents != 0; });
    if (watched_.size() != before) {
      host_.settle();
    }
  }

 private:
  struct Watched {
    std::uint32_t pid;
    Descriptor fd;
  };
  RunHost& host_;
  std::vector<Watched> watched_;
};

/// Tracks the state changes of the program that concern this process.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}

  bool ended() const { return ended_; }
  int status() const { return status_; }

  void take(const signalfd_siginfo& signal) {
    const auto number = static_cast<int>(signal.ssi_signo);
    if (number == SIGCHLD) {
      reap();
    } else if (signal.ssi_code <= 0) {  // The signal comes from a process. Signals of the kernel
                                        // reach the program directly, because it is in the same
                                        // foreground group.
      best_effort(kill(pid_, number), "the program may have ended");
    }
  }

 private:
  void reap() {
    int status = 0;
    while (!ended_ && waitpid(pid_, &status, WNOHANG | WUNTRACED) == pid_) {
      if (!WIFSTOPPED(status)) {
        ended_ = true;
        status_ = status;
      } else if (const int by = WSTOPSIG(status); by == SIGTSTP || by == SIGTTIN || by == SIGTTOU) {
        // The shell waits for this process to stop; SIGCONT continues both. A program stopped by
        // SIGSTOP is left to the process that stopped it.
        best_effort(raise(SIGSTOP), "it goes on without stopping");
        best_effort(kill(pid_, SIGCONT), "the program may have ended");
      }
    }
  }

  const pid_t pid_;
  bool ended_ = false;
  int status_ = 0;
};

int supervise(pid_t pid, int signals, const ChildOptions& options, RunHost& host) {
  Child child(pid);
  Changes changes(host);
  Mourner mourner(host);
  using Clock = std::chrono::steady_clock;
  auto next_look = Clock::now() + std::chrono::milliseconds(kFirstLookMs);
  while (!child.ended()) {
    std::vector<pollfd> polled = {
        {signals, POLLIN, 0}, {changes.fd(), POLLIN, 0}, {options.broker, POLLIN, 0}};
    mourner.add_to(polled);
    const auto until_look = std::chrono::ceil<std::chrono::milliseconds>(next_look - Clock::now());
    const int wait_ms = options.look
                            ? static_cast<int>(std::max<std::int64_t>(0, until_look.count()))
                            : options.tick_ms;
    const bool ticks = options.tick_ms >= 0 && options.tick_ms <= wait_ms;
    const int ready = poll(polled.data(), polled.size(), ticks ? options.tick_ms : wait_ms);
    if (ready < 0) {
      continue;  // EINTR: this process was stopped and continued.
    }
    for (signalfd_siginfo signal{}; read(signals, &signal, sizeof(signal)) == sizeof(signal);) {
      child.take(signal);
    }
    mourner.forget_ended(polled.data() + 3);
    if (polled[2].revents != 0) {
      options.serve();
    }
    if (polled[1].revents != 0) {
      changes.clear();
      mourner.look_for_new();
    }
    if (ready == 0 && options.tick && ticks) {
      options.tick();
    }
    if (const auto begin = Clock::now(); options.look && begin >= next_look) {
      options.look(pid);
      const auto end = Clock::now();
      constexpr int kPart = 100;  // Looking takes at most a hundredth of the time.
      next_look = end + std::max<Clock::duration>(std::chrono::milliseconds(kBetweenLooksMs),
                                                  kPart * (end - begin));
    }
  }
  return child.status();
}

}  // namespace

Result<int> run_child(const ChildOptions& options, RunHost& host) {
  const sigset_t watched = watched_signals();
  sigset_t before;
  must(sigprocmask(SIG_BLOCK, &watched, &before));
  const Descriptor signals(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  const pid_t pid = signals.get() < 0 ? -1 : fork();
  if (pid < 0) {
    const int error = errno;
    must(sigprocmask(SIG_SETMASK, &before, nullptr));
    return fail_native(Code::io_error, error, "cannot start a process: {}", std::strerror(error));
  }
  if (pid == 0) {
    exec_child(options, before);
  }
  const int status = supervise(pid, signals.get(), options, host);
  must(sigprocmask(SIG_SETMASK, &before, nullptr));
  host.settle();
  return status;
}

int end_as(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    // The program has already written its own core; this one is useless.
    best_effort(prctl(PR_SET_DUMPABLE, 0), "one core too many");
    best_effort(::signal(signal, SIG_DFL), "SIGKILL and SIGSTOP have no handler");
    sigset_t only;
    must(sigemptyset(&only));
    must(sigaddset(&only, signal));
    must(sigprocmask(SIG_UNBLOCK, &only, nullptr));
    best_effort(raise(signal), "the status says it, too");
  }
  return shell_status(status);
}

int shell_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace tiermem::cli
