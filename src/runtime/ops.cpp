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
#include "base/log.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

void futex_wake(std::atomic<std::uint32_t>& word) {
  best_effort(::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0),
              "there may be no waiter");
}

// Waits until the word is not 0 or CLOCK_MONOTONIC reaches the deadline.
void futex_wait(std::atomic<std::uint32_t>& word, std::int64_t deadline_ns) {
  timespec at{deadline_ns / 1'000'000'000, deadline_ns % 1'000'000'000};
  // WAIT_BITSET takes an absolute time.
  best_effort(::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0,
                        deadline_ns == INT64_MAX ? nullptr : &at, nullptr, FUTEX_BITSET_MATCH_ANY),
              "the caller looks at the word again");
}

void signal(int event) {
  const std::uint64_t one = 1;
  best_effort(::write(event, &one, sizeof(one)), "where it is full it is ready already");
}

}  // namespace

Ops::~Ops() {
  for (const auto& entry : entries_) {
    if (entry->event >= 0) {
      best_effort(::close(entry->event), "the descriptor is gone in any case");
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
    free_.reserve(entries_.size() + 1);  // So that wait() need not allocate.
    entries_.push_back(std::make_unique<Entry>());
    entries_.back()->life = first_life_;
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
      // Release: a thread that sees 1 also sees the status and the views.
      mine.done.store(1, std::memory_order_release);
      if (mine.event >= 0) {
        signal(mine.event);
      }
      if (mine.queue != nullptr) {
        mine.queue->push(mine);
      }
    }
    // The entry may belong to another operation by now; its waiter checks again.
    futex_wake(mine.done);
  };
  entry.request = std::move(request);
  return handle_of(index, entry.life);
}

Status Ops::waited_for(const char* call, OpHandle op) {
  return fail(Code::busy, "{}: another thread waits for operation {:#x}; wait in one thread", call,
              op);
}

Status Ops::unknown(const char* call, OpHandle op, std::uint64_t tag) {
  const std::uint64_t theirs = op >> kIndexBits >> kLifeBits;
  return ContextTag::is_live(theirs) && theirs != tag
             ? fail(Code::invalid_argument,
                    "{}: operation {:#x} belongs to another context; call that context", call, op)
             : fail(Code::invalid_argument,
                    "{}: operation {:#x} is not under way: it was waited for before, or never "
                    "begun; wait for it once",
                    call, op);
}

