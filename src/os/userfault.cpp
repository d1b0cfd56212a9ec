// The userfaultfd ioctls. Numbers that are newer than the distribution's headers are defined here
// under our own names, so that they do not clash with newer headers.
#include "os/userfault.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/results.hpp"
#include "os/handed_descriptors.hpp"
#include "os/host_memory.hpp"

namespace tiermem {
namespace {

struct MoveCall {  // struct uffdio_move
  std::uint64_t dst, src, len, mode;
  std::int64_t move;
};
struct PoisonCall {  // struct uffdio_poison
  std::uint64_t start, len, mode;
  std::int64_t updated;
};
constexpr unsigned long kMove = _IOWR(0xAA, 0x05, MoveCall);
constexpr unsigned long kPoison = _IOWR(0xAA, 0x08, PoisonCall);
constexpr unsigned long kDeviceNew = _IO(0xAA, 0x00);
constexpr std::uint64_t kFeatureWriteProtect = 1U << 0;
constexpr std::uint64_t kFeatureSigbus = 1U << 7;
constexpr std::uint64_t kFeatureThreadId = 1U << 8;
constexpr std::uint64_t kFeatureExactAddress = 1U << 11;
constexpr std::uint64_t kFeaturePoison = 1U << 14;
constexpr std::uint64_t kFeatureMove = 1U << 16;
constexpr int kUserModeOnly = 1;
// EAGAIN without progress means that a page is locked for a moment. After this many tries it is not
// momentary any more.
constexpr int kPatience = 4096;
// EBUSY means a long-term reference to a page, by a device or a child. It may also mean compaction
// in progress, which ended within one yield of the processor wherever it was observed.
constexpr int kBusyPatience = 8;

std::uint64_t number(const std::byte* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

int open_by_syscall(int flags) {
  const long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags);
  return fd < 0 ? -errno : static_cast<int>(fd);
}

int open_by_device() {
  int device = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  const int refused = errno;
  if (int handed[kMostHanded];
      device < 0 && handed_descriptors(Handed::userfault_device, "", handed) == 1) {
    device = handed[0];
  }
  if (device < 0) {
    return -refused;
  }
  const int fd = ioctl(device, kDeviceNew, O_CLOEXEC | O_NONBLOCK);
  const int result = fd < 0 ? -errno : fd;
  best_effort(close(device), "the descriptor is gone in any case");
  return result;
}

int open_by(UserfaultSource source) {
  switch (source) {
    case UserfaultSource::syscall:
      return open_by_syscall(0);
    case UserfaultSource::device:
      return open_by_device();
    case UserfaultSource::user_mode:
      return open_by_syscall(kUserModeOnly);
    case UserfaultSource::none:
      break;
  }
  return -ENOSYS;
}

int handshake(int fd, std::uint64_t want, std::uint64_t& have) {
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = want;
  if (ioctl(fd, UFFDIO_API, &api) != 0) {
    return errno;
  }
  have = api.features;
  return 0;
}

// Each descriptor allows one handshake, so a first descriptor is used to query the features.
int open_with_features(UserfaultSource source, bool signals, std::uint64_t& features) {
  int fd = open_by(source);
  if (fd < 0) {
    return fd;
  }
  const int asked = handshake(fd, 0, features);
  best_effort(close(fd), "the descriptor is gone in any case");
  if (asked != 0) {
    return -asked;
  }
  if (signals && (features & kFeatureSigbus) == 0) {
    return -EOPNOTSUPP;
  }
  fd = open_by(source);
  if (fd < 0) {
    return fd;
  }
  const std::uint64_t want =
      (features & (kFeatureThreadId | kFeatureExactAddress | kFeaturePoison | kFeatureMove)) |
      (signals ? kFeatureSigbus : 0);
  std::uint64_t granted = 0;
  if (const int error = handshake(fd, want, granted); error != 0) {
    best_effort(close(fd), "the descriptor is gone in any case");
    return -error;
  }
  return keep_descriptor(fd);
}

// Returns 0 or errno.
template <typename Call>
int retry(Call&& call) {
  constexpr int kInterrupts = 10'000;
  int error = EINTR;
  for (int tries = 0; error == EINTR && tries < kInterrupts; ++tries) {
    error = call() == 0 ? 0 : errno;
  }
  return error;
}

// Runs `once(done, moved)` until `length` is done. `once` returns 0 or errno, and sets `moved` to
// the bytes of this call. The kernel returns EAGAIN after partial progress.
template <typename Once>
UserfaultProgress advance(std::uint64_t length, Once&& once) {
  UserfaultProgress progress;
  int idle = 0, busy = 0;
  while (progress.done < length) {
    std::int64_t moved = 0;
    const int error = once(progress.done, moved);
    if (moved > 0) {
      progress.done += static_cast<std::uint64_t>(moved);
      idle = busy = 0;
      continue;
    }
    if (error == EBUSY && ++busy <= kBusyPatience) {
      sched_yield();
      continue;
    }
    if (error != EAGAIN && error != EINTR) {
      progress.error = error == 0 ? EIO : error;  // No error and no progress: never observed.
      return progress;
    }
    if (++idle > kPatience) {
      progress.error = EAGAIN;
      return progress;
    }
    if (idle > 16) {
      sched_yield();
    }
  }
  return progress;
}

// Runs `call(done, length)` on a range. The kernel accepts only a range of one mapping, and the
// program's advice may have split the mapping; the call is then repeated on each half. `of_two` is
// the kernel's error for a range of two mappings. This error may have another cause, which is found
// page by page from the start.
template <typename Call>
UserfaultProgress in_each_mapping(std::uint64_t from, std::uint64_t length, int of_two,
                                  const Call& call) {
  UserfaultProgress progress = call(from, length);
  const std::uint64_t left = length - progress.done;
  if (progress.error != of_two || left <= host::kPage) {
    return progress;
  }
  const std::uint64_t half = std::max<std::uint64_t>(left / 2 / host::kPage, 1) * host::kPage;
  for (const std::uint64_t part : {half, left - half}) {
    const UserfaultProgress more = in_each_mapping(from + progress.done, part, of_two, call);
    progress.done += more.done;
    progress.error = more.error;
    if (more.error != 0) {
      break;
    }
  }
  return progress;
}

bool refuse(char* reason, std::size_t room, const char* what, int error) {
  set_text(reason, room, fmt::format("{}: {}", what, std::strerror(error)));
  return false;
}

}  // namespace

const char* userfault_source_name(UserfaultSource source) {
  switch (source) {
    case UserfaultSource::syscall:
      return "userfaultfd";
    case UserfaultSource::device:
      return "/dev/userfaultfd";
    case UserfaultSource::user_mode:
      return "userfaultfd, user mode only";
    case UserfaultSource::none:
      break;
  }
  return "none";
}

Userfault::~Userfault() {
  if (fd_ >= 0) {
    close_kept(fd_);
  }
}

Userfault::Userfault(Userfault&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), facts_(other.facts_) {}

Userfault& Userfault::operator=(Userfault&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(facts_, other.facts_);
  return *this;
}

Userfault Userfault::open(UserfaultUse use) {
  Userfault result;
  if (use == UserfaultUse::off) {
    set_text(result.facts_.reason, "not allowed by the options");
    return result;
  }
  std::string refused;
  for (const UserfaultSource source :
       {UserfaultSource::syscall, UserfaultSource::device, UserfaultSource::user_mode}) {
    if (use == UserfaultUse::user_mode && source != UserfaultSource::user_mode) {
      continue;
    }
    std::uint64_t features = 0;
    const bool signals = use == UserfaultUse::signal;
    const int fd = open_with_features(source, signals, features);
    if (fd >= 0) {
      result.fd_ = fd;
      result.facts_.source = source;
      result.facts_.features = features;
      result.facts_.move = (features & kFeatureMove) != 0;
      result.facts_.poison = (features & kFeaturePoison) != 0;
      result.facts_.watch = (features & kFeatureWriteProtect) != 0;
      result.facts_.signals = signals;
      break;
    }
    refused += fmt::format("{}{}: {}", refused.empty() ? "" : "; ", userfault_source_name(source),
                           std::strerror(-fd));
  }
  set_text(result.facts_.reason, refused);
  return result;
}

int Userfault::register_missing(std::byte* address, std::uint64_t length, bool watch) const {
  uffdio_register call{};
  call.range = {number(address), length};
  call.mode = UFFDIO_REGISTER_MODE_MISSING | (watch ? UFFDIO_REGISTER_MODE_WP : 0);
  return retry([&] { return ioctl(fd_, UFFDIO_REGISTER, &call); });
}

int Userfault::unregister(std::byte* address, std::uint64_t length) const {
  uffdio_range range{number(address), length};
  return retry([&] { return ioctl(fd_, UFFDIO_UNREGISTER, &range); });
}

int Userfault::wake(std::byte* address, std::uint64_t length) const {
  uffdio_range range{number(address), length};
  return retry([&] { return ioctl(fd_, UFFDIO_WAKE, &range); });
}

int Userfault::poison(std::byte* address, std::uint64_t length) const {
  return advance(length,
                 [&](std::uint64_t done, std::int64_t& moved) {
                   PoisonCall call{number(address) + done, length - done, 0, 0};
                   const int error = ioctl(fd_, kPoison, &call) != 0 ? errno : 0;
                   moved = error == 0 || error == EAGAIN ? call.updated : 0;
                   return error;
                 })
      .error;
}

int Userfault::zero(std::byte* address, std::uint64_t length) const {
  uffdio_zeropage call{};
  call.range = {number(address), length};
  return retry([&] { return ioctl(fd_, UFFDIO_ZEROPAGE, &call); });
}

UserfaultProgress Userfault::move_counted(std::byte* to, const std::byte* from,
                                          std::uint64_t length) const {
  return advance(length, [&](std::uint64_t done, std::int64_t& moved) {
    MoveCall call{number(to) + done, number(from) + done, length - done, 0, 0};
    const int error = ioctl(fd_, kMove, &call) != 0 ? errno : 0;
    moved = error == 0 || error == EAGAIN ? call.move : 0;
    return error;
  });
}

UserfaultProgress Userfault::move(std::byte* to, const std::byte* from,
                                  std::uint64_t length) const {
  return in_each_mapping(0, length, EINVAL, [&](std::uint64_t done, std::uint64_t part) {
    return move_all(to + done, from + done, part);
  });
}

// Linux 6.18 moves pages that it does not count. If a page table entry changes during the move, for
// example while memory is swapped, the kernel retries. It keeps the EAGAIN of its first try, even
// if the second succeeds. It then tries the moved page a third time: EEXIST. So EEXIST is success
// if the source has no page. Waiters need a separate wake-up, because the kernel wakes them only
// for pages that it counts.
UserfaultProgress Userfault::move_all(std::byte* to, const std::byte* from,
                                      std::uint64_t length) const {
  UserfaultProgress progress;
  for (;;) {
    const std::uint64_t before = progress.done;
    progress = move_counted(to + before, from + before, length - before);
    progress.done += before;
    if (progress.error != EEXIST) {
      return progress;
    }
    const std::uint64_t left = length - progress.done;
    const std::uint64_t uncounted = std::min(host::leading_bytes(from + progress.done, left, false),
                                             host::leading_bytes(to + progress.done, left, true));
    if (uncounted == 0) {
      return progress;
    }
    wake(to + progress.done, uncounted);
    progress.done += uncounted;
    progress.error = 0;
    if (uncounted == left) {
      return progress;
    }
  }
}

UserfaultProgress Userfault::copy(std::byte* to, const std::byte* from, std::uint64_t length,
                                  bool watched) const {
  return in_each_mapping(0, length, ENOENT, [&](std::uint64_t from_here, std::uint64_t part) {
    return advance(part, [&](std::uint64_t done, std::int64_t& moved) {
      uffdio_copy call{};
      call.dst = number(to) + from_here + done;
      call.src = number(from) + from_here + done;
      call.len = part - done;
      call.mode = watched ? UFFDIO_COPY_MODE_WP : 0;
      const int error = ioctl(fd_, UFFDIO_COPY, &call) != 0 ? errno : 0;
      moved = error == 0 || error == EAGAIN ? call.copy : 0;
      return error;
    });
  });
}

int Userfault::watch_writes(std::byte* address, std::uint64_t length) const {
  uffdio_writeprotect call{};
  call.range = {number(address), length};
  call.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  return retry([&] { return ioctl(fd_, UFFDIO_WRITEPROTECT, &call); });
}

int Userfault::allow_writes(std::byte* address, std::uint64_t length) const {
  uffdio_writeprotect call{};
  call.range = {number(address), length};
  return retry([&] { return ioctl(fd_, UFFDIO_WRITEPROTECT, &call); });
}

int Userfault::read_event(UserfaultEvent& event) const {
  std::size_t n = 0;
  return read_events(std::span(&event, 1), n);
}

int Userfault::read_events(std::span<UserfaultEvent> events, std::size_t& n) const {
  std::array<uffd_msg, 16> messages{};
  const std::size_t room = std::min(events.size(), messages.size());
  for (n = 0; n == 0;) {
    const ssize_t got = read(fd_, messages.data(), room * sizeof(messages[0]));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return errno;
    }
    const auto bytes = static_cast<std::size_t>(got);
    if (bytes == 0 || bytes % sizeof(messages[0]) != 0) {
      return EIO;
    }
    for (const uffd_msg& message : std::span(messages).first(bytes / sizeof(messages[0]))) {
      if (message.event != UFFD_EVENT_PAGEFAULT) {
        continue;
      }
      const auto& fault = message.arg.pagefault;
      UserfaultEvent& event = events[n++];
      event.address = reinterpret_cast<std::byte*>(fault.address);
      event.write = (fault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0;
      event.watched = (fault.flags & UFFD_PAGEFAULT_FLAG_WP) != 0;
      event.thread = (facts_.features & kFeatureThreadId) != 0 ? fault.feat.ptid : 0;
    }
  }
  return 0;
}

bool Userfault::probe_copy(std::size_t bytes, char* reason, std::size_t room) const {
  const auto no = [&](const char* what, int error) { return refuse(reason, room, what, error); };
  if (!ok()) {
    set_text(reason, room, fmt::format("no userfaultfd ({})", facts_.reason));
    return false;
  }
  auto window = host::reserve({.bytes = 2 * host::kHugePage});
  auto scratch = host::reserve({.bytes = host::kHugePage});
  if (!window.ok() || !scratch.ok()) {
    set_text(reason, room, window.ok() ? scratch.message() : window.message());
    return false;
  }
  std::byte* const at = window->data();
  std::byte* const home = scratch->data();
  if (const int error = register_missing(at, window->bytes()); error != 0) {
    return no("UFFDIO_REGISTER", error);
  }
  host::write_pattern(home, bytes);
  for (int twice = 0; twice < 2;
       ++twice) {  // The second pass shows that the range is still registered.
    if (const UserfaultProgress in = copy(at, home, bytes); in.error != 0) {
      return no("UFFDIO_COPY into a window", in.error);
    }
    if (!host::check_pattern(at, bytes)) {
      return no("UFFDIO_COPY brought other bytes", EIO);
    }
    if (const int error = host::remap(home, at, bytes); error != 0) {
      return no("mremap(DONTUNMAP) out of a window (Linux 5.7)", error);
    }
    if (!host::check_pattern(home, bytes)) {
      return no("mremap took other bytes", EIO);
    }
  }
  return true;
}

bool Userfault::probe_watch(char* reason, std::size_t room) const {
  const auto no = [&](const char* what, int error) { return refuse(reason, room, what, error); };
  if (!facts_.watch || facts_.source == UserfaultSource::user_mode) {
    set_text(reason, room,
             facts_.watch ? "userfaultfd for user mode only: a system call would get EFAULT"
                          : "the kernel does not write-protect ordinary memory (Linux 5.7)");
    return false;
  }
  auto window = host::reserve({.bytes = host::kPage, .alignment = host::kPage});
  auto scratch = host::reserve({.bytes = host::kPage, .alignment = host::kPage});
  if (!window.ok() || !scratch.ok()) {
    set_text(reason, room, window.ok() ? scratch.message() : window.message());
    return false;
  }
  std::byte* const at = window->data();
  if (const int error = register_missing(at, host::kPage, true); error != 0) {
    return no("UFFDIO_REGISTER for writes", error);
  }
  host::write_pattern(scratch->data(), host::kPage);
  if (const UserfaultProgress in = copy(at, scratch->data(), host::kPage, true); in.error != 0) {
    return no("UFFDIO_COPY of a watched page", in.error);
  }
  if (host::watched_pages(at, 1) != 1) {
    return no("/proc/self/pagemap does not show what is watched", EIO);
  }
  if (const int error = allow_writes(at, host::kPage); error != 0) {
    return no("UFFDIO_WRITEPROTECT", error);
  }
  if (host::watched_pages(at, 1) != 0 || !host::check_pattern(at, host::kPage)) {
    return no("UFFDIO_WRITEPROTECT left another page", EIO);
  }
  return true;
}

bool Userfault::probe_move(char* reason, std::size_t room) const {
  const auto no = [&](const char* what, int error) { return refuse(reason, room, what, error); };
  if (!ok()) {
    set_text(reason, room, fmt::format("no userfaultfd ({})", facts_.reason));
    return false;
  }
  if (!facts_.move) {
    set_text(reason, room, "the kernel has no UFFDIO_MOVE (Linux 6.8)");
    return false;
  }
  auto window = host::reserve({.bytes = host::kHugePage});
  auto scratch = host::reserve({.bytes = host::kHugePage});
  if (!window.ok() || !scratch.ok()) {
    set_text(reason, room, window.ok() ? scratch.message() : window.message());
    return false;
  }
  std::byte* const at = window->data();
  std::byte* const home = scratch->data();
  best_effort(host::advise(home, host::kHugePage, host::Advise::huge),
              "the probe sees small pages");
  best_effort(host::advise(at, host::kHugePage, host::Advise::huge), "the probe sees small pages");
  if (const int error = register_missing(at, host::kHugePage); error != 0) {
    return no("UFFDIO_REGISTER", error);
  }
  host::write_pattern(home, host::kHugePage);
  if (const UserfaultProgress in = move(at, home, host::kHugePage); in.error != 0) {
    return no("UFFDIO_MOVE into a window", in.error);
  }
  if (!host::check_pattern(at, host::kHugePage)) {
    return no("UFFDIO_MOVE brought other bytes", EIO);
  }
  if (const int error = register_missing(home, host::kHugePage); error != 0) {
    return no("UFFDIO_REGISTER", error);
  }
  if (const UserfaultProgress out = move(home, at, host::kHugePage); out.error != 0) {
    return no("UFFDIO_MOVE out of a window", out.error);
  }
  if (!host::check_pattern(home, host::kHugePage)) {
    return no("UFFDIO_MOVE took other bytes", EIO);
  }
  return true;
}

}  // namespace tiermem
