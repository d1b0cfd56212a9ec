// The worker pool.
#include "runtime/workers.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <system_error>

#include "base/own_thread.hpp"

namespace tiermem {

Workers::Workers(unsigned threads, std::function<void()> wake) : wake_(std::move(wake)) {
  start(threads);
}

void Workers::start(unsigned threads) {
  threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) {
    try {
      threads_.push_back(own_thread("tiermem-hand", [this] { work(); }));
    } catch (const std::system_error&) {
      break;
    }
  }
}

Workers::~Workers() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    queue_.clear();
  }
  available_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  std::unique_lock lock(mutex_);
  none_runs_.wait(lock, [&] { return running_ == 0; });
}

// Who waited or held the mutex does not exist here: these cannot be used, nor be destroyed.
bool Workers::follow_fork() {
  const auto threads = static_cast<unsigned>(threads_.size());
  for (std::thread& thread : threads_) {
    new (&thread) std::thread;
  }
  threads_.clear();
  new (&mutex_) std::mutex;
  new (&available_) std::condition_variable;
  asleep_ = 0;
  start(threads);
  return works();
}

void Workers::submit(Job* job) {
  bool notify = false;
  begin_job(*job, this);
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(job);
    notify = asleep_ > 0;
  }
  if (notify) {
    available_.notify_one();
  }
}

std::size_t Workers::reap(std::span<Done> done) {
  std::lock_guard lock(mutex_);
  const std::size_t n = std::min(done.size(), done_.size());
  std::copy_n(done_.begin(), n, done.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++asleep_;
    available_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    --asleep_;
    if (stop_) {
      return;
    }
    Job* job = queue_.front();
    queue_.pop_front();
    ++running_;
    lock.unlock();
    const bool over = run_job(*job);
    if (over) {
      end(*job);
    }
    lock.lock();
    running_ -= over ? 1 : 0;
  }
}

void Workers::end(Job& job) {
  {
    std::lock_guard lock(mutex_);
    done_.push_back({&job, 0});
  }
  wake_();
}

void Workers::copy_begun(Job& job, std::uint64_t ordinal) {
  {
    const std::lock_guard lock(mutex_);
    done_.push_back({&job, ordinal});
  }
  // After it: the owner sets the flag and then reaps, so that one of the two sees the other.
  if (std::atomic_ref(job.tell).load(std::memory_order_relaxed)) {
    wake_();
  }
}

// What is left of it comes before all that has not begun. The destructor waits for running_: it is
// the last that is touched.
void Workers::copied(Job& job) {
  const bool over = !job.status.ok() || job.left == 0;
  if (over) {
    end(job);
  }
  const std::lock_guard lock(mutex_);
  if (!over) {
    queue_.push_front(&job);
    available_.notify_one();
  }
  --running_;
  none_runs_.notify_one();
}

}  // namespace tiermem
