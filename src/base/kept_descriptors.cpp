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

void mark(int fd) {
  g_kept[static_cast<unsigned>(fd) / 64].fetch_or(bit_of(fd));
}

void unmark(int fd) {
  g_kept[static_cast<unsigned>(fd) / 64].fetch_and(~bit_of(fd));
}

// Room for descriptors of tiermem while it works. The soft limit is raised until it ends. Where the
// hard limit is as low, some numbers are in stock. The process has one limit, so the first one
// begins and the last one ends.
class DescriptorRoom {
 public:
  void begin(int least) {
    const Turn turn(*this);
    if (count_++ != 0 || ::getrlimit(RLIMIT_NOFILE, &before_) != 0) {
      return;
    }
    const rlim_t wanted = std::max(before_.rlim_cur, static_cast<rlim_t>(least)) + kAtMost;
    raised_ = {std::min(wanted, before_.rlim_max), before_.rlim_max};
    if (raised_.rlim_cur > before_.rlim_cur) {
      best_effort(::setrlimit(RLIMIT_NOFILE, &raised_), "then there is no more room than before");
    } else {
      use_stock();
    }
  }
  void end(int least) {
    const Turn turn(*this);
    rlimit now{};
    if (--count_ != 0 || ::getrlimit(RLIMIT_NOFILE, &now) != 0) {
      return;
    }
    if (raised_.rlim_cur <= before_.rlim_cur) {
      fill_stock(least);
    } else if (now.rlim_cur == raised_.rlim_cur) {  // The program has not changed it.
      now.rlim_cur = before_.rlim_cur;
      best_effort(::setrlimit(RLIMIT_NOFILE, &now), "a program may always lower its limit");
    }
  }
  void follow_fork(int least) {
    busy_.clear(std::memory_order_relaxed);
    if (count_ != 0) {
      count_ = 1;
      end(least);
    }
  }

 private:
  struct Turn {
    explicit Turn(DescriptorRoom& room) : busy(room.busy_) {
      while (busy.test_and_set(std::memory_order_acquire)) {
      }
    }
    ~Turn() { busy.clear(std::memory_order_release); }
    std::atomic_flag& busy;
  };
  void use_stock() {
    for (; in_stock_ > 0; --in_stock_) {
      const int fd = stock_[in_stock_ - 1];
      unmark(fd);
      best_effort(::syscall(SYS_close, fd), "the descriptor is gone in any case");
    }
  }
  void fill_stock(int least) {
    const int any = ::open("/", O_PATH | O_CLOEXEC);
    int fd = any;
    while (in_stock_ < stock_.size() && known(fd)) {
      fd = ::fcntl(any, F_DUPFD_CLOEXEC, least);
      if (known(fd)) {
        mark(fd);
        stock_[in_stock_++] = fd;
      }
    }
    for (const int left : {any, known(fd) ? -1 : fd}) {  // A number that cannot be marked is none.
      if (left >= 0) {
        best_effort(::syscall(SYS_close, left), "the descriptor is gone in any case");
      }
    }
  }

  std::atomic_flag busy_;
  // Guarded by busy_.
  unsigned count_ = 0;
  rlimit before_{}, raised_{};
  std::array<int, 24> stock_{};  // A child of fork opens about as many, with files of some devices.
  std::size_t in_stock_ = 0;
};
constinit DescriptorRoom g_room;

}  // namespace

int keep_descriptor(int fd) noexcept {
  const int least = g_least.load(std::memory_order_relaxed);
  if (fd >= 0 && fd < least) {
    const BeyondLimit room;
    const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, least);
    if (moved >= 0) {
      best_effort(::syscall(SYS_close, fd), "the descriptor is gone in any case");
      fd = moved;
    }
  }
  if (known(fd)) {
    mark(fd);
  }
  return fd;
}

void forget_descriptor(int fd) noexcept {
  if (known(fd)) {
    unmark(fd);
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

void kept_descriptors_follow_fork() noexcept {
  g_room.follow_fork(g_least.load(std::memory_order_relaxed));
}

BeyondLimit::BeyondLimit() noexcept : least_(g_least.load(std::memory_order_relaxed)) {
  if (least_ != 0) {
    g_room.begin(least_);
  }
}

BeyondLimit::~BeyondLimit() {
  if (least_ != 0) {
    g_room.end(least_);
  }
}

}  // namespace tiermem
