// Derives the limiting resource of a run, and the setting that would help. Figures in, sentences
// out. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/run_outsiders.hpp"
#include "preload/run_page.hpp"

namespace tiermem::cli {

/// A finished run.
struct RunSummary {
  double seconds = 0;
  std::uint64_t dram = 0;   ///< Total budget of all processes.
  std::uint64_t block = 0;  ///< Cap of the block tier; 0: there is none.
  std::uint64_t start = 0;  ///< Plain memory that each process may have before it is tiered.
  /// Whether the processes' own memory was to be tiered; false: only GPU memory.
  bool host = true;
  RunTotals totals;
  std::vector<RunProcess> processes;
  std::vector<RunRefusal> refusals;
  std::vector<Outsider> outsiders;
  std::string limits;  ///< A sentence of LimitWatch.
};

/// The time that threads waited for bytes, as a fraction of the run; above 1 if several waited.
double waited_part(const RunSummary& run);
/// Sentences that every run prints: processes with memory outside the budget, and processes that
/// touched unreadable pages (SIGBUS). Equal sentences are merged.
std::vector<std::string> troubles(const RunSummary& run);
/// The most important first; empty if nothing limited the run.
std::vector<std::string> advice(const RunSummary& run);

}  // namespace tiermem::cli
