// Miss ratios of each policy for recorded traces at several memory sizes, and their distance from
// the bound. Only computes: no memory, disk or clock. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "policy/replay.hpp"
#include "policy/trace.hpp"

namespace tiermem::cli {

/// tiermem's with hidden references, as of mapped memory: it sees only misses.
inline constexpr const char* kHidden = "hidden";
/// "recency" (tiermem's), the policies to compare it with, kHidden, and "min" (knows the future),
/// in this order.
std::vector<std::string> policy_names();
/// `name` is one of policy_names(). Only recency uses hints.
std::uint64_t policy_hits(const std::string& name, std::span<const Reference> references,
                          std::uint32_t blocks, const ReplayOptions& options);

/// Miss ratios of one trace, including first misses.
struct MissRatios {
  std::string trace;
  std::uint64_t references = 0;
  std::uint32_t blocks = 0;
  struct Row {
    std::string policy;
    std::vector<double> at;  ///< For each share.
  };
  std::vector<Row> rows;
  /// Null if the policy was not requested.
  const Row* find(const std::string& policy) const;
};

struct TableOptions {
  std::vector<double> shares;              ///< Percentages of the blocks.
  std::vector<std::string> policies;       ///< "min" is always added at the end.
  unsigned repeat = 0;                     ///< 0: the trace's suggestion.
  Advice at_session_end = Advice::normal;  ///< Adds a row with these hints; normal: no such row.
};
/// The row of recency with hints at the end of sessions.
inline constexpr const char* kHinted = "recency + hints";

/// `progress` is called before each row, with its name. May throw std::bad_alloc.
MissRatios miss_ratios(const Trace& trace, const TableOptions& options,
                       const std::function<void(const std::string& policy)>& progress);

/// Over all traces that have the policy: the mean distance from MIN, and the cell that is farthest
/// above LRU.
struct Summary {
  double gap = 0;
  double over_lru = 0;
  std::string worst_cell;  ///< "lirs-loop at 5 %"; empty without LRU.
};
Summary summarise(std::span<const MissRatios> tables, std::span<const double> shares,
                  const std::string& policy);

}  // namespace tiermem::cli
