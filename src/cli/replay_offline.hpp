// tiermem replay --offline: the table of all policies over traces and sizes of memory. One thread.
#pragma once

#include <string>
#include <vector>

#include "cli/policy_table.hpp"
#include "policy/trace.hpp"

namespace tiermem::cli {

/// A trace from its file; the first `limit` references of it, 0 for all.
Result<Trace> load_trace(const std::string& path, std::uint64_t limit);

struct OfflineArguments {
  std::vector<std::string> traces;
  std::uint64_t limit = 0;
  TableOptions table;
  std::string json;  ///< Where to write; empty: nowhere.
  std::string plot;
};

/// Computes, prints and writes; returns the exit code.
int run_offline(const OfflineArguments& arguments);

}  // namespace tiermem::cli
