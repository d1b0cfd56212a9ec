// What a hand does: everything that can block or takes long, as a value. A hand gets a job, runs
// it, and returns it; it knows frames and addresses, and no extent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mover/checksum.hpp"
#include "tier/tier.hpp"

namespace tiermem {

/// Steps of a job, run in this order; the first that fails ends it.
using JobStep = std::uint32_t;
inline constexpr JobStep kPopulate = 1 << 0;   ///< Pages for `frame`.
inline constexpr JobStep kClear = 1 << 1;      ///< With kPopulate: and zeros in them.
inline constexpr JobStep kVerify = 1 << 2;     ///< `data` against `sums`.
inline constexpr JobStep kCopyOut = 1 << 3;    ///< `other` (opaque) into `data` (host).
inline constexpr JobStep kCopyIn = 1 << 4;     ///< `data` (host) into `frame` (opaque).
inline constexpr JobStep kHash = 1 << 5;       ///< `data` into `sums`.
inline constexpr JobStep kMap = 1 << 6;        ///< `frame` appears at `at`.
inline constexpr JobStep kUnmap = 1 << 7;      ///< `frame` leaves `at`.
inline constexpr JobStep kTrim = 1 << 8;       ///< `tier` gives cached frames back to the kernel.
inline constexpr JobStep kGrow = 1 << 9;       ///< `slots` preallocates room for slots of `bytes`.
inline constexpr JobStep kWithdraw = 1 << 10;  ///< `frame` leaves `at` with its bytes, or stays.
inline constexpr JobStep kRestore = 1 << 11;   ///< `frame` appears at `at`, which is mapped.

inline constexpr JobStep kInsert = 1 << 12;  ///< `pages` of `data` appear at `at`.
inline constexpr JobStep kGather = 1 << 13;  ///< All but `pages` of `home` are copied to `data`.
inline constexpr JobStep kEmpty = 1 << 14;   ///< `pages` of `frame` are no more at `at`.

struct Job {
  std::uint32_t transfer = 0;  ///< Whose it is; ~0 for the mover's housekeeping.
  std::uint32_t steps = 0;
  AddressableTier* tier = nullptr;
  FrameId frame{};
  AddressableTier* other_tier = nullptr;  ///< kCopyOut: where `other` lives.
  FrameId other{};
  std::byte* at = nullptr;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  const std::byte* home = nullptr;
  PageMask pages = 0;    ///< Of which kVerify, kHash and kInsert are to be; 0: of all.
  bool watched = false;  ///< kInsert: they come watched.
  PageMask zeros = 0;    ///< kVerify: pages of `data` that are made zeros instead.
  Checksums* sums = nullptr;
  SlotTier* slots = nullptr;
  bool stop = false;  ///< Set atomically by the owner: kHash ends early, its sums are of no use.

  // Filled by run_job.
  Status status;
  bool checksum_bad = false;
  std::uint32_t bad_block = 0;
  Mechanism mechanism = Mechanism::in_place;
};

void run_job(Job& job);

/// The seam: a worker pool in the runtime, virtual time in the simulator.
class Hands {
 public:
  virtual ~Hands() = default;
  virtual void submit(Job* job) = 0;  // Owner's thread. The job stays the owner's memory.
  virtual std::size_t reap(std::span<Job*> done) = 0;  // Owner's thread.
};

}  // namespace tiermem
