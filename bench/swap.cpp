// swapon(2), and zswap's parameters, which are files.
#include "bench/swap.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/swap.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/error.hpp"
#include "bench/process.hpp"

namespace tiermem::bench {
namespace {

/// The highest priority: other swap is not used during the benchmark.
constexpr int kFlags = SWAP_FLAG_PREFER | SWAP_FLAG_PRIO_MASK;
constexpr unsigned kAgainUs = 100'000;

// It had a higher priority than all other swap, so other processes may have pages there, in cgroups
// without room for them now. EINVAL: it is not on, or no longer.
void swap_off(const char* path) {
  while (::swapoff(path) != 0 && errno != EINVAL && errno != ENOENT) {
    ::usleep(kAgainUs);
  }
  (void)::unlink(path);
}

/// Makes system calls only. Returns false with errno.
bool write_switch(const char* path, bool on) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) {
    return false;
  }
  const bool written = ::write(file, on ? "Y" : "N", 1) == 1;
  const int error = errno;
  ::close(file);
  errno = error;
  return written;
}

void switch_on(const char* path) {
  (void)write_switch(path, true);
}
void switch_off(const char* path) {
  (void)write_switch(path, false);
}

std::string first_word(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
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
  auto keeper = Keeper::start(swap_off, path);
  if (!keeper.ok()) {
    (void)::unlink(path.c_str());
    return std::move(keeper).status();
  }
  // From here on the keeper removes the file in any case.
  if (::swapon(path.c_str(), kFlags) != 0) {
    const int refused = errno;
    return fail_native(Code::unavailable, refused, "swapon {}: {}", path, std::strerror(refused));
  }
  return std::unique_ptr<Swap>(new Swap(std::move(*keeper)));
}

Result<std::unique_ptr<Zswap>> Zswap::on(const std::string& parameters) {
  const std::string path = parameters + "/enabled";
  const std::string before = first_word(path);
  if (before != "Y" && before != "N") {
    return fail(Code::unavailable, "the kernel has no zswap: {} {}", path,
                before.empty() ? "is not there" : "says '" + before + "'");
  }
  if (::access(path.c_str(), W_OK) != 0) {
    return fail_native(Code::unavailable, errno, "zswap cannot be switched: {}: {}", path,
                       std::strerror(errno));
  }
  // First: if this process ends from here on, the setting is restored.
  auto keeper = Keeper::start(before == "Y" ? switch_on : switch_off, path);
  if (!keeper.ok()) {
    return std::move(keeper).status();
  }
  if (!write_switch(path.c_str(), true)) {
    const int refused = errno;
    return fail_native(Code::unavailable, refused, "zswap cannot be switched on: {}: {}", path,
                       std::strerror(refused));
  }
  return std::unique_ptr<Zswap>(
      new Zswap(std::move(*keeper), first_word(parameters + "/compressor")));
}

}  // namespace tiermem::bench
