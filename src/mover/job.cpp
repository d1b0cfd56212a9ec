// Running a job on a hand.
#include "mover/job.hpp"

#include <bit>
#include <cstring>

namespace tiermem {
namespace {

std::uint32_t blocks_of(const Job& job) {
  return job.pages == 0 ? Checksums::kAll : job.pages;
}

Status run_step(Job& job, JobStep step) {
  switch (step) {
    case kPopulate:
      return job.tier->populate(job.frame, (job.steps & kClear) != 0, job.at);
    case kClear:
      return {};
    case kVerify:
      for (PageMask left = job.zeros; left != 0; left &= left - 1) {
        std::memset(job.data + static_cast<unsigned>(std::countr_zero(left)) * kSmallestExtent, 0,
                    kSmallestExtent);
      }
      job.bad_block = job.sums->mismatch(job.data, blocks_of(job) & ~job.zeros);
      job.checksum_bad = job.bad_block != job.sums->count;
      return job.checksum_bad ? Status(Code::io_error) : Status();
    case kCopyIn:
      return job.tier->copy_in(job.frame, job.data, job.bytes);
    case kCopyOut:
      return job.other_tier->copy_out(job.data, job.other, job.bytes);
    case kHash:
      job.sums->compute(job.data, blocks_of(job), &job.stop);
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
      job.mechanism = job.tier->restores_by();
      return job.tier->restore(job.frame, job.at);
    case kInsert:
      job.mechanism = Mechanism::copy;
      return job.tier->insert(job.frame, job.at, job.data, job.pages, job.watched);
    case kGather:
      for (std::uint64_t at = 0; at < job.bytes; at += kSmallestExtent) {
        if ((job.pages >> at / kSmallestExtent & 1) == 0) {
          std::memcpy(job.data + at, job.home + at, kSmallestExtent);
        }
      }
      return {};
    case kEmpty:
      return job.tier->empty(job.frame, job.at, job.pages);
    default:
      break;
  }
  return Code::internal;
}

}  // namespace

void run_job(Job& job) {
  job.status = {};
  job.checksum_bad = false;
  for (std::uint32_t bit = 1; bit <= kEmpty && job.status.ok(); bit <<= 1) {
    if ((job.steps & bit) != 0) {
      job.status = run_step(job, bit);
    }
  }
}

}  // namespace tiermem
