// Bounce memory: host memory of the mover through which bytes pass that cannot go straight to their
// frame. It is charged to the host's budget. There are two kinds.
//   staging  between a device's memory and what is not the host's: see staging.hpp. A fixed size.
//   areas    where pages of partial extents arrive from their slot, and where such an extent is put
//            together for another slot. As many as the budget allows, returned when it shrinks.
// A transfer takes a place or waits in a queue, oldest first. When a place is free the mover asks
// for grants, one by one, and lets the granted transfers go on. The stepping thread only; never
// waits. Workers hold the jobs that populate areas.
//
//   area.used == the union of the places of transfers in it; the places are disjoint
//   jobs() == the number of areas that are being populated
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/arena.hpp"
#include "mover/backoff.hpp"
#include "mover/job.hpp"
#include "mover/memory_ledger.hpp"
#include "mover/never.hpp"
#include "mover/staging.hpp"

namespace tiermem {

class Bounce {
 public:
  struct Options {
    std::uint64_t area_bytes = 0;       ///< The largest extent that can be partial.
    std::uint64_t budget_per_area = 0;  ///< One area for this many bytes of budget, up to 8.
    std::uint64_t staging_bytes = 0;
    std::uint64_t staging_frame_bytes = 0;
  };
  /// Adjacent pages of an area.
  struct Place {
    std::uint32_t area = 0;  ///< Number of the area + 1; 0: none.
    std::uint32_t first = 0;
    PageMask pages = 0;  ///< The taken pages, a power of two of them.
    explicit operator bool() const { return area != 0; }
  };
  /// A transfer that waited has its place.
  template <typename Where>
  struct Grant {
    std::uint32_t transfer = 0;
    Where place;
  };

  Bounce(Workers& workers, const Options& options)
      : workers_(workers), options_(options), staging_(options.staging_frame_bytes) {}
  /// Before any other call. `with_devices`: takes the frames of the staging.
  void attach(MemoryLedger& host, bool with_devices);

  /// Bytes of all frames that the bounce memory has.
  std::uint64_t bytes() const { return staging_.bytes() + area_bytes_in_all(); }
  /// Bytes of the frames of areas.
  std::uint64_t area_bytes_in_all() const { return areas_.size() * options_.area_bytes; }
  template <typename Visit>
  void each_frame(Visit&& visit) const {  // visit(frame, bytes)
    staging_.each_frame([&](FrameId frame) { visit(frame, staging_.frame_bytes()); });
    for (const Area& area : areas_) {
      visit(area.frame, options_.area_bytes);
    }
  }

  // ---- Areas

  std::uint64_t area_bytes() const { return options_.area_bytes; }
  bool has_areas() const { return !areas_.empty(); }
  bool any_ready() const;
  /// Transfers wait for a place.
  bool waits() const { return !queue_.empty(); }
  /// A budget is being changed: no area is taken that no transfer waits for, because it may have
  /// been returned for the change.
  void note_budget_change(bool on) { budget_changes_ = on; }
  /// Takes as many areas as the budget allows.
  void prepare();
  /// Takes areas if transfers wait and there is none, or if areas were lost. Returns the bytes for
  /// which the mover must make room first.
  std::uint64_t restore();
  /// Jobs of workers that populate areas.
  unsigned jobs() const { return jobs_; }
  /// Returns whether the job was one of these. The mover asks for grants then.
  bool job_done(const Job& job, std::int64_t now);
  /// Populates failed areas again once their backoff is over: memory may be short for long.
  void retry_areas(std::int64_t now);
  /// The budget has shrunk: returns what can be returned. While an extent is partial one area
  /// stays, because the other pages may be needed when nothing can leave.
  void shrink();
  /// After a fork, in the child: the pages are the parent's. All areas go, others come for them.
  void lose_areas();

  /// Returns whether a place of that many pages is free, and no transfer waits for one.
  bool has_room(unsigned pages) const { return queue_.empty() && find(pages); }
  /// Prefetches wait until has_room(): more areas are taken while there is free memory for them, up
  /// to 64, and returned when the wish is not repeated.
  void wish_more();
  /// Takes a place of at least `pages` pages, or queues the transfer and returns none.
  Place take(std::uint32_t transfer, unsigned pages);
  /// If no transfer waits, areas that only a larger budget had go back.
  void give(const Place& place);
  /// Grants the oldest queued transfer its place, if there is one.
  std::optional<Grant<Place>> grant();
  std::byte* data(const Place& place) const {
    return areas_[place.area - 1].data + place.first * kSmallestExtent;
  }
  /// Counts the extents that are partial.
  void partial_begun() { ++partial_; }
  void partial_ended() { --partial_; }

  // ---- Staging

  bool has_staging() const { return !staging_.empty(); }
  /// Takes a place for an extent of `bytes`, or queues the transfer and returns none.
  Staging::Place take_staging(std::uint32_t transfer, std::uint64_t bytes);
  void give_staging(Staging::Place place, std::uint64_t bytes);
  std::optional<Grant<Staging::Place>> grant_staging();
  FrameId frame(Staging::Place place) const { return staging_.frame(place); }
  std::byte* data(Staging::Place place) const { return staging_.data(place); }
  std::uint64_t bytes_of_place(std::uint64_t bytes) const { return staging_.bytes_of_place(bytes); }

  /// Returns `now` if places have become free since no grant was left, and transfers wait. If not,
  /// it returns when an area is populated again, or kNever.
  std::int64_t next(std::int64_t now) const;

  /// The use of it by the mover's transfers and extents.
  struct Use {
    Vector<Place> places;
    std::uint64_t staging_bytes = 0;
    std::uint32_t partial = 0;
  };
  /// Checks the invariants. Empty, or the breach.
  std::string check(const Use& found) const;

 private:
  struct Area {
    FrameId frame{};
    std::byte* data = nullptr;
    PageMask used = 0;
    bool ready = false;       // Its pages are there.
    bool populating = false;  // `job` is in progress.
    Job job;                  // Populates it.
    bool unpopulated() const { return !ready && !populating; }
  };
  struct Waiting {
    std::uint32_t transfer = 0;
    unsigned pages = 0;
  };
  struct WaitingForStaging {
    std::uint32_t transfer = 0;
    std::uint64_t bytes = 0;
  };

  std::uint64_t areas_for_budget(std::uint64_t least) const;
  void populate(Area& area);
  void return_all();
  void trim();
  Place find(unsigned pages) const;

  Workers& workers_;
  const Options options_;
  MemoryLedger* host_ = nullptr;
  Staging staging_;
  Deque<WaitingForStaging> staging_queue_;
  Deque<Area> areas_;  // Stable addresses: workers hold `job`. Places name areas by position.
  Deque<Waiting> queue_;
  unsigned jobs_ = 0;
  Backoff populate_backoff_;
  std::uint32_t partial_ = 0;
  bool scans_ = false;          // Prefetches have waited for places.
  unsigned since_wish_ = 0;     // Places that were given back since then.
  bool freed_ = false;          // A place, or an area is ready, since grant() found nothing.
  bool freed_staging_ = false;  // Likewise, of grant_staging().
  bool lost_areas_ = false;     // There were areas before the fork.
  bool budget_changes_ = false;
};

}  // namespace tiermem
