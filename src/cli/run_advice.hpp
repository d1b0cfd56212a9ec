// What limited a run, and which setting would help: figures in, sentences out. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/run_outsiders.hpp"
#include "preload/run_page.hpp"

namespace tiermem::cli {

/// A run after its end.
struct RunSummary {
  double seconds = 0;
  std::uint64_t dram = 0;   ///< Budget of all processes together.
  std::uint64_t block = 0;  ///< Cap of the block tier; 0: there is none.
  std::uint64_t start = 0;  ///< Plain memory that each process may have first.
  bool host = true;         ///< The processes' own memory was to be tiered, not that of GPUs alone.
  RunTotals totals;
  std::vector<RunProcess> processes;
  std::vector<RunRefusal> refusals;
  std::vector<Outsider> outsiders;
  std::string limits;  ///< A sentence of LimitWatch.
};

/// The time that threads waited for bytes, as a part of the run; above 1 when several did.
double waited_part(const RunSummary& run);
/// Sentences for the end of every run: processes that had memory outside of the budget, and
/// processes that touched pages which could not be had (SIGBUS). Those alike are one sentence.
std::vector<std::string> troubles(const RunSummary& run);
/// The most important first; empty when nothing limited it.
std::vector<std::string> advice(const RunSummary& run);

}  // namespace tiermem::cli
