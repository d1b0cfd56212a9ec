// swapon(2), and a child that waits for the end of this process.
#include "bench/swap.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.hpp"
#include "bench/process.hpp"

namespace tiermem::bench {
namespace {

/// The highest priority: swap that was there before is not used meanwhile.
constexpr int kFlags = SWAP_FLAG_PREFER | SWAP_FLAG_PRIO_MASK;
constexpr unsigned kAgainUs = 100'000;
constexpr int kPatience = 300;  // Times kAgainUs.

/// Waits until nobody holds the other end of the pipe, then takes the swap away. Between a fork and
/// its end only system calls are safe.
[[noreturn]] void keep(int end, const char* path) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  (void)::setsid();  // What ends the benchmark's process group does not end it.
  char byte;
  while (::read(end, &byte, 1) < 0 && errno == EINTR) {
  }
  // It was before all other swap, so others may have pages there, in cgroups that have no room for
  // them just now. EINVAL: it is not on, or not any more.
  while (::swapoff(path) != 0 && errno != EINVAL && errno != ENOENT) {
    ::usleep(kAgainUs);
  }
  (void)::unlink(path);
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<Swap>> Swap::on(const std::string& directory, std::uint64_t bytes) {
  if (::geteuid() != 0) {
    return fail(Code::unavailable, "swap needs root");
  }
  if (run_program({"mkswap", "--version"}).exit_code != 0) {
    return fail(Code::unavailable, "mkswap is not installed (util-linux)");
  }
  static unsigned made = 0;
  const std::string path =
      fmt::format("{}/tiermem-bench-swap-{}-{}", directory, ::getpid(), ++made);
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  const int allocated = file < 0 ? errno : ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (file >= 0) {
    ::close(file);
  }
  if (allocated != 0) {
    (void)::unlink(path.c_str());
    return fail_native(Code::unavailable, allocated, "no room for swap: {}: {}", path,
                       std::strerror(allocated));
  }
  if (run_program({"mkswap", path}).exit_code != 0) {
    (void)::unlink(path.c_str());
    return fail(Code::unavailable, "mkswap {} failed", path);
  }
  int ends[2] = {-1, -1};
  const pid_t keeper = ::pipe2(ends, O_CLOEXEC) == 0 ? ::fork() : -1;
  if (keeper == 0) {
    ::close(ends[1]);
    keep(ends[0], path.c_str());
  }
  const int error = errno;
  if (ends[0] >= 0) {
    ::close(ends[0]);
  }
  if (keeper < 0) {
    (void)::unlink(path.c_str());
    if (ends[1] >= 0) {
      ::close(ends[1]);
    }
    return fail_native(Code::internal, error, "a process for the swap file: {}",
                       std::strerror(error));
  }
  // From here on the keeper takes the file away, whatever happens.
  std::unique_ptr<Swap> swap(new Swap(keeper, ends[1]));
  if (::swapon(path.c_str(), kFlags) != 0) {
    const int refused = errno;
    return fail_native(Code::unavailable, refused, "swapon {}: {}", path, std::strerror(refused));
  }
  return swap;
}

Swap::~Swap() {
  ::close(end_);
  for (int i = 0; i < kPatience && ::waitpid(keeper_, nullptr, WNOHANG) == 0; ++i) {
    ::usleep(kAgainUs);
  }
}

}  // namespace tiermem::bench
