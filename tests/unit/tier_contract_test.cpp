// The tier contract: a call that a memory does not support is refused with the right error, and
// jobs that need it end.
#include <gtest/gtest.h>

#include "bare_tier.hpp"
#include "mover/job.hpp"

namespace tiermem {
namespace {

using test::BareTier;

TEST(TierContract, a_memory_that_offers_nothing_more_promises_nothing) {
  BareTier tier;
  EXPECT_FALSE(tier.lost());
  EXPECT_TRUE(tier.loss().ok());
  EXPECT_FALSE(tier.withdraws_slowly({0}));
  EXPECT_FALSE(tier.restores_at_once({0}));
  EXPECT_FALSE(tier.takes_parts(kDefaultExtent));
  EXPECT_FALSE(tier.acquire_parts({}, 1).valid());
  EXPECT_FALSE(tier.charge_parts({0}, 1));
  EXPECT_FALSE(tier.may_be_unchanged({0}));
  EXPECT_FALSE(tier.lock_pages({0}));
  EXPECT_FALSE(tier.has_locked_pages({0}));
  EXPECT_FALSE(tier.shows({0}, nullptr));
  EXPECT_FALSE(tier.reaches(tier));
  AddressableTier::Unchanged one{{0}, nullptr, false};
  tier.drop_unchanged({&one, 1});
  EXPECT_FALSE(one.dropped);
}

/// Runs a job with this one step. Returns its result.
Code end_of(JobStep step) {
  BareTier tier, other;
  Job job;
  job.steps = step;
  job.tier = &tier;
  job.other_tier = &other;
  job.host_tier = &tier;
  begin_job(job, nullptr);
  EXPECT_TRUE(run_job(job)) << "nothing goes on";
  EXPECT_FALSE(job.locked);
  EXPECT_FALSE(job.taken_home);
  return job.status.code();
}

TEST(TierContract, jobs_that_ask_for_more_are_refused) {
  for (const JobStep step :
       {kShow, kWithdraw, kRestore, kInsert, kEmpty, kCopyIn, kCopyOut, kCopyPeer}) {
    EXPECT_EQ(end_of(step), Code::unsupported) << "step " << step;
  }
  // Jobs succeed without these steps.
  EXPECT_EQ(end_of(kTakeHome), Code::ok);
  EXPECT_EQ(end_of(kLockPages), Code::ok);
  EXPECT_EQ(end_of(JobStep{1} << 31), Code::internal) << "no such step";
}

TEST(TierContract, the_first_step_that_fails_ends_a_job) {
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
