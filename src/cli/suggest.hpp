// Suggestions for unknown commands and options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tiermem::cli {

/// Returns "; did you mean topo?" for the candidate nearest to the word, or "" if none is near: at
/// most a third of its letters may be wrong, missing, added or swapped with a neighbour.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);
/// Returns `text; more`, or `text? More` after a question.
std::string and_then(std::string text, std::string more);

}  // namespace tiermem::cli