Ops::Entry* Ops::find(OpHandle op) const {
  const std::uint32_t index = index_of(op);
  if (index >= entries_.size() || op != handle_of(index, entries_[index]->life) ||
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

// Waits for the end of an operation. After ok it is `claimed`: no other thread waits for it.
Status Ops::claim(OpHandle op, std::int64_t deadline_ns, Entry*& claimed) {
  Entry* entry = nullptr;
  {
    std::lock_guard lock(mutex_);
    entry = find(op);
    if (entry == nullptr) {
      return unknown("op_wait", op, tag_);
    }
    if (entry->queue != nullptr) {
      return fail(Code::invalid_argument,
                  "op_wait: operation {:#x} is in a queue; wait for the queue's descriptor", op);
    }
    if (entry->claimed) {
      return waited_for("op_wait", op);
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
  claimed = entry;
  return {};
}

// Requires the mutex. Ends the life of an entry that is done.
Status Ops::take(OpHandle op, Entry& entry) {
  Status status = std::move(entry.request->status);
  entry.request.reset();
  if (entry.event >= 0) {
    best_effort(::close(std::exchange(entry.event, -1)), "the descriptor is gone in any case");
  }
  if (entry.life == kLifeMask) {
    ++worn_;  // find() sees that it has no request.
  } else {
    ++entry.life;
    free_.push_back(index_of(op));
  }
  return status;
}

// `busy` says that an operation goes on, so it cannot be the result of one: a call with the timeout
// 0 ends with it where it would have to wait.
Status Ops::result_of(Status status) {
  if (status.code() != Code::busy) {
    return status;
  }
  if (status.info() == nullptr) {
    return Code::timed_out;
  }
  ErrorInfo info = *status.info();
  info.code = Code::timed_out;
  return Status(info);
}

Status Ops::wait(OpHandle op, std::int64_t deadline_ns) {
  Entry* entry = nullptr;
  Status status = claim(op, deadline_ns, entry);
  if (!status.ok()) {
    return status;
  }
  std::lock_guard lock(mutex_);
  return result_of(take(op, *entry));
}

Status Ops::wait_in_call(OpHandle op) {
  Entry* entry = nullptr;
  Status status = claim(op, Request::kForever, entry);
  if (!status.ok()) {
    return status;
  }
  std::lock_guard lock(mutex_);
  return take(op, *entry);
}

Status Ops::await(OpHandle op, std::int64_t deadline_ns) {
  Entry* entry = nullptr;
  Status status = claim(op, deadline_ns, entry);
  if (status.ok()) {
    std::lock_guard lock(mutex_);
    entry->claimed = false;
  }
  return status;
}

Ops::Outcome Ops::look(const char* call, OpHandle op) const {
  std::lock_guard lock(mutex_);
  const Entry* const entry = find(op);
  if (entry == nullptr) {
    return {State::none, unknown(call, op, tag_)};
  }
  // Acquire: partner of the release by the thread that ended it.
  if (entry->done.load(std::memory_order_acquire) == 0) {
    return {State::under_way,
            fail(Code::busy, "{}: operation {:#x} is still under way; wait for it", call, op)};
  }
  return {State::done, result_of(entry->request->status.clone())};
}

std::optional<Status> Ops::consume(OpHandle op) {
  std::lock_guard lock(mutex_);
  Entry* const entry = find(op);
  if (entry == nullptr || entry->queue != nullptr || entry->claimed ||
      entry->done.load(std::memory_order_acquire) == 0) {
    return std::nullopt;
  }
  return result_of(take(op, *entry));
}

Result<int> Ops::descriptor(OpHandle op) {
  std::lock_guard lock(mutex_);
  Entry* entry = find(op);
  if (entry == nullptr) {
    return unknown("op_fd", op, tag_);
  }
  if (entry->event < 0) {
    const bool done = entry->done.load(std::memory_order_relaxed) != 0;
    entry->event = ::eventfd(done ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  const int theirs = entry->event < 0 ? -1 : ::fcntl(entry->event, F_DUPFD_CLOEXEC, 0);
  if (theirs < 0) {
    return fail_native(Code::no_capacity, errno,
                       "op_fd: no descriptor is left ({}); close some, or raise `ulimit -n`",
                       std::strerror(errno));
  }
  return theirs;
}

void Ops::enter(std::shared_ptr<OpQueue> queue) {
  std::lock_guard lock(mutex_);
  queues_.push_back(std::move(queue));
}

Status Ops::add_to(OpQueue& queue, OpHandle op, void* user) {
  std::lock_guard lock(mutex_);
  Entry* const entry = find(op);
  if (entry == nullptr) {
    return unknown("queue_add", op, tag_);
  }
  if (entry->queue != nullptr) {
    return fail(Code::invalid_argument,
                "queue_add: operation {:#x} is in a queue already; add it once", op);
  }
  if (entry->claimed) {
    return waited_for("queue_add", op);
  }
  queue.add(*entry, op, user);
  if (entry->done.load(std::memory_order_acquire) != 0) {
    queue.push(*entry);
  }
  return {};
}

bool Ops::take_ended(OpQueue& queue, Ended& ended) {
  std::lock_guard lock(mutex_);
  OpQueue::Link* const link = queue.pop();
  if (link == nullptr) {
    return false;
  }
  ended = {link->op, link->user, result_of(take(link->op, static_cast<Entry&>(*link)))};
  return true;
}

std::size_t Ops::leave(OpQueue& queue) {
  std::lock_guard lock(mutex_);
  if (queue.held() == 0) {
    std::erase_if(queues_, [&](const auto& each) { return each.get() == &queue; });
  }
  return queue.held();
}

void Ops::end_queues() {
  std::lock_guard lock(mutex_);
  for (const std::shared_ptr<OpQueue>& queue : queues_) {
    queue->end();
  }
  queues_.clear();
}

void Ops::follow_fork() {
  for (const auto& entry : entries_) {
    entry->claimed = false;  // The thread that waited for it does not exist here.
    if (entry->event >= 0) {
      // Its copies in this process stay those of the parent's operation.
      best_effort(::close(std::exchange(entry->event, -1)), "the descriptor is gone in any case");
    }
  }
  for (const std::shared_ptr<OpQueue>& queue : queues_) {
    if (!queue->follow_fork()) {
      log_error(
          "fork: no descriptor is left for a queue of operations, which has none in this child; "
          "raise `ulimit -n`");
    }
  }
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
  return entries_.size() - free_.size() - worn_;
}

}  // namespace tiermem
