// Running a job on a worker.
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
    case kReadSlot:
      job.read = job.slots->read_here(job.io);
      return job.read.code;
    case kPopulate:
      return job.tier->populate(job.frame, (job.steps & kClear) != 0, job.at);
    case kClear:
      return {};
    case kShow:
      return job.tier->space().show(job.frame, job.at);
    case kSpread:
      job.slot_pages->spread(job.data, job.spread_first, job.spread_last);
      return {};
    case kMeasure:
      job.slot_pages->measure(job.data);
      return {};
    case kVerify:
      for (PageMask left = job.zeros; left != 0; left &= left - 1) {
        std::memset(job.data + static_cast<unsigned>(std::countr_zero(left)) * kSmallestExtent, 0,
                    kSmallestExtent);
      }
      job.bad_block = job.sums->mismatch(job.data, blocks_of(job) & ~job.zeros);
      job.checksum_bad = job.bad_block != job.sums->count;
      return job.checksum_bad ? Status(Code::io_error) : Status();
    case kTakeHome:
      job.taken_home = job.host_tier->space().take_home(job.host, job.host_at).ok();
      if (job.taken_home) {
        job.data = job.host_tier->space().bytes_at(job.host, job.host_at);
      }
      return {};  // Where it is, it is copied from.
    case kLockPages:
      job.locked = job.host_tier->lock_pages(job.host);
      return {};
    case kHash:
      job.sums->compute(job.data, blocks_of(job), &job.stop);
      return {};
    case kMap:
      return job.tier->space().map(job.frame, job.at, job.mechanism);
    case kUnmap:
      return job.tier->space().unmap(job.frame, job.at);
    case kTrim:
      job.tier->run_trim();
      return {};
    case kGrow:
      return job.slots->grow(job.bytes);
    case kWithdraw:
      return job.tier->space().withdraw(job.frame, job.at);
    case kRestore:
      job.mechanism = job.tier->space().restores_by(job.at);
      return job.tier->space().restore(job.frame, job.at);
    case kInsert:
      job.mechanism = Mechanism::copy;
      return job.tier->space().insert(job.frame, job.at, job.data, job.pages, job.watched);
    case kMergePages:
      for (std::uint64_t at = 0; at < job.bytes; at += kSmallestExtent) {
        if ((job.pages >> at / kSmallestExtent & 1) == 0) {
          std::memcpy(job.data + at, job.home + at, kSmallestExtent);
        }
      }
      return {};
    case kRelocate:
      job.mechanism = Mechanism::copy;
      return job.tier->space().relocate(job.frame, job.other, job.host_at, job.taken_home);
    case kWithdrawTo:
      return job.tier->space().withdraw_to(job.frame, job.other, job.at, job.pages);
    case kRestoreFrom:
      job.mechanism = job.tier->space().restores_by(job.at);
      return job.tier->space().restore_from(job.frame, job.other, job.at);
    case kPack:
      job.slot_pages->pack(job.data);
      return {};
    case kEmpty:
      return job.tier->space().empty(job.frame, job.at, job.pages);
    default:
      break;
  }
  return Code::internal;
}

// False: it goes on.
bool copy(Job& job, JobStep step) {
  job.begun = nullptr;
  if ((step == kCopyIn || step == kCopyPeer) && job.left == 0) {
    job.begun = [](Completion& end, std::uint64_t ordinal) {
      auto& its = static_cast<Job&>(end);
      its.workers->copy_begun(its, ordinal);
    };
  }
  switch (step) {
    case kCopyIn:
      return job.tier->copy_in(job.frame, job.data, job.bytes, job);
    case kCopyPeer:
      return job.tier->copy_from(job.frame, *job.other_tier, job.other, job.bytes, job);
    case kFetch:
      job.direct->fetch(*job.tier, job.frame, job.slot, job.bytes, job);
      return false;
    case kStore:
      job.direct->store(job.slot, *job.tier, job.frame, job.bytes, job);
      return false;
    default:
      return job.other_tier->copy_out(job.data, job.other, job.bytes, job);
  }
}

}  // namespace

void begin_job(Job& job, Workers* workers) {
  job.status = {};
  job.checksum_bad = false;
  job.read = {};
  job.taken_home = false;
  job.locked = false;
  job.left = job.steps;
  job.workers = workers;
  job.ended = [](Completion& end) {
    auto& its = static_cast<Job&>(end);
    its.workers->copied(its);
  };
}

bool run_job(Job& job) {
  while (job.left != 0 && job.status.ok()) {
    const JobStep step = job.left & -job.left;
    job.left &= job.left - 1;
    if ((step & kCopies) == 0) {
      job.status = run_step(job, step);
    } else if (!copy(job, step)) {
      return false;
    }
  }
  return true;
}

}  // namespace tiermem
