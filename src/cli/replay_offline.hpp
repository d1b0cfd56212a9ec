// tiermem replay --offline: a table of all policies over traces and memory sizes. One thread.
#pragma once

#include <string>
#include <vector>

#include "cli/policy_table.hpp"
#include "policy/trace.hpp"

namespace tiermem::cli {

/// Loads a trace from its file; the first `limit` references, or all if 0.
Result<Trace> load_trace(const std::string& path, std::uint64_t limit);

struct OfflineArguments {
  std::vector<std::string> traces;
  std::uint64_t limit = 0;
  TableOptions table;
  std::string json;  ///< Output file; empty: none.
  std::string plot;
};

/// Computes, prints and writes; returns the exit code.
int run_offline(const OfflineArguments& arguments);

}  // namespace tiermem::cli
