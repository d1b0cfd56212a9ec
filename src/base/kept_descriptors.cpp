// One bit for each descriptor.
#include "base/kept_descriptors.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/results.hpp"

namespace tiermem {
namespace {

constexpr int kMost = 1 << 20;  // The kernel's usual fs.nr_open; higher ones are not protected.
constinit std::array<std::atomic<std::uint64_t>, kMost / 64> g_kept{};
constexpr rlim_t kAtMost = 256;  // Max number of descriptors of tiermem.
constinit std::atomic<int> g_least{0};

std::uint64_t bit_of(int fd) {
  return std::uint64_t{1} << (fd % 64);
}

bool known(int fd) {
  return fd >= 0 && fd < kMost;
}

// Duplicates a descriptor to a number of at least `least`, which may exceed the limit of the
// process. The limit is raised during the call; the only effect on other threads is that they may
// open one more file.
int duplicate_above(int fd, int least) {
  static constinit std::atomic_flag raising;
  while (raising.test_and_set(std::memory_order_acquire)) {
  }
  rlimit limit{};
  const bool known_limit = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
  const auto wanted = static_cast<rlim_t>(least) + kAtMost;
  const bool raises = known_limit && limit.rlim_cur < wanted && limit.rlim_cur < limit.rlim_max;
  if (raises) {
    const rlimit more{std::min(wanted, limit.rlim_max), limit.rlim_max};
    best_effort(::setrlimit(RLIMIT_NOFILE, &more), "the duplicate then gets no number there");
  }
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, least);
  if (raises) {
    best_effort(::setrlimit(RLIMIT_NOFILE, &limit), "a program may always lower its limit");
  }
  raising.clear(std::memory_order_release);
  return moved;
}

}  // namespace

int keep_descriptor(int fd) noexcept {
  const int least = g_least.load(std::memory_order_relaxed);
  if (fd >= 0 && fd < least) {
    const int moved = duplicate_above(fd, least);
    if (moved >= 0) {
      best_effort(::syscall(SYS_close, fd), "the descriptor is gone in any case");
      fd = moved;
    }
  }
  if (known(fd)) {
    g_kept[static_cast<unsigned>(fd) / 64].fetch_or(bit_of(fd));
  }
  return fd;
}

void forget_descriptor(int fd) noexcept {
  if (known(fd)) {
    g_kept[static_cast<unsigned>(fd) / 64].fetch_and(~bit_of(fd));
  }
}

void close_kept(int fd) noexcept {
  forget_descriptor(fd);
  if (fd >= 0) {
    best_effort(::syscall(SYS_close, fd), "the descriptor is gone in any case");
  }
}

bool is_kept(int fd) noexcept {
  return known(fd) && (g_kept[static_cast<unsigned>(fd) / 64].load() & bit_of(fd)) != 0;
}

void keep_descriptors_above(int least) noexcept {
  g_least.store(least);
}

}  // namespace tiermem
