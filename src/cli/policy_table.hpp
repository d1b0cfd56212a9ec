// What each policy would miss of recorded traces at several sizes of memory, and how far that is
// from the bound. Computes only: no memory, disk or clock. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "policy/replay.hpp"
#include "policy/trace.hpp"

namespace tiermem::cli {

/// "recency" (tiermem's), those to compare with, and "min" (knows the future), in this order.
std::vector<std::string> policy_names();
/// `name` is one of these. The hints are for recency, the only one that takes any.
std::uint64_t policy_hits(const std::string& name, std::span<const Reference> references,
                          std::uint32_t blocks, const ReplayOptions& options);

/// Of one trace: miss ratios, first misses included.
struct MissRatios {
  std::string trace;
  std::uint64_t references = 0;
  std::uint32_t blocks = 0;
  struct Row {
    std::string policy;
    std::vector<double> at;  ///< For each share.
  };
  std::vector<Row> rows;
  /// Null when it was not asked for.
  const Row* find(const std::string& policy) const;
};

struct TableOptions {
  std::vector<double> shares;              ///< Of the blocks, per cent.
  std::vector<std::string> policies;       ///< "min" comes last, wanted or not.
  unsigned repeat = 0;                     ///< 0: as the trace suggests.
  Advice at_session_end = Advice::normal;  ///< Another row, with these hints; normal: none.
};
/// The row of Recency with hints at the end of sessions.
inline constexpr const char* kHinted = "recency + hints";

/// `progress` is called before each row, with its name. May throw std::bad_alloc.
MissRatios miss_ratios(const Trace& trace, const TableOptions& options,
                       const std::function<void(const std::string& policy)>& progress);

/// Over all traces that have the policy: the mean distance from MIN, and the cell where it is the
/// farthest above LRU.
struct Summary {
  double gap = 0;
  double over_lru = 0;
  std::string worst_cell;  ///< "lirs-loop at 5 %"; empty without LRU.
};
Summary summarise(std::span<const MissRatios> tables, std::span<const double> shares,
                  const std::string& policy);

}  // namespace tiermem::cli
