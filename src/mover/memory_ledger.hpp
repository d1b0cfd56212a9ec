// One memory, as the mover sees it: frames under one budget, in exactly one address space, which
// may have several memories (mover/memories.hpp). The stepping thread only; workers hold the job
// `trim`.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/arena.hpp"
#include "mover/backoff.hpp"
#include "mover/job.hpp"
#include "mover/never.hpp"
#include "policy/recency.hpp"
#include "residency/extents.hpp"
#include "tier/address_space.hpp"
#include "tier/memory.hpp"

namespace tiermem {

struct MemoryLedger {
  Memory* tier = nullptr;
  unsigned space = kHost;  ///< The address space of its frames.
  unsigned index = 0;      ///< Its position among the memories of all spaces.
  Recency recency;
  /// Bytes that transfers in progress and the trim will free.
  std::uint64_t freeing = 0;
  /// Bytes kept free ahead of need. Grows when a request waits for room, shrinks without waits.
  std::uint64_t ahead = 0;
  std::uint64_t returned = 0;  ///< Bytes of frames returned so far.
  /// Bytes of a frame that a victim of another memory took, or wanted, since evict_ahead() was
  /// called for one.
  std::uint64_t taken_for_victims = 0;
  /// By size_class(): bytes for frames inside what the tier charges already (chunks of small
  /// frames), derived from the changes of its usage. 0 after the tier had no frame of this size.
  std::array<std::uint64_t, 64> gaps{};
  bool evicted_at_once = false;  ///< The search for victims has returned frames in this step.
  bool lost = false;             ///< The tier is lost: no bytes go there any more.
  Vector<ExtentRef> remains;     ///< Lost memory: extents that still have a copy there.
  Backoff exit_backoff;          ///< After a copy out of a device failed.
  Backoff entry_backoff;  ///< After the memory had no pages for an extent, where there are others.
  /// Extents that climbed to this memory and left it without a use, since the policy was told.
  std::uint32_t climbs_in_vain = 0;
  std::uint64_t unused_prefetched = 0;  ///< Bytes that were prefetched and not acquired since.
  /// The device's driver had no memory although the budget had some: until this time its budget is
  /// what it has. 0: not short.
  std::int64_t short_until = 0;
  std::uint64_t whole_budget = 0;  ///< The budget after `short_until`.
  ErrorInfo shortage{};
  bool trimming = false;
  bool searching = false;  ///< The search for victims has not seen all extents yet.
  Job trim;

  /// Its position in the order of demotion within its space.
  unsigned rank() const { return tier->number(); }

  static unsigned size_class(std::uint64_t bytes) {
    return static_cast<unsigned>(std::bit_width(bytes) - 1);
  }
  /// Takes a frame from the tier. Not valid if it has none of the size.
  FrameId take_frame(const FrameRequest& request);
  /// Returns a frame of `bytes` to the tier.
  void give_frame(FrameId frame, std::uint64_t bytes);

  /// Returns pages to the kernel: those of frames that are to have none, and, for want of `bytes`,
  /// those of free frames of other classes and those beyond a smaller budget. Other frames that are
  /// leaving do not count, because they may come to rest in the cache, too.
  void begin_trim(std::uint64_t bytes, Workers& workers);
  /// Returns whether the job was the trim.
  bool job_done(const Job& job);
  /// Returns the bytes that the next trim will find in the cache: no victim must leave for them.
  std::uint64_t next_trim() const;
  /// A request waits for frames of `bytes`: more is kept free from now on, up to `most`.
  void note_shortage(std::uint64_t bytes, std::uint64_t most);
  /// Another user has the memory that a frame of `bytes` was to get. Room is made among the frames
  /// that the memory has, and after a while it is tried whether there is more.
  void shrink_to_actual(std::uint64_t bytes, const Status& why, std::int64_t now);
  void end_shortage(std::int64_t now);
  /// Returns when the memory changes without an event: a copy out of it is tried again, or a
  /// shortage ends. kNever if nothing is due.
  std::int64_t next(std::int64_t now) const;
};

inline void MemoryLedger::begin_trim(std::uint64_t bytes, Workers& workers) {
  if (trimming || (bytes == 0 && tier->usage().leaving == 0)) {
    return;
  }
  const std::uint64_t trimmed = tier->begin_trim(bytes);
  if (trimmed == 0) {
    return;
  }
  trimming = true;
  freeing += trimmed;
  trim = Job{};
  trim.transfer = ~std::uint32_t{0};
  trim.steps = kTrim;
  trim.tier = tier;
  trim.bytes = trimmed;
  workers.submit(&trim);
}

inline bool MemoryLedger::job_done(const Job& job) {
  if (&job != &trim) {
    return false;
  }
  tier->finish_trim();
  trimming = false;
  freeing -= job.bytes;
  return true;
}

inline std::uint64_t MemoryLedger::next_trim() const {
  const std::uint64_t cached = tier->usage().cached;
  return cached - std::min(cached, trimming ? trim.bytes : 0);
}

// Four times as much, so that one wait in fifty allocations outweighs what Room::evict_ahead()
// takes off.
inline void MemoryLedger::note_shortage(std::uint64_t bytes, std::uint64_t most) {
  ahead = std::min({most, tier->usage().budget / 8, ahead + 4 * bytes});
}

inline void MemoryLedger::shrink_to_actual(std::uint64_t bytes, const Status& why,
                                           std::int64_t now) {
  constexpr std::int64_t kRetryNs = 1'000'000'000;
  const FrameUsage usage = tier->usage();
  if (short_until == 0) {
    whole_budget = usage.budget;
  }
  short_until = now + kRetryNs;
  shortage = why.info() != nullptr ? *why.info() : ErrorInfo{};
  tier->set_budget(std::min(usage.budget, usage.used() - std::min(usage.used(), bytes)));
}

inline void MemoryLedger::end_shortage(std::int64_t now) {
  if (short_until != 0 && now >= short_until) {
    short_until = 0;
    tier->set_budget(whole_budget);
  }
}

inline std::int64_t MemoryLedger::next(std::int64_t now) const {
  const std::int64_t copies = exit_backoff.over(now) ? kNever : exit_backoff.until();
  const std::int64_t entries = entry_backoff.over(now) ? kNever : entry_backoff.until();
  return std::min({copies, entries, short_until > now ? short_until : kNever});
}

inline FrameId MemoryLedger::take_frame(const FrameRequest& request) {
  const std::uint64_t before = tier->usage().in_use;
  const FrameId frame = tier->acquire_frame(request);
  std::uint64_t& gap = gaps[size_class(request.bytes)];
  if (!frame.valid()) {
    gap = 0;
    return frame;
  }
  const std::uint64_t charged = tier->usage().in_use - before;
  gap = charged >= request.bytes ? gap + (charged - request.bytes)
                                 : gap - std::min(gap, request.bytes);
  return frame;
}

inline void MemoryLedger::give_frame(FrameId frame, std::uint64_t bytes) {
  const std::uint64_t before = tier->usage().in_use;
  tier->return_frame(frame);
  returned += bytes;
  const FrameUsage usage = tier->usage();
  std::uint64_t& gap = gaps[size_class(bytes)];
  if (usage.in_use < before) {
    gap -= std::min(gap, before - usage.in_use - std::min(bytes, before - usage.in_use));
  } else if (usage.used() <= usage.budget) {
    gap += bytes;
  }
}

}  // namespace tiermem
