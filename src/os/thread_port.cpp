// The thread port. Workers run one request at a time and report the result of the system call. They
// never retry, and sleep while there is no work.

#include "os/thread_port.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>

#include "base/own_thread.hpp"

namespace tiermem {
namespace {

// A demote writes bytes that a caller may be changing, and counts only if no caller did. The thread
// sanitizer's pwrite would report this; it does not see the plain system call, nor the accesses of
// io_uring.
ssize_t write_at(int fd, std::span<const iovec> from, off_t offset) {
#if defined(__SANITIZE_THREAD__)
  return ::syscall(SYS_pwritev, fd, from.data(), from.size(), offset, 0);
#else
  return ::pwritev(fd, from.data(), static_cast<int>(from.size()), offset);
#endif
}

}  // namespace

ThreadPort::ThreadPort(std::vector<std::unique_ptr<BlockFile>> devices, const PortOptions& options,
                       std::string reason)
    : files_(std::move(devices)), reason_(std::move(reason)) {
  capacity_ = std::clamp(options.depth, 1U, 4096U) * static_cast<unsigned>(files_.size() + 1);
  staged_.reserve(capacity_);
  threads_.reserve(options.threads);
  completed_.reserve(capacity_);
  for (unsigned i = 0; i < std::min(options.threads, capacity_); ++i) {
    try {
      threads_.push_back(own_thread("tiermem-io", [this] { work(); }));
    } catch (const std::system_error&) {
      // No more threads are available: those that exist do the work. works() reports if there is
      // none.
      break;
    }
  }
}

ThreadPort::~ThreadPort() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    queue_.clear();
  }
  work_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

// The threads do not exist in the child, nor do the threads that held the mutex or waited. None of
// these objects may be destroyed in its present state.
std::vector<std::unique_ptr<BlockFile>> ThreadPort::leave() {
  for (std::thread& thread : threads_) {
    new (&thread) std::thread;
  }
  threads_.clear();
  new (&mutex_) std::mutex;
  new (&work_) std::condition_variable;
  new (&done_) std::condition_variable;
  return std::move(files_);
}

bool ThreadPort::submit(const IoRequest& request) {
  if (in_flight_ == capacity_) {
    return false;
  }
  staged_.push_back(request);
  ++in_flight_;
  return true;
}

void ThreadPort::flush() {
  if (staged_.empty()) {
    return;
  }
  const bool one = staged_.size() == 1;
  {
    const std::lock_guard lock(mutex_);
    queue_.insert(queue_.end(), staged_.begin(), staged_.end());
  }
  staged_.clear();
  if (one) {
    work_.notify_one();
  } else {
    work_.notify_all();
  }
}

std::size_t ThreadPort::reap(std::span<IoCompletion> completions) {
  const std::lock_guard lock(mutex_);
  const std::size_t n = std::min(completions.size(), completed_.size());
  std::copy_n(completed_.begin(), n, completions.begin());
  completed_.erase(completed_.begin(), completed_.begin() + static_cast<std::ptrdiff_t>(n));
  in_flight_ -= static_cast<unsigned>(n);
  return n;
}

void ThreadPort::wait(std::int64_t deadline_ns) {
  flush();
  std::unique_lock lock(mutex_);
  // The exchange consumes the wake-up, and sees what the waking thread wrote before it.
  const auto ready = [this] { return woken_.exchange(false) || !completed_.empty(); };
  if (deadline_ns < 0) {
    done_.wait(lock, ready);
    return;
  }
  // steady_clock is CLOCK_MONOTONIC here.
  const auto deadline =
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns));
  done_.wait_until(lock, deadline, ready);
}

void ThreadPort::wake() {
  // If it was set already, the thread that set it notifies, and the owner's exchange consumes both.
  if (woken_.exchange(true)) {
    return;
  }
  // The owner holds the mutex from its read of woken_ until it sleeps. After this line it has seen
  // the flag or receives the notification.
  { const std::lock_guard lock(mutex_); }
  done_.notify_one();
}

void ThreadPort::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) {
      return;
    }
    const IoRequest request = queue_.front();
    queue_.pop_front();
    lock.unlock();
    const std::int32_t result = transfer(request);
    lock.lock();
    completed_.push_back({request.cookie, result});
    done_.notify_one();
  }
}

std::int32_t ThreadPort::transfer(const IoRequest& request) const {
  const int fd = request.fd >= 0 ? request.fd : files_[request.device]->fd(request.buffered);
  const auto offset = static_cast<off_t>(request.offset);
  const iovec one{request.data, request.length};
  const std::span<const iovec> vectors =
      request.vectors.empty() ? std::span(&one, 1) : request.vectors;
  const ssize_t n = request.write
                        ? write_at(fd, vectors, offset)
                        : ::preadv(fd, vectors.data(), static_cast<int>(vectors.size()), offset);
  return n < 0 ? -errno : static_cast<std::int32_t>(n);
}

}  // namespace tiermem
