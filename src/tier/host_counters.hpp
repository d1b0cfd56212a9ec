// Counters of the host's address space and its memories since they began. Workers, mover and fault
// reader add; any thread reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace tiermem {

/// The unit is frames unless the name says otherwise.
template <typename Number>
struct HostCounts {
  Number moved_in_uffd{}, moved_out_uffd{};
  Number moved_in_remap{}, moved_out_remap{};
  Number moved_in_place{}, moved_out_place{};
  Number copied_in{};       ///< By UFFDIO_COPY: without UFFDIO_MOVE, after its refusal, or parts.
  Number dropped_out{};     ///< Pages that could not leave with their bytes, and were dropped.
  Number unchanged_out{};   ///< Watched, and dropped because no thread had written them.
  Number watched_writes{};  ///< Writes that ended the watch of an extent.
  Number taken_by_page{};   ///< Pages that the program had protected, moved out one by one.
  Number partial_moves{};   ///< Part of both: some pages had moved before the kernel refused.
  Number remaps_refused{};  ///< There were too many mappings.
  Number withdrawals_refused{};  ///< Mapped, and could not leave because they were page-locked.
  Number unshared{};  ///< Mapped since before a fork: first made private to this process.
  Number populated{}, populated_bytes{};
  Number cleared_bytes{};
  Number huge_asked{}, huge_got{};  ///< 2 MiB pages. `got` is known from Linux 6.7 on.
  Number split{}, repaired{};       ///< Huge frames found in small pages; frames made huge again.
  Number pages_brought{};    ///< New pages of 4 KiB that came from another node and were moved.
  Number pages_misplaced{};  ///< New pages that stayed on another node.
  Number trims{}, trimmed_bytes{};
  Number trims_refused{};       ///< Frames that the kernel did not take back.
  Number faults{}, poisoned{};  ///< Touches of absent pages; pages poisoned after one.
  Number stores_refused{};      ///< Stores to read-only windows that waited for their SIGSEGV.
};

using HostCounters = HostCounts<std::uint64_t>;
/// Relaxed: each counter is an independent sum, and orders nothing.
struct RelaxedCounter {
  std::atomic<std::uint64_t> value{0};
  void operator+=(std::uint64_t n) { value.fetch_add(n, std::memory_order_relaxed); }
  operator std::uint64_t() const { return value.load(std::memory_order_relaxed); }
};
using LiveHostCounters = HostCounts<RelaxedCounter>;

inline HostCounters snapshot(const LiveHostCounters& live) {
  return {live.moved_in_uffd,   live.moved_out_uffd,
          live.moved_in_remap,  live.moved_out_remap,
          live.moved_in_place,  live.moved_out_place,
          live.copied_in,       live.dropped_out,
          live.unchanged_out,   live.watched_writes,
          live.taken_by_page,   live.partial_moves,
          live.remaps_refused,  live.withdrawals_refused,
          live.unshared,        live.populated,
          live.populated_bytes, live.cleared_bytes,
          live.huge_asked,      live.huge_got,
          live.split,           live.repaired,
          live.pages_brought,   live.pages_misplaced,
          live.trims,           live.trimmed_bytes,
          live.trims_refused,   live.faults,
          live.poisoned,        live.stores_refused};
}

}  // namespace tiermem
