// Suggestions for words that are no command or option.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tiermem::cli {

/// "; did you mean topo?" for the candidate that is nearest to the word, or "" when none is near:
/// at most a third of its letters are wrong, missing, added or exchanged with a neighbour.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);
/// `text; more`, or `text? More` after a question.
std::string and_then(std::string text, std::string more);

}  // namespace tiermem::cli
