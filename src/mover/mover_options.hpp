// The settings of a mover. The runtime derives them from its configuration.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/memory_limits.hpp"
#include "policy/slot_level.hpp"
#include "tier/direct_path.hpp"
#include "tier/frame.hpp"

namespace tiermem {

struct MoverOptions {
  bool checksums = true;
  std::uint32_t checksum_block_bytes = 64 << 10;
  unsigned prefetch_limit = 64;  ///< Max number of prefetches in progress or waiting for frames.
  std::uint64_t ahead_bytes_max = 64 << 20;   ///< Max bytes that are evicted ahead of need.
  std::uint64_t endurance_bytes_per_day = 0;  ///< Max writes to the block tier; 0: no limit.
  /// One part in this many of a slot tier is kept ready, where another tier follows.
  std::uint64_t ready_share = SlotLevel::kShare;
  /// Jobs on up to this many bytes, without a system call, run inline in the step: to wake a worker
  /// and to be woken by it takes longer.
  std::uint64_t own_job_bytes = std::uint64_t{64} << 10;
  /// Workers run all jobs that move pages when several requests wait.
  bool workers_move = false;
  std::uint64_t scan_bytes = 1 << 20;  ///< Max bytes read ahead of a scan of several threads.
  /// Logarithm of the number of pages that come with a touch before the mover knows the program.
  unsigned usual_part = 2;
  /// Level of a missed page, at least: see PageLevels. Not 0 only in tests.
  unsigned least_level = 0;
  /// Size of a bounce area, where pages of partial extents arrive: the largest extent that can be
  /// partial. There is one for each `budget_per_bounce_area` bytes of budget, up to 8, for scans up
  /// to 64.
  std::uint64_t bounce_area_bytes = kMostParts * kSmallestExtent;
  std::uint64_t budget_per_bounce_area = 64 * kMostParts * kSmallestExtent;
  /// Initial backoff for a degraded device; doubles up to 32 times this value.
  std::int64_t degraded_ns = 30'000'000'000;
  std::uint32_t receipts = 4096;    ///< Number of receipts kept.
  std::uint64_t staging_bytes = 0;  ///< For opaque memory; charged to the host's budget.
  /// Names the limit that makes the system refuse `bytes`: host::explain_refusal. May be null.
  void (*explain)(std::uint64_t bytes, host::Wanted wanted, char* text, std::size_t text_room,
                  char* setting, std::size_t setting_room) = nullptr;
  DirectPath* direct = nullptr;  ///< Between slots of the block tier and opaque memory.
  /// A power of two: the largest extent that can go to opaque memory.
  std::uint64_t staging_frame_bytes = kDefaultExtent;
};

}  // namespace tiermem
