// Computes widths first, and then prints the lines.
#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/shown.hpp"
#include "cli/terminal.hpp"

namespace tiermem::cli {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowest = 12;  // Minimum width of a wrapped column.
constexpr std::size_t kIndent = 4;      // Indent of a last column below its row.

std::string bold(const std::string& text) {
  return "\033[1m" + text + "\033[0m";
}

std::string padded(const std::string& text, std::size_t width, Table::Align align) {
  const std::size_t used = display_width(text);
  const std::string blanks(width > used ? width - used : 0, ' ');
  return align == Table::Align::right ? blanks + text : text + blanks;
}

std::string without_end_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

}  // namespace

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::size_t stop = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, stop);
    text.remove_prefix(std::min(stop + 1, text.size()));
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (display_width(line) + 1 + display_width(word) <= width) {
      line += ' ';
      line += word;
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

void Table::add(std::vector<std::string> row) {
  row.resize(columns_.size());
  // Program names, labels and disk models may contain control characters.
  for (std::string& cell : row) {
    cell = shown(cell);
  }
  rows_.push_back(std::move(row));
}

std::string Table::text(bool terminal, bool colours, unsigned width) const {
  std::vector<std::string> headings;
  for (const Column& column : columns_) {
    headings.push_back(column.heading);
  }
  const bool with_headings = std::any_of(headings.begin(), headings.end(),
                                         [](const std::string& text) { return !text.empty(); });
  std::string out;
  const std::size_t last = columns_.size() - 1;
  std::vector<std::size_t> widths;
  std::size_t left = 0;  // The start of the last column.
  for (std::size_t c = 0; c <= last; ++c) {
    std::size_t widest = display_width(headings[c]);
    for (const auto& row : rows_) {
      widest = std::max(widest, display_width(row[c]));
    }
    widths.push_back(widest);
    left += c < last ? widest + kGap : 0;
  }
  // Without a terminal a row stays one line.
  const bool below = terminal && left + std::min(kNarrowest, widths[last]) > width;
  if (terminal) {
    widths[last] =
        std::min(widths[last], width - (below ? std::min<std::size_t>(kIndent, width) : left));
  }

  const std::string gap(kGap, ' ');
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c <= (below ? last - 1 : last); ++c) {
      line += (c == 0 ? "" : gap) + padded(cells[c], widths[c], columns_[c].align);
    }
    return without_end_blanks(std::move(line));
  };
  if (with_headings) {
    std::string line = add_line(headings);
    line.pop_back();
    line +=
        below && !headings[last].empty() ? "\n" + std::string(kIndent, ' ') + headings[last] : "";
    out += (colours ? bold(line) : line) + '\n';
  }
  for (std::vector<std::string> row : rows_) {
    const std::vector<std::string> lines = wrapped(row[last], widths[last]);
    if (below) {
      out += add_line(row);
      for (const std::string& line : lines) {
        out += line.empty() ? "" : std::string(kIndent, ' ') + line + '\n';
      }
      continue;
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i == 1) {
        std::fill(row.begin(), row.end(), std::string());
      }
      row[last] = lines[i];
      out += add_line(row);
    }
  }
  return out;
}

void Table::print() const {
  fmt::print("{}", text(stdout_is_terminal(), stdout_has_colours(), terminal_width()));
}

void print_title(std::string_view title) {
  fmt::print("{}\n", stdout_has_colours() ? bold(shown(title)) : shown(title));
}

void print_text(std::string_view paragraph) {
  const std::string text = shown(paragraph);
  if (!stdout_is_terminal()) {
    fmt::print("{}\n", text);
    return;
  }
  for (const std::string& line : wrapped(text, terminal_width() - 1)) {
    fmt::print("{}\n", line);
  }
}

}  // namespace tiermem::cli
