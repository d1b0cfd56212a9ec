// The worker pool.
#include "runtime/workers.hpp"

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

Workers::Workers(unsigned hands, unsigned fillers, std::function<void()> wake)
    : wake_(std::move(wake)),
      hands_{.only_fills = false, .wanted = hands, .available = {}},
      fillers_{.only_fills = true, .wanted = fillers, .available = {}} {
  start();
}

bool Workers::start() {
  threads_.reserve(hands_.wanted + fillers_.wanted);
  start(hands_);
  if (works()) {
    start(fillers_);
  }
  return works();
}

void Workers::start(Crew& crew) {
  for (crew.born = 0; crew.born < crew.wanted; ++crew.born) {
    try {
      threads_.push_back(own_thread(crew.only_fills ? "tiermem-filler" : "tiermem-hand",
                                    [this, &crew] { work(crew); }));
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
    first_.clear();
  }
  hands_.available.notify_all();
  fillers_.available.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  std::unique_lock lock(mutex_);
  none_runs_.wait(lock, [&] { return running_ == 0; });
}

// Threads that waited or held the mutex do not exist here: these objects can be neither used nor
// destroyed.
bool Workers::follow_fork() {
  for (std::thread& thread : threads_) {
    new (&thread) std::thread;
  }
  threads_.clear();
  new (&mutex_) std::mutex;
  for (Crew* crew : {&hands_, &fillers_}) {
    new (&crew->available) std::condition_variable;
    crew->asleep = 0;
  }
  // A hand reports its job before it counts it off, and the parent may have forked in between.
  new (&none_runs_) std::condition_variable;
  running_ = 0;
  return start();
}

void Workers::submit(Job* job) {
  Crew* notify = nullptr;
  begin_job(*job, this);
  const bool fills = brings_pages(*job);
  {
    std::lock_guard lock(mutex_);
    (starts_copy(*job) ? first_ : queue_).push_back(job);
    if (fills && fillers_.asleep > 0 && hands_.asleep < queue_.size()) {
      notify = &fillers_;
    } else if (hands_.asleep > 0) {
      notify = &hands_;
    }
  }
  if (notify != nullptr) {
    notify->available.notify_one();
  }
}

std::size_t Workers::reap(std::span<Done> done) {
  std::lock_guard lock(mutex_);
  const std::size_t n = std::min(done.size(), done_.size());
  std::copy_n(done_.begin(), n, done.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}

// Returns the next job for one of these threads, or null. The queues are short: each transfer has
// at most one job.
Job* Workers::take_for(const Crew& crew) {
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

void Workers::work(Crew& crew) {
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
  // After the push: the owner sets the flag and then reaps, so one of the two sees the other.
  if (std::atomic_ref(job.tell).load(std::memory_order_relaxed)) {
    wake_();
  }
}

// The rest of the job comes before jobs that have not begun. The destructor waits for running_: it
// is the last that is touched.
void Workers::copied(Job& job) {
  const bool over = !job.status.ok() || job.left == 0;
  if (over) {
    end(job);
  }
  const std::lock_guard lock(mutex_);
  if (!over) {
    first_.push_front(&job);
    hands_.available.notify_one();
  }
  --running_;
  none_runs_.notify_one();
}

}  // namespace tiermem
