// Running a job on a hand.
#include "mover/job.hpp"

namespace tiermem {
namespace {

Status run_step(Job& job, JobStep step) {
  switch (step) {
    case kPopulate:
      return job.tier->populate(job.frame, (job.steps & kClear) != 0, job.at);
    case kClear:
      return {};
    case kVerify:
      job.bad_block = job.sums->mismatch(job.data);
      job.checksum_bad = job.bad_block != job.sums->count;
      return job.checksum_bad ? Status(Code::io_error) : Status();
    case kCopyIn:
      return job.tier->copy_in(job.frame, job.data, job.bytes);
    case kCopyOut:
      return job.other_tier->copy_out(job.data, job.other, job.bytes);
    case kHash:
      job.sums->compute(job.data);
      return {};
    case kMap:
      return job.tier->map(job.frame, job.at, job.mechanism);
    case kUnmap:
      return job.tier->unmap(job.frame, job.at);
    case kTrim:
      job.tier->run_trim();
      return {};
    case kGrow:
      return job.slots->grow(job.bytes);
    case kWithdraw:
      return job.tier->withdraw(job.frame, job.at);
    case kRestore:
      job.mechanism = Mechanism::uffd_move;
      return job.tier->restore(job.frame, job.at);
    default:
      break;
  }
  return Code::internal;
}

}  // namespace

void run_job(Job& job) {
  job.status = {};
  job.checksum_bad = false;
  for (std::uint32_t bit = 1; bit <= kRestore && job.status.ok(); bit <<= 1) {
    if ((job.steps & bit) != 0) {
      job.status = run_step(job, bit);
    }
  }
}

}  // namespace tiermem
