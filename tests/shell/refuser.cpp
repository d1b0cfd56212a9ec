// The filter, and the loop that answers its requests.
#include "shell/refuser.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <random>

#include "support/pass_descriptor.hpp"

namespace tiermem::shell {
namespace {

constexpr int kPassed = 0, kFailed = 1, kSkipped = 77;

/// Returns -1 with errno on failure. The filter asks for each of `calls` and allows all others.
int listen_to(const std::vector<Refusable>& calls) {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto to_ask = static_cast<unsigned char>(calls.size() - i);
    program.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(calls[i].number), to_ask, 0));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return -1;
  }
  return static_cast<int>(
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

/// Ends when no process has the filter any more.
void answer_all(int listener, const std::vector<Refusable>& calls, std::uint64_t seed, Page& page) {
  std::mt19937_64 random(seed);
  for (;;) {
    pollfd waits{listener, POLLIN, 0};
    if (::poll(&waits, 1, -1) < 0 && errno == EINTR) {
      continue;
    }
    if ((waits.revents & POLLIN) == 0) {
      return;
    }
    seccomp_notif asked{};
    if (::ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) {
      continue;  // The caller was killed, or a signal interrupted it and it will ask again.
    }
    seccomp_notif_resp answer{};
    answer.id = asked.id;
    answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    for (const Refusable& call : calls) {
      if (call.number == asked.data.nr && page.refuse.load() && random() % call.one_in == 0) {
        answer.flags = 0;
        answer.error = -call.errors[random() % call.errors.size()];
        page.refused.fetch_add(1);
      }
    }
    // Fails if the caller was killed in between; it needs no answer in that case.
    (void)::ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

[[noreturn]] void run_child(int socket, const std::vector<Refusable>& calls, unsigned patience_s,
                            const std::function<bool()>& part) {
  ::alarm(patience_s);
  if (!calls.empty()) {
    const int listener = listen_to(calls);
    char go = 0;
    if (listener < 0 || !test::send_descriptor(socket, listener) || ::read(socket, &go, 1) != 1) {
      ::_exit(kSkipped);
    }
    ::close(listener);
  }
  ::close(socket);
  const bool passed = part();
  std::fflush(nullptr);
  ::_exit(passed ? kPassed : kFailed);
}

}  // namespace

const std::vector<Refusable>& refusables() {
  static const std::vector<Refusable> all = {
      {"preadv", SYS_preadv, {EIO, EINTR, EAGAIN}, 30},
      {"pwritev", SYS_pwritev, {EIO, ENOSPC, EINTR}, 30},
      {"mmap", SYS_mmap, {ENOMEM}, 10},
      {"mremap", SYS_mremap, {ENOMEM}, 10},
      {"mprotect", SYS_mprotect, {ENOMEM}, 10},
      {"madvise", SYS_madvise, {EAGAIN, ENOMEM}, 10},
      {"ioctl", SYS_ioctl, {ENOMEM}, 100},
      {"fallocate", SYS_fallocate, {ENOSPC, EINTR}, 5},
      {"openat", SYS_openat, {EMFILE, EINTR}, 5},
      {"eventfd2", SYS_eventfd2, {EMFILE}, 5},
      {"clone3", SYS_clone3, {EAGAIN}, 5},
      {"io_uring_enter", SYS_io_uring_enter, {EAGAIN, EINTR, EBUSY}, 30},
      {"fstat", SYS_newfstatat, {EIO}, 5},
  };
  return all;
}

ChildResult run_refusing(const std::vector<Refusable>& calls, std::uint64_t seed, Page& page,
                         unsigned patience_s, const std::function<bool()>& part) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return {.how = std::string("socketpair: ") + std::strerror(errno)};
  }
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return {.how = std::string("fork: ") + std::strerror(errno)};
  }
  if (child == 0) {
    ::close(ends[0]);
    run_child(ends[1], calls, patience_s, part);
  }
  ::close(ends[1]);
  if (!calls.empty()) {
    std::string nothing;
    const int listener = test::receive_descriptor(ends[0], nothing);
    if (listener >= 0 && ::write(ends[0], "g", 1) == 1) {
      answer_all(listener, calls, seed, page);
    }
    if (listener >= 0) {
      ::close(listener);
    }
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ChildResult result;
  result.passed = WIFEXITED(status) && WEXITSTATUS(status) == kPassed;
  result.skipped = WIFEXITED(status) && WEXITSTATUS(status) == kSkipped;
  if (!result.passed) {
    result.how = !WIFSIGNALED(status) ? "found a difference"
                 : WTERMSIG(status) == SIGALRM
                     ? "did not end in time"
                     : std::string("died of ") + ::strsignal(WTERMSIG(status));
  }
  return result;
}

}  // namespace tiermem::shell
