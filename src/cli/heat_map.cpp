// Both forms go from dark blue through green to yellow. This scale remains readable in print and
// for colour-blind readers.
#include "cli/heat_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "cli/svg_text.hpp"
#include "cli/table.hpp"

namespace tiermem::cli {
namespace {

struct Colour {
  double red, green, blue;
};
// Five points of the scale; values between them are mixed.
constexpr std::array<Colour, 5> kScale = {
    {{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}}};

Colour colour_of(double part) {
  const double at = std::clamp(part, 0.0, 1.0) * (kScale.size() - 1);
  const auto low = std::min(static_cast<std::size_t>(at), kScale.size() - 2);
  const double mix = at - static_cast<double>(low);
  const auto between = [&](double Colour::*field) {
    return kScale[low].*field * (1 - mix) + kScale[low + 1].*field * mix;
  };
  return {between(&Colour::red), between(&Colour::green), between(&Colour::blue)};
}

/// Whether black text is readable on it.
bool is_light(const Colour& colour) {
  return 0.299 * colour.red + 0.587 * colour.green + 0.114 * colour.blue > 120;
}

/// The nearest of the 256 terminal colours: a cube of six levels.
int terminal_colour(const Colour& colour) {
  const auto level = [](double value) {
    return static_cast<int>(value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40);
  };
  return 16 + 36 * level(colour.red) + 6 * level(colour.green) + level(colour.blue);
}

std::string shown(double value, double unit) {
  if (value <= 0) {
    return "-";
  }
  const double number = value / unit;
  return number < 0.0995  ? fmt::format("{:.3f}", number)
         : number < 9.995 ? fmt::format("{:.2f}", number)
         : number < 99.95 ? fmt::format("{:.1f}", number)
                          : fmt::format("{:.0f}", number);
}

constexpr double kCellWidth = 52, kCellHeight = 24, kLeft = 78, kTop = 46, kGap = 24;

constexpr std::string_view kStyle = R"(
  text { font: 12px sans-serif; fill: #24292f; }
  .title { font-size: 16px; font-weight: bold; }
  .name { font-weight: bold; }
  .small { font-size: 11px; fill: #57606a; }
  .on-light { fill: #000000; } .on-dark { fill: #ffffff; }
  @media (prefers-color-scheme: dark) { .title, .name { fill: #e6edf3; } .small { fill: #9198a1; } }
)";

std::string panel(const HeatMap& map, double unit) {
  const double largest = map.largest();
  std::string out = fmt::format(
      "<text class=\"name\" x=\"0\" y=\"14\">{}</text>\n"
      "<text class=\"small\" x=\"0\" y=\"{}\">{}</text>\n",
      svg_text(map.title), kTop - 8, svg_text(map.corner));
  for (std::size_t c = 0; c < map.columns.size(); ++c) {
    out += fmt::format("<text class=\"small\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>\n",
                       kLeft + (static_cast<double>(c) + 0.5) * kCellWidth, kTop - 8,
                       svg_text(map.columns[c]));
  }
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    const HeatMap::Row& row = map.rows[r];
    const double y = kTop + static_cast<double>(r) * kCellHeight;
    out += fmt::format("<text class=\"small\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{}</text>\n",
                       kLeft - 6, y + 16, svg_text(row.name));
    for (std::size_t c = 0; c < row.values.size(); ++c) {
      if (row.values[c] <= 0) {
        continue;
      }
      const Colour colour = colour_of(row.values[c] / largest);
      const double x = kLeft + static_cast<double>(c) * kCellWidth;
      out += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#{:02x}{:02x}{:02x}\"/>"
          "<text class=\"{}\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>\n",
          x, y, kCellWidth - 1, kCellHeight - 1, static_cast<int>(colour.red),
          static_cast<int>(colour.green), static_cast<int>(colour.blue),
          is_light(colour) ? "on-light" : "on-dark", x + kCellWidth / 2, y + 16,
          shown(row.values[c], unit));
    }
  }
  return out;
}

}  // namespace

double HeatMap::largest() const {
  double most = 0;
  for (const Row& row : rows) {
    for (const double value : row.values) {
      most = std::max(most, value);
    }
  }
  return most > 0 ? most : 1;
}

std::string heat_map_text(const HeatMap& map, double unit, bool terminal) {
  if (!terminal) {
    std::vector<Table::Column> columns = {{map.corner}};
    for (const std::string& column : map.columns) {
      columns.push_back({column, Table::Align::right});
    }
    Table table(std::move(columns));
    for (const HeatMap::Row& row : map.rows) {
      std::vector<std::string> cells = {row.name};
      for (const double value : row.values) {
        cells.push_back(shown(value, unit));
      }
      table.add(std::move(cells));
    }
    return map.title + "\n" + table.text(false, 0);
  }
  constexpr int kCell = 7;
  std::size_t left = map.corner.size();
  for (const HeatMap::Row& row : map.rows) {
    left = std::max(left, row.name.size());
  }
  std::string out = fmt::format("\033[1m{}\033[0m\n{:>{}} ", map.title, map.corner, left);
  for (const std::string& column : map.columns) {
    out += fmt::format("{:^{}}", column, kCell);
  }
  const double largest = map.largest();
  for (const HeatMap::Row& row : map.rows) {
    out += fmt::format("\n{:>{}} ", row.name, left);
    for (const double value : row.values) {
      if (value <= 0) {
        out += fmt::format("{:^{}}", "-", kCell);
        continue;
      }
      const Colour colour = colour_of(value / largest);
      out += fmt::format("\033[48;5;{}m\033[38;5;{}m{:^{}}\033[0m", terminal_colour(colour),
                         is_light(colour) ? 16 : 231, shown(value, unit), kCell);
    }
  }
  return out + "\n";
}

std::string draw_heat_maps(std::span<const HeatMap> maps, double unit, const std::string& title) {
  std::size_t columns = 1;
  std::size_t rows = 1;
  for (const HeatMap& map : maps) {
    columns = std::max(columns, map.columns.size());
    rows = std::max(rows, map.rows.size());
  }
  const double panel_width = kLeft + static_cast<double>(columns) * kCellWidth + kGap;
  const double panel_height = kTop + static_cast<double>(rows) * kCellHeight + kGap;
  const double across = static_cast<double>(std::min<std::size_t>(maps.size(), 2));
  const double down = std::ceil(static_cast<double>(maps.size()) / 2);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\">\n<title>{3}</title>\n<style>{2}</style>\n"
      "<text class=\"title\" x=\"{4}\" y=\"24\">{3}</text>\n",
      kGap + across * panel_width, 40 + down * panel_height, kStyle, svg_text(title), kGap);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    out += fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n",
                       kGap + static_cast<double>(i % 2) * panel_width,
                       44 + static_cast<double>(i / 2) * panel_height, panel(maps[i], unit));
  }
  return out + "</svg>\n";
}

}  // namespace tiermem::cli
