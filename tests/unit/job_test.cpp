// Jobs of workers on a memory that supports only what every memory must: a step that the memory
// does not support fails, and ends the job.
#include "mover/job.hpp"

#include <gtest/gtest.h>

#include "bare_tier.hpp"

namespace tiermem {
namespace {

using test::BareTier;

/// Runs a job with this one step, and returns its result.
Code end_of(JobStep step) {
  BareTier tier, other;
  Job job;
  job.steps = step;
  job.tier = &tier;
  job.other_tier = &other;
  job.host_tier = &tier;
  begin_job(job, nullptr);
  EXPECT_TRUE(run_job(job)) << "no step waits";
  EXPECT_FALSE(job.locked);
  EXPECT_FALSE(job.taken_home);
  return job.status.code();
}

TEST(Job, memory_does_not_support_a_step_then_the_job_fails) {
  for (const JobStep step :
       {kShow, kWithdraw, kRestore, kInsert, kEmpty, kCopyIn, kCopyOut, kCopyPeer}) {
    EXPECT_EQ(end_of(step), Code::unsupported) << "step " << step;
  }
  // A job succeeds without these steps.
  EXPECT_EQ(end_of(kTakeHome), Code::ok);
  EXPECT_EQ(end_of(kLockPages), Code::ok);
  EXPECT_EQ(end_of(JobStep{1} << 31), Code::internal) << "no such step";
}

TEST(Job, step_fails_then_no_later_step_runs) {
  BareTier tier;
  Job job;
  job.steps = kShow | kUnmap;
  job.tier = &tier;
  begin_job(job, nullptr);
  EXPECT_TRUE(run_job(job));
  EXPECT_EQ(job.status.code(), Code::unsupported);
  EXPECT_EQ(job.left, kUnmap);
}

}  // namespace
}  // namespace tiermem
