// A child of fork that reports by its exit code whether a check succeeded. For the thread that
// forks and waits.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "support/sanitizers.hpp"

namespace tiermem::test {

/// [child of fork] Waits until the library's threads have begun: each takes its name first. A
/// starting thread allocates memory, and a fork during that leaves the address sanitizer's
/// allocator locked in the child.
inline void await_threads() {
  const auto begun = [](const std::filesystem::path& task) {
    std::string name;
    std::getline(std::ifstream(task / "comm"), name);
    return name.starts_with("tiermem-") || task.filename() == std::to_string(::getpid());
  };
  const auto all_begun = [&] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::all_of(begin(tasks), end(tasks), begun);
  };
  for (int i = 0; kAddressSanitizer && i < 10000 && !all_begun(); ++i) {
    ::usleep(1000);
  }
}

/// Starts a child that runs `body` and exits with its result; SIGALRM ends a child that hangs.
inline pid_t child_that(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(100);
    await_threads();
    ::_exit(body() ? 0 : 1);
  }
  return child;
}

inline bool ended_well(pid_t child) {
  int status = 0;
  const bool well =
      ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!well) {
    std::fprintf(stderr, "child %d: status %#x\n", child, status);
  }
  return well;
}

/// Runs children one after the other, and keeps what they write to their standard error.
struct ChildWords {
  /// Runs `body` in a child. Returns whether it returned true.
  bool in_child(const std::function<bool()>& body) {
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      return false;
    }
    const pid_t child = child_that([&] {
      ::dup2(ends[1], STDERR_FILENO);
      return body();
    });
    ::close(ends[1]);
    char some[4096];
    for (ssize_t n = 1; (n = ::read(ends[0], some, sizeof(some))) > 0;) {
      said.append(some, static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::string said;
  int status = 0;  ///< The status of the last child, as waitpid() sets it.
};

}  // namespace tiermem::test
