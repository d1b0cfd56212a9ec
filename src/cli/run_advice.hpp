// What limited a run, and which setting would help: figures in, sentences out. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "preload/run_page.hpp"

namespace tiermem::cli {

/// A run after its end.
struct RunSummary {
  double seconds = 0;
  std::uint64_t dram = 0;   ///< Budget of all processes together.
  std::uint64_t block = 0;  ///< Cap of the block tier; 0: there is none.
  bool host = true;         ///< The processes' own memory was to be tiered, not that of GPUs alone.
  RunTotals totals;
  std::vector<RunProcess> processes;
};

/// What threads waited for bytes to be read, as a part of the run; above 1 when several did.
double waited_part(const RunSummary& run);
/// The most important first; empty when nothing limited it.
std::vector<std::string> advice(const RunSummary& run);

}  // namespace tiermem::cli
