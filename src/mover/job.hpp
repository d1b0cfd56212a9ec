// What a hand does: everything that can block or takes long, as a value. A hand gets a job, runs
// it, and returns it; it knows frames and addresses, and no extent. A copy to or from opaque memory
// goes on without a hand: whichever hand is free does what is left of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mover/checksum.hpp"
#include "mover/slot_pages.hpp"
#include "tier/direct_path.hpp"
#include "tier/tier.hpp"

namespace tiermem {

/// Steps of a job, run in this order; the first that fails ends it.
using JobStep = std::uint32_t;
inline constexpr JobStep kPopulate = 1 << 0;  ///< Pages for `frame`.
inline constexpr JobStep kClear = 1 << 1;     ///< With kPopulate: and zeros in them.
inline constexpr JobStep kShow = 1 << 2;      ///< `frame` appears at `at`; an opaque one, too.
inline constexpr JobStep kSpread = 1
                                   << 3;  ///< Pages of `data` as in the slot come to their places.
inline constexpr JobStep kVerify = 1 << 4;     ///< `data` against `sums`.
inline constexpr JobStep kTakeHome = 1 << 5;   ///< `host` leaves `host_at`, or stays: `data`.
inline constexpr JobStep kLockPages = 1 << 6;  ///< Of `host`, where `data` is, for a copy.
inline constexpr JobStep kCopyOut = 1 << 7;    ///< `other` (opaque) into `data` (host).
inline constexpr JobStep kCopyIn = 1 << 8;     ///< `data` (host) into `frame` (opaque).
inline constexpr JobStep kHash = 1 << 9;       ///< `data` into `sums`.
inline constexpr JobStep kMap = 1 << 10;       ///< `frame` appears at `at`.
inline constexpr JobStep kUnmap = 1 << 11;     ///< `frame` leaves `at`.
inline constexpr JobStep kTrim = 1 << 12;      ///< `tier` gives cached frames back to the kernel.
inline constexpr JobStep kGrow = 1 << 13;      ///< `slots` preallocates room for slots of `bytes`.
inline constexpr JobStep kWithdraw = 1 << 14;  ///< `frame` leaves `at` with its bytes, or stays.
inline constexpr JobStep kRestore = 1 << 15;   ///< `frame` appears at `at`, which is mapped.
inline constexpr JobStep kInsert = 1 << 16;    ///< `pages` of `data` appear at `at`.
inline constexpr JobStep kGather = 1 << 17;    ///< All but `pages` of `home` are copied to `data`.
inline constexpr JobStep kEmpty = 1 << 18;     ///< `pages` of `frame` are no more at `at`.
inline constexpr JobStep kCopyPeer = 1 << 19;  ///< `other` into `frame`, both opaque.
inline constexpr JobStep kFetch = 1 << 20;     ///< `slot` into `frame` (opaque), past the host.
inline constexpr JobStep kStore = 1 << 21;     ///< `frame` (opaque) into `slot`, past the host.
inline constexpr JobStep kMeasure =
    1 << 22;  ///< Pages of `data` that are not zeros, into `slot_pages`.

/// Copies of opaque memory.
inline constexpr JobStep kCopies = kCopyOut | kCopyIn | kCopyPeer | kFetch | kStore;

/// What makes a frame ready for the bytes that come.
inline constexpr JobStep kPrepare = kPopulate | kClear | kShow;

class Hands;

/// The Ending is that of the copy which goes on.
struct Job : Ending {
  std::uint32_t transfer = 0;  ///< Whose it is; ~0 for the mover's housekeeping.
  std::uint32_t steps = 0;
  AddressableTier* tier = nullptr;
  FrameId frame{};
  AddressableTier* other_tier = nullptr;  ///< kCopyOut, kCopyPeer: where `other` lives.
  FrameId other{};
  AddressableTier* host_tier = nullptr;
  FrameId host{};                ///< kTakeHome, kLockPages.
  std::byte* host_at = nullptr;  ///< kTakeHome.
  std::byte* at = nullptr;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  const std::byte* home = nullptr;
  PageMask pages = 0;    ///< Of which kVerify, kHash and kInsert are to be; 0: of all.
  bool watched = false;  ///< kInsert: they come watched.
  PageMask zeros = 0;    ///< kVerify: pages of `data` that are made zeros instead.
  Checksums* sums = nullptr;
  SlotPages* slot_pages = nullptr;  ///< kSpread, kMeasure.
  std::uint32_t spread_first = 0;   ///< kSpread: from this page to before the next of these two.
  std::uint32_t spread_last = 0;
  SlotTier* slots = nullptr;
  DirectPath* direct = nullptr;  ///< kFetch, kStore.
  SlotId slot{};                 ///< kFetch, kStore: all of it, `bytes`.
  // Relaxed: `tell` is ordered by the mutex of the completions (Workers::copy_begun); `stop` seen
  // late is some hashing more.
  bool tell = false;  ///< Set atomically by the owner: it wants to know of Hands::copy_begun() now.
  bool stop = false;  ///< Set atomically by the owner: kHash ends early, its sums are of no use.

  // Filled by run_job, as `status`.
  bool checksum_bad = false;
  bool taken_home = false;  ///< kTakeHome: `host` has left its window.
  bool locked = false;      ///< kLockPages: they are.
  std::uint32_t bad_block = 0;
  Mechanism mechanism = Mechanism::in_place;

  // Of whoever runs it.
  JobStep left = 0;        ///< Steps that have not begun.
  Hands* hands = nullptr;  ///< Told of the end of a copy.
};

/// Whether the kernel is still to make pages for it, and to clear them.
inline bool brings_pages(const Job& job) {
  return (job.left & kPopulate) != 0;
}

/// Before run_job: all of its steps are to be run.
void begin_job(Job& job, Hands* hands);
/// Runs the steps that are left. False: a copy goes on, nothing of the job may be touched, and
/// Hands::copied() will be called; run_job then goes on.
bool run_job(Job& job);

/// News of a job.
struct Done {
  Job* job = nullptr;
  /// 0: it is done. Else its last step, a copy to a device, goes on, and is this one in the order
  /// of the device's copies; another Done follows.
  std::uint64_t begun = 0;
};

/// The seam: a worker pool in the runtime, virtual time in the simulator.
class Hands {
 public:
  virtual ~Hands() = default;
  virtual void submit(Job* job) = 0;  // Owner's thread. The job stays the owner's memory.
  virtual std::size_t reap(std::span<Done> done) = 0;  // Owner's thread.
  /// Any thread. A copy of the job has ended.
  virtual void copied(Job& job) = 0;
  /// Any thread. The last step of the job is a copy to a device, which has begun.
  virtual void copy_begun(Job& job, std::uint64_t ordinal) = 0;
};

}  // namespace tiermem
