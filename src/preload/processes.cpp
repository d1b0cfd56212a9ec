// Processes created without the handlers of fork: _Fork and clone. These functions do the handlers'
// work around the call. They do not see a system call by number. Any thread may fork.
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <unistd.h>

#include "preload/next.hpp"
#include "preload/region.hpp"
#include "preload/start.hpp"
#include "runtime/fork.hpp"

#define TIERMEM_INTERPOSED __attribute__((visibility("default")))

namespace tiermem::preload {
namespace {

void before() {
  before_fork_of_program();
  before_fork();
}

void after_in_parent() {
  after_fork_in_parent();
  after_fork_of_program_in_parent();
}

void after_in_child() {
  after_fork_in_child();
  after_fork_of_program_in_child();
}

struct Start {
  int (*function)(void*);
  void* argument;
};

// Runs first in the child, on a copy of the parent's stack. It must not return: clone would
// end this thread only, and the child has other threads by now.
int begin_in_child(void* start) {
  const Start what = *static_cast<Start*>(start);
  after_in_child();
  ::_exit(what.function(what.argument));
}

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

extern "C" {

TIERMEM_INTERPOSED pid_t _Fork() noexcept {
  static const auto real = next<pid_t (*)()>("_Fork");
  if (real == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  before();
  const pid_t child = real();
  const int error = errno;
  if (child == 0) {
    after_in_child();
  } else {
    after_in_parent();
  }
  errno = error;
  return child;
}

TIERMEM_INTERPOSED int clone(int (*function)(void*), void* stack, int flags, void* argument,
                             ...) noexcept {
  using Clone = int (*)(int (*)(void*), void*, int, void*, ...);
  static const auto real = next<Clone>("clone");
  va_list rest;
  va_start(rest, argument);
  auto* const parent_tid = va_arg(rest, pid_t*);
  void* const tls = va_arg(rest, void*);
  auto* const child_tid = va_arg(rest, pid_t*);
  va_end(rest);
  if ((flags & CLONE_VM) != 0 || function == nullptr || stack == nullptr) {
    return real(function, stack, flags, argument, parent_tid, tls, child_tid);
  }
  Start start{function, argument};
  bring_stack(stack);
  before();
  const int child = real(begin_in_child, stack, flags, &start, parent_tid, tls, child_tid);
  const int error = errno;
  after_in_parent();
  errno = error;
  return child;
}

}  // extern "C"
