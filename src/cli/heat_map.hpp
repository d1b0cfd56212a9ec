// A grid of rates: as text with coloured cells on a terminal, as plain rows for programs, and as a
// picture. One thread.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tiermem::cli {

struct HeatMap {
  std::string title;
  std::string corner;  ///< Above the rows' names: the meaning of rows and columns.
  std::vector<std::string> columns;
  struct Row {
    std::string name;
    std::vector<double> values;  ///< One for each column; 0: unknown.
  };
  std::vector<Row> rows;

  double largest() const;
};

/// On a terminal the shade of a cell is its fraction of the largest value; elsewhere tabs separate
/// cells. Values are divided by `unit` and have three digits.
std::string heat_map_text(const HeatMap& map, double unit, bool terminal);

/// SVG for light and dark pages, with two maps side by side. `title` is the picture's title.
std::string draw_heat_maps(std::span<const HeatMap> maps, double unit, const std::string& title);

}  // namespace tiermem::cli
