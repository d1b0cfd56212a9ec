// A picture of the miss ratios of policies: a panel for each trace, miss ratio over memory, a line
// for each policy. One thread.
#pragma once

#include <span>
#include <string>

#include "cli/policy_table.hpp"

namespace tiermem::cli {

/// SVG for light and dark pages.
std::string draw_miss_curves(std::span<const MissRatios> tables, std::span<const double> shares);

}  // namespace tiermem::cli
