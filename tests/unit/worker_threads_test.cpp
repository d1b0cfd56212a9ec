// The worker pool: each job is reported once, and the pool's end waits for running jobs. A child of
// fork has workers of its own, whatever its parent's workers were doing.
#include "runtime/worker_threads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <semaphore>
#include <thread>
#include <vector>

#include "bare_tier.hpp"
#include "in_child.hpp"
#include "support/sanitizers.hpp"

namespace tiermem {
namespace {

/// A job without a step: a worker takes it and reports its end.
class Told {
 public:
  Job job;
  /// Waits until the end is reported.
  bool by(WorkerThreads& workers) {
    std::vector<Done> done(1);
    for (int tries = 0; tries < 5000 && !told_; ++tries) {
      told_ = workers.reap(done) == 1 && done[0].job == &job;
      ::usleep(told_ ? 0 : 1000);
    }
    return told_;
  }

 private:
  bool told_ = false;
};

// The parent's worker has no job in the child, and the child does not wait for it. If it were still
// counted, the child's end would wait for ever.
TEST(WorkersTest, a_fork_between_the_two_steps_of_a_hand_is_no_job_of_the_childs) {
  if (test::kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer takes the child's first thread for its parent's worker";
  }
  std::binary_semaphore between(0), on(0);
  const pid_t parent = ::getpid();
  WorkerThreads workers(1, 0, [&] {
    if (::getpid() == parent) {
      between.release();
      on.acquire();
    }
  });
  ASSERT_TRUE(workers.works());
  Told first;
  workers.submit(&first.job);
  between.acquire();  // The job is reported, and the worker is not yet counted as idle.
  EXPECT_TRUE(in_child([&] {
    Told second;
    bool works = workers.follow_fork();
    workers.submit(&second.job);
    works = works && first.by(workers) && second.by(workers);
    workers.~WorkerThreads();
    return works;
  }));
  on.release();
  EXPECT_TRUE(first.by(workers));
}

TEST(WorkersTest, what_runs_at_the_end_is_waited_for) {
  std::binary_semaphore between(0), on(0);
  std::atomic<bool> ended = false;
  Job job;
  std::thread later;
  {
    WorkerThreads workers(1, 0, [&] {
      between.release();
      on.acquire();
      ended = true;
    });
    workers.submit(&job);
    between.acquire();
    later = std::thread([&] {
      ::usleep(20'000);
      on.release();
    });
  }
  EXPECT_TRUE(ended);
  later.join();
}

// A device must not be idle while workers prepare frames for later copies.
TEST(WorkersTest, job_that_starts_a_copy_comes_before_jobs_that_do_not) {
  std::counting_semaphore<> ended(0);
  std::binary_semaphore on(0);
  std::atomic<bool> first_has_ended = false;
  WorkerThreads workers(1, 0, [&] {
    const bool first = !first_has_ended.exchange(true);
    ended.release();
    if (first) {
      on.acquire();  // The worker is busy while the other jobs are submitted.
    }
  });
  test::BareTier tier;
  Job first, prepares, copies;
  for (Job* job : {&first, &prepares, &copies}) {
    job->tier = &tier;
    job->other_tier = &tier;
  }
  prepares.steps = kPopulate;
  copies.steps = kLockPages | kCopyOut;
  copies.host_tier = &tier;
  workers.submit(&first);
  ended.acquire();
  workers.submit(&prepares);
  workers.submit(&copies);
  on.release();
  ended.acquire();
  ended.acquire();
  std::vector<Done> done(4);
  ASSERT_EQ(workers.reap(done), 3u);
  EXPECT_EQ(done[1].job, &copies);
  EXPECT_EQ(done[2].job, &prepares);
}

// Fewer workers than jobs; each job is reported once.
TEST(WorkersTest, every_job_is_told_of_once) {
  std::counting_semaphore<> news(0);
  WorkerThreads workers(3, 1, [&] { news.release(); });
  std::vector<Job> jobs(100);
  for (Job& job : jobs) {
    workers.submit(&job);
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    news.acquire();
  }
  std::vector<Done> done(2 * jobs.size());
  EXPECT_EQ(workers.reap(done), jobs.size());
  for (const Job& job : jobs) {
    EXPECT_EQ(
        std::count_if(done.begin(), done.end(), [&](const Done& each) { return each.job == &job; }),
        1);
  }
}

}  // namespace
}  // namespace tiermem
