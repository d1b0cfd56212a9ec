// A run as text and as JSON: shown by `tiermem run` while it runs and at its end. Pure; one thread.
// Nothing here prints.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cli/run_advice.hpp"

namespace tiermem::cli {

/// The lines of --stats.
std::string report_text(const RunSummary& run, bool terminal, unsigned width);
/// The object of --json. `status` is the exit status of the program as a shell shows it.
nlohmann::ordered_json report_json(const RunSummary& run, int status);
/// The line of --live: whole columns, up to `width`. `before` is the summary of the previous line.
std::string live_line(const RunSummary& run, const RunSummary& before, std::size_t width);

}  // namespace tiermem::cli
