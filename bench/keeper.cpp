// A pipe without writers: its end is reached when all processes that hold the other end are gone.
#include "bench/keeper.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.hpp"

namespace tiermem::bench {
namespace {

constexpr unsigned kAgainUs = 100'000;
constexpr int kPatience = 300;  // In units of kAgainUs.

[[noreturn]] void keep(int end, Keeper::Undo undo, const char* what) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  (void)::setsid();  // A signal to the benchmark's process group does not reach it.
  // It must not hold the end of another keeper, and so delay that one.
  (void)::close_range(3, static_cast<unsigned>(end) - 1, 0);
  (void)::close_range(static_cast<unsigned>(end) + 1, ~0U, 0);
  char byte;
  while (::read(end, &byte, 1) < 0 && errno == EINTR) {
  }
  undo(what);
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<Keeper>> Keeper::start(Undo undo, const std::string& what) {
  int ends[2] = {-1, -1};
  const pid_t process = ::pipe2(ends, O_CLOEXEC) == 0 ? ::fork() : -1;
  if (process == 0) {
    ::close(ends[1]);
    keep(ends[0], undo, what.c_str());
  }
  const int error = errno;
  if (ends[0] >= 0) {
    ::close(ends[0]);
  }
  if (process < 0) {
    if (ends[1] >= 0) {
      ::close(ends[1]);
    }
    return fail_native(Code::internal, error, "a process that puts {:.100} back: {}", what,
                       std::strerror(error));
  }
  return std::unique_ptr<Keeper>(new Keeper(process, ends[1]));
}

Keeper::~Keeper() {
  ::close(end_);
  for (int i = 0; i < kPatience && ::waitpid(process_, nullptr, WNOHANG) == 0; ++i) {
    ::usleep(kAgainUs);
  }
}

}  // namespace tiermem::bench
