// A piece of a test in a child of fork, whose limits and identity are its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace tiermem {

/// True if `body` was; a child that hangs is ended by SIGALRM and counts as false.
template <typename Body>
bool in_child(Body body) {
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
