// The steps of jobs, as bits. Route chooses the steps of a transfer, and a worker runs them
// (mover/job.hpp). The comments name members of the job.
#pragma once

#include <cstdint>

namespace tiermem {

/// Steps of a job, run in this order; the first that fails ends it.
using JobStep = std::uint32_t;
inline constexpr JobStep kReadSlot = 1
                                     << 0;  ///< Reads `io` from `slots`, and waits for the device.
inline constexpr JobStep kPopulate = 1 << 1;  ///< Gets pages for `frame`.
inline constexpr JobStep kClear = 1 << 2;     ///< With kPopulate: clears them.
inline constexpr JobStep kShow = 1 << 3;      ///< Maps `frame` at `at`; also an opaque one.
inline constexpr JobStep kSpread = 1
                                   << 4;  ///< Moves pages of `data` from their places in the slot.
inline constexpr JobStep kVerify = 1 << 5;     ///< Compares `data` with `sums`.
inline constexpr JobStep kTakeHome = 1 << 6;   ///< `host` leaves `host_at`, or stays; sets `data`.
inline constexpr JobStep kLockPages = 1 << 7;  ///< Page-locks `host`, which has `data`, for a copy.
inline constexpr JobStep kCopyOut = 1 << 8;    ///< Copies `other` (opaque) to `data` (host).
inline constexpr JobStep kCopyIn = 1 << 9;     ///< Copies `data` (host) to `frame` (opaque).
inline constexpr JobStep kHash = 1 << 10;      ///< Computes `sums` of `data`.
inline constexpr JobStep kMap = 1 << 11;       ///< Maps `frame` at `at`.
inline constexpr JobStep kUnmap = 1 << 12;     ///< Unmaps `frame` from `at`.
inline constexpr JobStep kTrim = 1 << 13;      ///< `tier` returns cached frames to the kernel.
inline constexpr JobStep kGrow = 1 << 14;      ///< `slots` preallocates room for slots of `bytes`.
inline constexpr JobStep kWithdraw = 1 << 15;  ///< `frame` leaves `at` with its bytes, or stays.
inline constexpr JobStep kRestore = 1 << 16;   ///< Maps `frame` at `at`, where pages are absent.
inline constexpr JobStep kInsert = 1 << 17;    ///< Inserts `pages` of `data` at `at`.
inline constexpr JobStep kMergePages =
    1 << 18;                                ///< Copies all pages of `home` but `pages` to `data`.
inline constexpr JobStep kEmpty = 1 << 19;  ///< Removes `pages` of `frame` from `at`.
inline constexpr JobStep kCopyPeer = 1 << 20;  ///< Copies `other` to `frame`, both opaque.
inline constexpr JobStep kFetch = 1 << 21;  ///< Reads `slot` into `frame` (opaque), past the host.
inline constexpr JobStep kStore = 1 << 22;  ///< Writes `frame` (opaque) to `slot`, past the host.
inline constexpr JobStep kMeasure =
    1 << 23;  ///< Stores in `slot_pages` which pages of `data` are not zeros.
inline constexpr JobStep kRelocate = 1 << 24;  ///< Moves the bytes of `frame` to the frame `other`.
inline constexpr JobStep kPack = 1 << 25;      ///< Undoes kSpread.
/// `pages` of `other` leave `at` with their bytes for `frame`, or stay.
inline constexpr JobStep kWithdrawTo = 1 << 26;
inline constexpr JobStep kRestoreFrom = 1 << 27;  ///< Undoes kWithdrawTo.

/// Copies of opaque memory.
inline constexpr JobStep kCopies = kCopyOut | kCopyIn | kCopyPeer | kFetch | kStore;

/// Steps that prepare a frame for bytes.
inline constexpr JobStep kPrepare = kPopulate | kClear | kShow;

}  // namespace tiermem
