#include "fault/nth_call.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>

#include "support/pass_descriptor.hpp"

namespace tiermem::test {
namespace {

constexpr int kSkipped = 77;
constexpr unsigned kPatienceSeconds = 60;

/// Installs the filter. Returns the descriptor on which its calls are answered, or -1 with errno.
int listen_to(long number) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return -1;
  }
  return static_cast<int>(
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter));
}

/// Answers calls until no process has the filter any more. Returns true if there was an n-th call.
bool answer_all(int listener, const NthCall& call) {
  unsigned seen = 0;
  for (;;) {
    pollfd waits{listener, POLLIN, 0};
    if (poll(&waits, 1, -1) < 0 && errno == EINTR) {
      continue;
    }
    if ((waits.revents & POLLIN) == 0) {
      return seen >= call.nth;
    }
    seccomp_notif asked{};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) {
      continue;  // The calling thread was killed or interrupted; an interrupted thread asks again.
    }
    seccomp_notif_resp answer{};
    answer.id = asked.id;
    if (++seen == call.nth || (call.for_good && seen > call.nth)) {
      answer.error = -call.error;
    } else {
      answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    }
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

[[noreturn]] void run_child(int socket, const NthCall& call,
                            const std::function<ChildEnd()>& part) {
  alarm(kPatienceSeconds);
  const int listener = listen_to(call.number);
  if (listener < 0) {
    const std::string why = std::string("no filter that asks: ") + std::strerror(errno);
    (void)!write(socket, why.data(), why.size());
    _exit(kSkipped);
  }
  // If this fails, the parent sees that no descriptor arrived.
  (void)send_descriptor(socket, listener);
  char go = 0;
  (void)!read(socket, &go, 1);
  close(listener);
  ChildEnd end;
  try {
    end = part();
  } catch (const std::exception& thrown) {
    // Without this, the child would continue with the next test.
    ADD_FAILURE() << thrown.what();
  }
  const bool failed = ::testing::Test::HasFailure();
  if (!end.ran) {
    (void)!write(socket, end.reason.data(), end.reason.size());
  }
  fflush(nullptr);
  _exit(failed ? 1 : end.ran ? 0 : kSkipped);
}

}  // namespace

NthCallEnd in_child_with(const NthCall& call, const std::function<ChildEnd()>& part) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return {std::strerror(errno)};
  }
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    run_child(ends[1], call, part);
  }
  close(ends[1]);
  NthCallEnd end;
  const int listener = receive_descriptor(ends[0], end.skip);
  if (listener >= 0) {
    (void)!write(ends[0], "g", 1);
    end.failed_one = answer_all(listener, call);
    close(listener);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) {
    char reason[256];
    const ssize_t n = listener < 0 ? 0 : read(ends[0], reason, sizeof(reason));
    end.skip.append(reason, static_cast<std::size_t>(n < 0 ? 0 : n));
    end.skip += end.skip.empty() ? "not possible here" : "";
  } else {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "system call " << call.number << ", the " << call.nth << ". of them failed with "
        << std::strerror(call.error) << ": the child "
        << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "found something wrong");
  }
  close(ends[0]);
  return end;
}

}  // namespace tiermem::test
