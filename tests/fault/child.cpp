// Children of the fault tests. Everything here runs in the test's only thread.
#include "fault/child.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace tiermem::test {
namespace {

constexpr int kSkipped = 77;
constexpr unsigned kPatienceSeconds = 120;  // A child that needs longer counts as hanging.

std::string why(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

std::string wait_text(int status) {
  if (WIFSIGNALED(status)) {
    return std::string("killed by ") + strsignal(WTERMSIG(status));
  }
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

bool write_file(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const bool ok =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) {
    close(fd);
  }
  return ok;
}

}  // namespace

std::string in_child(const std::function<ChildEnd()>& part) {
  int ends[2];
  if (pipe(ends) != 0) {
    ADD_FAILURE() << why("pipe");
    return "";
  }
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    alarm(kPatienceSeconds);
    const ChildEnd end = part();
    const bool failed = ::testing::Test::HasFailure();
    if (!end.ran) {
      (void)!write(ends[1], end.reason.data(), end.reason.size());
    }
    fflush(nullptr);
    _exit(failed ? 1 : end.ran ? 0 : kSkipped);
  }
  close(ends[1]);
  std::string text;
  char part_of_it[256];
  for (ssize_t n = read(ends[0], part_of_it, sizeof(part_of_it)); n > 0;
       n = read(ends[0], part_of_it, sizeof(part_of_it))) {
    text.append(part_of_it, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) {
    return text.empty() ? "not possible here" : text;
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child's part: " << wait_text(status);
  return "";
}

bool kill_in_the_middle(int signal, const std::function<void(const std::function<void()>&)>& part) {
  int ends[2];
  if (pipe(ends) != 0) {
    return false;
  }
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    alarm(kPatienceSeconds);
    part([&] { (void)!write(ends[1], "r", 1); });
    fflush(nullptr);
    _exit(1);  // The child ended before it was killed.
  }
  close(ends[1]);
  char letter = 0;
  const bool under_way = read(ends[0], &letter, 1) == 1;
  close(ends[0]);
  kill(child, signal);
  int status = 0;
  const bool waited = waitpid(child, &status, 0) == child;
  const bool died = waited && WIFSIGNALED(status) && WTERMSIG(status) == signal;
  EXPECT_TRUE(under_way) << "the child never got under way";
  EXPECT_TRUE(died) << "the child's part: " << wait_text(status);
  return under_way && died;
}

bool refuse(const std::vector<Refusal>& refusals) {
  std::vector<sock_filter> program;
  const auto load = [&](unsigned offset) {
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
  };
  for (const Refusal& refusal : refusals) {
    const auto skip = static_cast<unsigned char>(refusal.argument < 0 ? 1 : 3);
    load(offsetof(seccomp_data, nr));
    program.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(refusal.number), 0, skip));
    if (refusal.argument >= 0) {
      // The low half of the argument; this machine is little-endian.
      load(offsetof(seccomp_data, args[1]));
      program.push_back(
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(refusal.argument), 0, 1));
    }
    program.push_back(
        BPF_STMT(BPF_RET | BPF_K,
                 SECCOMP_RET_ERRNO | static_cast<unsigned>(refusal.error & SECCOMP_RET_DATA)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

std::string mount_tmpfs(const std::string& directory, unsigned long bytes) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  // Root uses no user namespace if possible: more kernels allow fewer namespaces.
  if (user != 0 || unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      return why("no namespace to mount in");
    }
    (void)write_file("/proc/self/setgroups", "deny");
    if (!write_file("/proc/self/uid_map", "0 " + std::to_string(user) + " 1") ||
        !write_file("/proc/self/gid_map", "0 " + std::to_string(group) + " 1")) {
      return why("no user in the namespace");
    }
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return why("mounts cannot be made private");
  }
  const std::string options = "mode=1777,size=" + std::to_string(bytes);
  return mount("none", directory.c_str(), "tmpfs", 0, options.c_str()) == 0 ? "" : why("no tmpfs");
}

std::string make_read_only(const std::string& directory) {
  return mount(nullptr, directory.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0
             ? ""
             : why("no remount");
}

std::string become_nobody() {
  constexpr unsigned kNobody = 65534;
  if (geteuid() != 0) {
    return "";
  }
  return setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0
             ? ""
             : why("cannot change to the unprivileged user");
}

}  // namespace tiermem::test
