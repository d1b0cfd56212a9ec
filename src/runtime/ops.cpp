// The table of operations.
#include "runtime/ops.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tiermem {
namespace {

void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Until the word is not 0 or CLOCK_MONOTONIC reaches the deadline.
void futex_wait(std::atomic<std::uint32_t>& word, std::int64_t deadline_ns) {
  timespec at{deadline_ns / 1'000'000'000, deadline_ns % 1'000'000'000};
  // WAIT_BITSET takes an absolute time.
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0,
            deadline_ns == INT64_MAX ? nullptr : &at, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void signal(int event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = ::write(event, &one, sizeof(one));
}

}  // namespace

Ops::~Ops() {
  for (const auto& entry : entries_) {
    if (entry->event >= 0) {
      ::close(entry->event);
    }
  }
}

OpHandle Ops::add(std::unique_ptr<Request> request) {
  std::lock_guard lock(mutex_);
  std::uint32_t index = 0;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    if (entries_.size() == kMost) {
      return 0;
    }
    index = static_cast<std::uint32_t>(entries_.size());
    free_.reserve(entries_.size() + 1);  // So that wait() allocates nothing.
    entries_.push_back(std::make_unique<Entry>());
  }
  Entry& entry = *entries_[index];
  entry.done.store(0, std::memory_order_relaxed);
  entry.claimed = false;
  entry.table = this;
  request->context = &entry;
  request->on_done = [](Request& done) {
    if (done.before_done != nullptr) {
      done.before_done(done);
    }
    auto& mine = *static_cast<Entry*>(done.context);
    {
      std::lock_guard inside(mine.table->mutex_);
      // Release: whoever sees 1 sees the status and the views.
      mine.done.store(1, std::memory_order_release);
      if (mine.event >= 0) {
        signal(mine.event);
      }
    }
    futex_wake(mine.done);  // The entry may be another operation's by now: that one looks again.
  };
  entry.request = std::move(request);
  return std::uint64_t{entry.generation} << 32 | (index + 1);
}

Ops::Entry* Ops::find(OpHandle op) {
  const std::uint32_t index = static_cast<std::uint32_t>(op) - 1;
  if (index >= entries_.size() || entries_[index]->generation != op >> 32 ||
      entries_[index]->request == nullptr) {
    return nullptr;
  }
  return entries_[index].get();
}

Request* Ops::request_of(OpHandle op) {
  std::lock_guard lock(mutex_);
  Entry* entry = find(op);
  return entry != nullptr ? entry->request.get() : nullptr;
}

Status Ops::wait(OpHandle op, std::int64_t deadline_ns) {
  Entry* entry = nullptr;
  {
    std::lock_guard lock(mutex_);
    entry = find(op);
    if (entry == nullptr) {
      return fail(Code::invalid_argument,
                  "operation {:#x} is not under way: it was consumed, or never begun", op);
    }
    if (entry->claimed) {
      return fail(Code::busy, "another thread waits for operation {:#x}", op);
    }
    entry->claimed = true;
  }
  while (entry->done.load(std::memory_order_acquire) == 0) {
    if (deadline_ns != INT64_MAX && (deadline_ns == 0 || now_ns() >= deadline_ns)) {
      std::lock_guard lock(mutex_);
      entry->claimed = false;
      return Code::busy;
    }
    futex_wait(entry->done, deadline_ns);
  }
  std::lock_guard lock(mutex_);
  Status status = std::move(entry->request->status);
  entry->request.reset();
  if (entry->event >= 0) {
    ::close(std::exchange(entry->event, -1));
  }
  ++entry->generation;
  free_.push_back(static_cast<std::uint32_t>(op) - 1);
  return status;
}

Result<int> Ops::descriptor(OpHandle op) {
  std::lock_guard lock(mutex_);
  Entry* entry = find(op);
  if (entry == nullptr) {
    return fail(Code::invalid_argument,
                "operation {:#x} is not under way: it was consumed, or never begun", op);
  }
  if (entry->event < 0) {
    const bool done = entry->done.load(std::memory_order_relaxed) != 0;
    entry->event = ::eventfd(done ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  const int theirs = entry->event < 0 ? -1 : ::fcntl(entry->event, F_DUPFD_CLOEXEC, 0);
  if (theirs < 0) {
    return fail_native(Code::no_capacity, errno, "op_fd: {}", std::strerror(errno));
  }
  return theirs;
}

bool Ops::cancel(OpHandle op) {
  std::lock_guard lock(mutex_);
  Entry* entry = find(op);
  if (entry != nullptr) {
    entry->request->cancel.store(true, std::memory_order_relaxed);
  }
  return entry != nullptr;
}

std::size_t Ops::live() const {
  std::lock_guard lock(mutex_);
  return entries_.size() - free_.size();
}

}  // namespace tiermem
