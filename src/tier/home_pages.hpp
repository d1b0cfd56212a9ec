// The pages of homes, for all memories of the host's address space: what homes are like, how they
// get their pages, and how a home that was cut into several mappings becomes whole again. The space
// owns it, because homes are registered with the space's userfaultfd. It knows no budget.
//
// Threads: the mover's thread calls options_of(). Workers call the others, for frames that they
// hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tier/frame_mapper.hpp"
#include "tier/frame_pool.hpp"
#include "tier/host_counters.hpp"
#include "tier/nursery.hpp"
#include "tier/space_facts.hpp"

namespace tiermem {

class HomePages {
 public:
  struct Options {
    bool require_huge = false;  ///< fill() fails without huge pages.
    bool follow_forks = false;  ///< HostSpaceOptions::follow_forks.
  };
  /// The references outlive this object.
  HomePages(const HostSpaceFacts& facts, const Options& options, const Userfault& userfault,
            FrameMapper& mapper, LiveHostCounters& counters)
      : facts_(facts),
        require_huge_(options.require_huge),
        follow_forks_(options.follow_forks),
        userfault_(userfault),
        mapper_(mapper),
        counters_(counters) {}
  /// Creates what fill() needs for registered homes. Call once, before the first fill().
  Status open();

  /// Returns the properties of the homes of frames of `bytes` in this pool.
  HomeOptions options_of(Pool pool, std::uint64_t bytes, const host::NodePages* node) const;
  /// Fills an absent home of the pool with zeroed pages; or a window instead, if its frames have no
  /// memory of their own. `node`: where the pages come from, or null. Returns true if all pages are
  /// huge.
  Result<bool> fill(const FramePool& of, std::byte* address, const host::NodePages* node);
  /// Moves new pages to their node if a sample shows that some are elsewhere, and counts them.
  void settle_on(const host::NodePages* node, std::byte* address, std::uint64_t bytes);
  /// Records the mappings that a frame's home costs: MapResult::cuts.
  void add_cuts(Frame& frame, unsigned cuts);
  /// For a home that is empty or about to be. Returns true if it is whole again. `always`: also if
  /// the process has few mappings.
  bool mend(const FramePool& of, std::uint32_t index, bool always);
  /// [child of fork, its only thread]
  Status follow_fork();

 private:
  const HostSpaceFacts& facts_;
  const bool require_huge_, follow_forks_;
  const Userfault& userfault_;
  FrameMapper& mapper_;
  LiveHostCounters& counters_;
  std::atomic<bool> told_of_nodes_{false};
  std::unique_ptr<Nursery> huge_nursery_, small_nursery_;  // Null if homes are not registered.
};

}  // namespace tiermem
