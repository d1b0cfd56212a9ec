// This program's own pread, pwrite, preadv and pwritev, and their behaviour. A program's symbols
// take precedence over those of the C library, also for the libraries that it uses. No other
// interposition is needed.
#include "fault/failing_io.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace tiermem::test {
namespace {

std::shared_mutex g_mutex;  // Guards the list; held shared during a search for a call's device.
std::array<FailingIo*, 4> g_devices{};

ssize_t from_kernel(bool write, int fd, Parts parts, off_t offset) {
  return ::syscall(write ? SYS_pwritev : SYS_preadv, fd, parts.data(), parts.size(), offset, 0);
}

ssize_t interposed(bool write, int fd, Parts parts, off_t offset) {
  FailingIo* found = nullptr;
  {
    std::shared_lock lock(g_mutex);
    for (FailingIo* device : g_devices) {
      if (found == nullptr && device != nullptr && device->enter(fd)) {
        found = device;
      }
    }
  }
  return found != nullptr ? found->act(write, fd, parts, offset)
                          : from_kernel(write, fd, parts, offset);
}

ssize_t interposed(bool write, int fd, const void* data, std::size_t bytes, off_t offset) {
  const iovec one{const_cast<void*>(data), bytes};
  return interposed(write, fd, Parts(&one, 1), offset);
}

std::size_t bytes_of(Parts parts) {
  return std::accumulate(parts.begin(), parts.end(), std::size_t{0},
                         [](std::size_t sum, const iovec& part) { return sum + part.iov_len; });
}

/// Returns the first `most` bytes of the parts.
std::vector<iovec> first_of(Parts parts, std::size_t most) {
  std::vector<iovec> first;
  for (iovec part : parts) {
    part.iov_len = std::min(part.iov_len, most);
    most -= part.iov_len;
    if (part.iov_len != 0) {
      first.push_back(part);
    }
  }
  return first;
}

}  // namespace

FailingIo::FailingIo(const std::string& directory) : directory_(directory + "/") {
  std::unique_lock lock(g_mutex);
  *std::find(g_devices.begin(), g_devices.end(), nullptr) = this;
}

FailingIo::~FailingIo() {
  {
    std::unique_lock lock(g_mutex);
    *std::find(g_devices.begin(), g_devices.end(), this) = nullptr;
  }
  open_gate();
  while (inside_.load() != 0) {  // Takes the test's last milliseconds at most.
    std::this_thread::yield();
  }
}

void FailingIo::close_gate() {
  shut_.store(1);
}

void FailingIo::open_gate() {
  shut_.store(0);
  shut_.notify_all();
}

bool FailingIo::wait_for_held(std::uint32_t n) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (held_.load() < n && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  return held_.load() >= n;
}

bool FailingIo::enter(int fd) {
  char link[64];
  char target[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link, target, sizeof(target));
  const bool ours = n > static_cast<ssize_t>(directory_.size()) &&
                    std::equal(directory_.begin(), directory_.end(), target);
  inside_ += ours ? 1 : 0;
  return ours;
}

ssize_t FailingIo::act(bool write, int fd, Parts parts, off_t offset) {
  ++held_;
  shut_.wait(1);
  --held_;
  ++calls_;
  ssize_t result = -1;
  const int error = write ? write_error.load() : read_error.load();
  if (error != 0 && good_before.fetch_sub(1) <= 0) {
    good_before.store(0);
    ++failed_;
    errno = error;
  } else {
    const std::uint32_t most = write ? most_written.load() : most_read.load();
    const auto given = first_of(parts, most != 0 ? most : ~std::size_t{0});
    shortened_ += bytes_of(given) < bytes_of(parts) ? 1 : 0;
    result = from_kernel(write, fd, given, offset);
  }
  const int kept = errno;
  --inside_;
  errno = kept;
  return result;
}

}  // namespace tiermem::test

#define TIERMEM_TEST_EXPORT extern "C" __attribute__((visibility("default")))

TIERMEM_TEST_EXPORT ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  return tiermem::test::interposed(false, fd, data, bytes, offset);
}
TIERMEM_TEST_EXPORT ssize_t pread64(int fd, void* data, size_t bytes, off64_t offset) {
  return tiermem::test::interposed(false, fd, data, bytes, offset);
}
TIERMEM_TEST_EXPORT ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return tiermem::test::interposed(true, fd, data, bytes, offset);
}
TIERMEM_TEST_EXPORT ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return tiermem::test::interposed(true, fd, data, bytes, offset);
}
TIERMEM_TEST_EXPORT ssize_t preadv(int fd, const iovec* parts, int n, off_t offset) {
  return tiermem::test::interposed(false, fd, {parts, static_cast<std::size_t>(n)}, offset);
}
TIERMEM_TEST_EXPORT ssize_t preadv64(int fd, const iovec* parts, int n, off64_t offset) {
  return tiermem::test::interposed(false, fd, {parts, static_cast<std::size_t>(n)}, offset);
}
TIERMEM_TEST_EXPORT ssize_t pwritev(int fd, const iovec* parts, int n, off_t offset) {
  return tiermem::test::interposed(true, fd, {parts, static_cast<std::size_t>(n)}, offset);
}
TIERMEM_TEST_EXPORT ssize_t pwritev64(int fd, const iovec* parts, int n, off64_t offset) {
  return tiermem::test::interposed(true, fd, {parts, static_cast<std::size_t>(n)}, offset);
}
