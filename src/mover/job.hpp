// The jobs of workers, as values: all work that can block or takes long. A worker takes a job, runs
// it, and returns it. It knows frames and addresses, but no extents. A copy to or from opaque
// memory continues without a worker; any free worker then runs the rest of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "policy/job_steps.hpp"
#include "residency/checksum.hpp"
#include "residency/slot_pages.hpp"
#include "tier/address_space.hpp"
#include "tier/direct_path.hpp"
#include "tier/memory.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class Workers;

/// The Completion is that of the copy in progress.
struct Job : Completion {
  std::uint32_t transfer = 0;  ///< The owner; ~0 for the mover's housekeeping.
  std::uint32_t steps = 0;
  Memory* tier = nullptr;
  FrameId frame{};
  Memory* other_tier = nullptr;  ///< kCopyOut, kCopyPeer: the tier of `other`.
  /// Also kRelocate: the frame that gets the bytes; kWithdrawTo, kRestoreFrom: the extent's frame.
  FrameId other{};
  Memory* host_tier = nullptr;
  FrameId host{};                ///< kTakeHome, kLockPages.
  std::byte* host_at = nullptr;  ///< kTakeHome; kRelocate: null if `frame` is at home.
  std::byte* at = nullptr;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  const std::byte* home = nullptr;
  PageMask pages = 0;    ///< Pages for kVerify, kHash and kInsert; 0: all.
  bool watched = false;  ///< kInsert: the pages are write-protected.
  PageMask zeros = 0;    ///< kVerify: pages of `data` that are cleared instead.
  Checksums* sums = nullptr;
  SlotPages* slot_pages = nullptr;  ///< kSpread, kMeasure.
  std::uint32_t spread_first = 0;   ///< kSpread: the pages [spread_first, spread_last).
  std::uint32_t spread_last = 0;
  SlotTier* slots = nullptr;
  DirectPath* direct = nullptr;  ///< kFetch, kStore.
  SlotId slot{};                 ///< kFetch, kStore: `bytes` of it, which is all.
  SlotTransfer io{};             ///< kReadSlot.
  // Relaxed: the mutex of the completions orders `tell` (Workers::copy_begun). If `stop` is seen
  // late, some more bytes are hashed.
  bool tell = false;  ///< Set atomically by the owner: wake it at Workers::copy_begun().
  bool stop = false;  ///< Set atomically by the owner: kHash ends early, and its sums are not used.

  // Set by run_job, like `status`.
  SlotCompletion read{};  ///< kReadSlot.
  bool checksum_bad = false;
  bool taken_home =
      false;            ///< kTakeHome: `host` has left its window. kRelocate: `other` is at home.
  bool locked = false;  ///< kLockPages: the pages are locked.
  std::uint32_t bad_block = 0;
  Mechanism mechanism = Mechanism::in_place;

  // Used by the code that runs the job.
  JobStep left = 0;            ///< Steps that have not begun.
  Workers* workers = nullptr;  ///< Notified when a copy ends.
};

/// Returns whether the job will still make the kernel allocate and clear pages.
inline bool brings_pages(const Job& job) {
  return (job.left & kPopulate) != 0;
}

/// Call it before run_job. Marks all steps as not begun.
void begin_job(Job& job, Workers* workers);
/// Runs the remaining steps. Returns false while a copy is in progress: the job must not be
/// accessed until Workers::copied() is called. Then call run_job again.
bool run_job(Job& job);

/// A job that has ended, or a copy that has begun.
struct Done {
  Job* job = nullptr;
  /// 0: the job is done. Otherwise its last step, a copy to a device, is in progress, and this is
  /// the copy's ordinal among the device's copies; another Done follows.
  std::uint64_t begun = 0;
};

/// The seam: a worker pool in the runtime, virtual time in the simulator.
class Workers {
 public:
  virtual ~Workers() = default;
  virtual void submit(Job* job) = 0;  // Owner's thread. The job stays the owner's memory.
  virtual std::size_t reap(std::span<Done> done) = 0;  // Owner's thread.
  /// Any thread. A copy of the job has ended.
  virtual void copied(Job& job) = 0;
  /// Any thread. The last step of the job is a copy to a device, which has begun.
  virtual void copy_begun(Job& job, std::uint64_t ordinal) = 0;
};

}  // namespace tiermem
