// The worker pool.
#include "runtime/worker_threads.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <system_error>

#include "base/own_thread.hpp"

namespace tiermem {
namespace {

bool starts_copy(const Job& job) {
  constexpr JobStep kBefore = kTakeHome | kLockPages;
  return (job.left & kCopies) != 0 && (job.left & ~(kCopies | kBefore)) == 0;
}

}  // namespace

WorkerThreads::WorkerThreads(unsigned workers, unsigned populate_workers,
                             std::function<void()> wake)
    : wake_(std::move(wake)),
      workers_{.only_fills = false, .wanted = workers, .available = {}},
      populate_workers_{.only_fills = true, .wanted = populate_workers, .available = {}} {
  start();
}

bool WorkerThreads::start() {
  threads_.reserve(workers_.wanted + populate_workers_.wanted);
  start(workers_);
  if (works()) {
    start(populate_workers_);
  }
  return works();
}

void WorkerThreads::start(Crew& crew) {
  for (crew.born = 0; crew.born < crew.wanted; ++crew.born) {
    try {
      threads_.push_back(own_thread(crew.only_fills ? "tiermem-filler" : "tiermem-worker",
                                    [this, &crew] { work(crew); }));
    } catch (const std::system_error&) {
      break;
    }
  }
}

WorkerThreads::~WorkerThreads() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    queue_.clear();
    first_.clear();
  }
  workers_.available.notify_all();
  populate_workers_.available.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  std::unique_lock lock(mutex_);
  none_runs_.wait(lock, [&] { return running_ == 0; });
}

// Threads that waited or held the mutex do not exist here: these objects can be neither used nor
// destroyed.
bool WorkerThreads::follow_fork() {
  for (std::thread& thread : threads_) {
    new (&thread) std::thread;
  }
  threads_.clear();
  new (&mutex_) std::mutex;
  for (Crew* crew : {&workers_, &populate_workers_}) {
    new (&crew->available) std::condition_variable;
    crew->asleep = 0;
  }
  // A worker reports its job before it counts it off, and the parent may have forked in between.
  new (&none_runs_) std::condition_variable;
  running_ = 0;
  return start();
}

void WorkerThreads::submit(Job* job) {
  Crew* notify = nullptr;
  begin_job(*job, this);
  const bool fills = brings_pages(*job);
  {
    std::lock_guard lock(mutex_);
    (starts_copy(*job) ? first_ : queue_).push_back(job);
    if (fills && populate_workers_.asleep > 0 && workers_.asleep < queue_.size()) {
      notify = &populate_workers_;
    } else if (workers_.asleep > 0) {
      notify = &workers_;
    }
  }
  if (notify != nullptr) {
    notify->available.notify_one();
  }
}

std::size_t WorkerThreads::reap(std::span<Done> done) {
  std::lock_guard lock(mutex_);
  const std::size_t n = std::min(done.size(), done_.size());
  std::copy_n(done_.begin(), n, done.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}

// Returns the next job for one of these threads, or null. The queues are short: each transfer has
// at most one job.
Job* WorkerThreads::take_for(const Crew& crew) {
  Deque<Job*>& from = crew.only_fills || first_.empty() ? queue_ : first_;
  const auto next = crew.only_fills
                        ? std::find_if(from.begin(), from.end(),
                                       [](const Job* job) { return brings_pages(*job); })
                        : from.begin();
  if (next == from.end()) {
    return nullptr;
  }
  Job* const job = *next;
  from.erase(next);
  return job;
}

void WorkerThreads::work(Crew& crew) {
  std::unique_lock lock(mutex_);
  for (;;) {
    Job* job = nullptr;
    ++crew.asleep;
    crew.available.wait(lock, [&] { return stop_ || (job = take_for(crew)) != nullptr; });
    --crew.asleep;
    if (stop_) {
      return;
    }
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

void WorkerThreads::end(Job& job) {
  {
    std::lock_guard lock(mutex_);
    done_.push_back({&job, 0});
  }
  wake_();
}

void WorkerThreads::copy_begun(Job& job, std::uint64_t ordinal) {
  {
    const std::lock_guard lock(mutex_);
    done_.push_back({&job, ordinal});
  }
  // After the push: the owner sets the flag and then reaps, so one of the two sees the other.
  if (std::atomic_ref(job.tell).load(std::memory_order_relaxed)) {
    wake_();
  }
}

// The rest of the job comes before jobs that have not begun. The destructor waits for running_: it
// is the last that is touched.
void WorkerThreads::copied(Job& job) {
  const bool over = !job.status.ok() || job.left == 0;
  if (over) {
    end(job);
  }
  const std::lock_guard lock(mutex_);
  if (!over) {
    first_.push_front(&job);
    workers_.available.notify_one();
  }
  --running_;
  none_runs_.notify_one();
}

}  // namespace tiermem
