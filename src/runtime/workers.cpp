// The worker pool.
#include "runtime/workers.hpp"

#include <algorithm>
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
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(job);
    notify = asleep_ > 0;
  }
  if (notify) {
    available_.notify_one();
  }
}

std::size_t Workers::reap(std::span<Job*> done) {
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
    lock.unlock();
    run_job(*job);
    lock.lock();
    done_.push_back(job);
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace tiermem
