// Polling, waiting for and forgetting operations.
#include "op_table.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/in_call.hpp"

namespace tiermem::c_abi {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the remainder of a timeout that began at `begin`.
Timeout rest_of(Timeout timeout, Clock::time_point begin) {
  if (timeout.ns <= 0) {
    return timeout;
  }
  const std::int64_t gone =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  return {gone < timeout.ns ? timeout.ns - gone : 0};
}

}  // namespace

OpTable::OpTable(Context& context)
    : context_(context), tag_(context.impl().residency.tag.value()) {}

void OpTable::clear() {
  const std::lock_guard lock(mutex_);
  entries_ = Entries();
}

// A context that has ended has no operations.
Status OpTable::no_operation(const char* call, OpHandle op) {
  const CallMark context(context_);
  return context->is_tombstone() ? context->usable(call) : Ops::unknown(call, op, tag_);
}

OpTable::Room::~Room() {
  if (table_ != nullptr) {
    std::lock_guard lock(table_->mutex_);
    --table_->reserved_;
  }
}

void OpTable::Room::commit(OpHandle op) noexcept {
  OpTable* table = std::exchange(table_, nullptr);
  std::lock_guard lock(table->mutex_);
  --table->reserved_;
  node_.key() = op;
  // The buckets were reserved, so nothing is allocated unless the context has ended since.
  table->entries_.insert(std::move(node_));
}

Status OpTable::reserve(Room& room) {
  Entries one;
  one.try_emplace(0);
  std::lock_guard lock(mutex_);
  const std::size_t count = entries_.size() + reserved_;
  if (count >= kMost) {
    return fail(
        Code::busy,
        "{} operations have not been waited for, which is the maximum; wait for some of them",
        count);
  }
  entries_.reserve(count + 1);
  room.node_ = one.extract(one.begin());
  room.table_ = this;
  ++reserved_;
  return {};
}

// Interprets the context's answer about an operation that no other thread asks about. `busy` and
// `timed_out` may be the outcome of the operation, or mean that it is in progress. In the second
// case the context still knows the operation.
void OpTable::look(OpHandle op, Entry& entry, Status status) {
  if (status.code() == Code::busy || status.code() == Code::timed_out) {
    Status again = context_.op_poll(op);
    if (again.code() == Code::busy) {
      return;
    }
    if (again.code() != Code::invalid_argument) {
      status = std::move(again);  // It ended between the two calls.
    }
  }
  entry.outcome = std::move(status);
  entry.ended = true;
}

OpTable::Outcome OpTable::poll(const char* call, OpHandle op) {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(op);
  if (at == entries_.end()) {
    return {State::none, no_operation(call, op)};
  }
  Entry& entry = at->second;
  if (!entry.ended && !entry.waited_for) {
    look(op, entry, context_.op_poll(op));
  }
  if (!entry.ended) {
    return {State::under_way,
            fail(Code::busy, "{}: operation {:#x} is still under way; wait for it", call, op)};
  }
  return {State::ended, entry.outcome.clone()};
}

// Waits for one operation. Returns ok when it has ended.
Status OpTable::wait_one(OpHandle op, Timeout timeout) {
  {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(op);
    if (at == entries_.end()) {
      return no_operation("op_wait", op);
    }
    if (at->second.ended) {
      return {};
    }
    if (at->second.waited_for) {
      return fail(Code::busy,
                  "op_wait: another thread waits for operation {:#x}; wait in one thread", op);
    }
    at->second.waited_for = true;
  }
  Status status = context_.op_wait(op, timeout);
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(op);
  if (at == entries_.end()) {
    // Only the end of the context can have forgotten it during the wait.
    return no_operation("op_wait", op);
  }
  Entry& entry = at->second;
  entry.waited_for = false;
  look(op, entry, std::move(status));
  return entry.ended
             ? Status()
             : fail(Code::timed_out, "op_wait: operation {:#x} is still under way; wait again", op);
}

Status OpTable::wait(std::span<const OpHandle> ops, Timeout timeout) {
  const Clock::time_point begin = timeout.ns > 0 ? Clock::now() : Clock::time_point{};
  {
    std::lock_guard lock(mutex_);
    for (const OpHandle op : ops) {
      if (!entries_.contains(op)) {
        return no_operation("op_wait", op);
      }
    }
  }
  for (const OpHandle op : ops) {
    Status status = wait_one(op, rest_of(timeout, begin));
    if (!status.ok()) {
      return status;
    }
  }
  Status first;
  std::lock_guard lock(mutex_);
  for (const OpHandle& in_list : ops) {
    // Read the entry once: another thread may replace it with an operation that is in progress or
    // is being waited for.
    const OpHandle op = __atomic_load_n(&in_list, __ATOMIC_RELAXED);
    const auto at = entries_.find(op);
    if (at == entries_.end() || !at->second.ended || at->second.waited_for) {
      continue;  // For example, the list names it twice.
    }
    if (first.ok()) {
      first = std::move(at->second.outcome);
    }
    entries_.erase(at);
  }
  return first;
}

Result<int> OpTable::descriptor(OpHandle op) {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(op);
  if (at == entries_.end()) {
    return no_operation("op_fd", op);
  }
  if (!at->second.ended) {
    Result<int> theirs = context_.op_fd(op);
    if (theirs.code() != Code::invalid_argument) {
      return theirs;
    }
    // Another thread that waits for the operation has just found its end.
  }
  const int readable = ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
  if (readable < 0) {
    return fail_native(Code::no_capacity, errno, "op_fd: {}", std::strerror(errno));
  }
  return readable;
}

Status OpTable::cancel(OpHandle op) {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(op);
  if (at == entries_.end()) {
    return no_operation("op_cancel", op);
  }
  // Cancelling an operation that has ended has no effect and is not an error.
  if (!at->second.ended) {
    (void)context_.op_cancel(op);
  }
  return {};
}

}  // namespace tiermem::c_abi
