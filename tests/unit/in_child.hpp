// Runs a part of a test in a child of fork, which can change its own limits and identity.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace tiermem {

/// Returns whether `body` returned true. A child that hangs is ended by SIGALRM and counts as
/// false.
template <typename Body>
bool in_child(Body body) {
  // The child inherits what is buffered. It would write it at its end, even if `body` made writes
  // fail.
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace tiermem
