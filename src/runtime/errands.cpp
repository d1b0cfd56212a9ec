// The threads of errands.
#include "runtime/errands.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/own_thread.hpp"
#include "runtime/thrown.hpp"

namespace tiermem {

Result<OpHandle> Errands::send(Ops& ops, std::unique_ptr<Request> op,
                               std::unique_ptr<Errand> errand) {
  const std::lock_guard lock(mutex_);
  if (stop_) {
    return fail(Code::shut_down, "the context was closed during the call");
  }
  if (idle_ <= queue_.size() && threads_.size() < most_) {
    try {
      threads_.reserve(most_);
      running_.reserve(most_);
      threads_.push_back(own_thread<UsesReserve::no>("tiermem-errand", [this] { work(); }));
      ++idle_;  // From now on, so that the next errand does not count on it as well.
    } catch (const std::system_error&) {
      if (threads_.empty()) {
        return fail_native(
            Code::unavailable, EAGAIN,
            "operation: no thread can be created (RLIMIT_NPROC or pids.max); raise the limit");
      }
    }
  }
  Request* const raw = op.get();
  queue_.push_back({raw, std::move(errand)});  // Before the operation, which cannot be undone.
  OpHandle handle = 0;
  try {
    handle = ops.add(std::move(op));
  } catch (...) {
    queue_.pop_back();
    throw;
  }
  if (handle == 0) {
    queue_.pop_back();
    return fail(Code::busy,
                "{} operations are under way, which is the maximum; wait for some of them",
                Ops::kMost);
  }
  note_deadlines();
  sent_.notify_one();
  return handle;
}

// Requires the mutex.
void Errands::note_deadlines() {
  std::int64_t first = Request::kForever;
  for (const Sent& waiting : queue_) {
    first = std::min(first, waiting.errand->deadline());
  }
  first_deadline_.store(first, std::memory_order_relaxed);
}

// Requires the mutex.
template <typename Which>
void Errands::end_waiting(const Which& which, const char* why, Code code) {
  for (auto at = queue_.begin(); at != queue_.end();) {
    if (!which(*at)) {
      ++at;
      continue;
    }
    Sent ended = std::move(*at);
    at = queue_.erase(at);
    ended.errand->refuse(code);
    ended.op->status = fail(code, "operation: {}", why);
    ended.errand.reset();  // It uses the operation's flag.
    ended.op->on_done(*ended.op);
  }
  note_deadlines();
}

void Errands::end_cancelled() {
  const std::lock_guard lock(mutex_);
  end_waiting([](const Sent& sent) { return sent.op->cancel.load(std::memory_order_relaxed); },
              "cancelled by its owner", Code::cancelled);
}

std::int64_t Errands::end_late(std::int64_t now) {
  if (first_deadline_.load(std::memory_order_relaxed) <= now) {
    const std::lock_guard lock(mutex_);
    end_waiting([now](const Sent& sent) { return sent.errand->deadline() <= now; },
                "its time was over before a thread was free for it; pass a longer timeout",
                Code::timed_out);
  }
  return first_deadline_.load(std::memory_order_relaxed);
}

void Errands::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    sent_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    Sent next = std::move(queue_.front());
    queue_.pop_front();
    running_.push_back(next.op);
    --idle_;
    note_deadlines();
    lock.unlock();
    try {
      if (next.op->cancel.load(std::memory_order_relaxed)) {
        next.errand->refuse(Code::cancelled);
        next.op->status = fail(Code::cancelled, "operation: cancelled by its owner");
      } else {
        next.op->status = next.errand->run();
      }
    } catch (const std::exception& thrown) {
      next.op->status = why_thrown("operation", thrown);
      next.errand->refuse(next.op->status.code());
    }
    next.errand.reset();  // It uses the operation's flag.
    lock.lock();
    // Under the mutex, so that a child of fork finds the operation among these or done.
    std::erase(running_, next.op);
    next.op->on_done(*next.op);
    ++idle_;
  }
}

// A running errand is on the stack of a thread that does not exist, and never ends.
void Errands::follow_fork() {
  new (&mutex_) std::mutex;
  new (&sent_) std::condition_variable;
  for (std::thread& thread : threads_) {
    new (&thread) std::thread;
  }
  threads_.clear();
  idle_ = 0;
  for (; !queue_.empty(); queue_.pop_front()) {
    running_.push_back(queue_.front().op);
  }
  for (Request* const op : running_) {
    op->status = fail(Code::shut_down, "fork: asked before it, and answered in the parent only");
    op->on_done(*op);
  }
  running_.clear();
}

void Errands::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  sent_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
}

}  // namespace tiermem
