// Text with coordinates. The little SVG needed here is simpler to write directly than with a
// library.
#include "cli/miss_curves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "cli/svg_text.hpp"

namespace tiermem::cli {
namespace {

constexpr double kPanelWidth = 300, kPanelHeight = 210, kAcross = 3;
constexpr double kLeft = 44, kTop = 34, kPlotWidth = 236, kPlotHeight = 140;
constexpr double kHeader = 48, kLegendRow = 20, kLegendColumn = 150;

constexpr std::string_view kStyle = R"(
  text { font: 12px sans-serif; fill: #24292f; }
  .title { font-size: 16px; font-weight: bold; }
  .name { font-weight: bold; }
  .small { font-size: 11px; fill: #57606a; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  polyline { fill: none; stroke-width: 1.3; stroke-linejoin: round; }
  .ours { stroke-width: 3; }
  .bound { stroke-dasharray: 5 4; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; } .grid { stroke: #30363d; }
  }
)";

struct Look {
  std::string_view colour;
  std::string_view kind;  ///< A class of the style.
};

/// tiermem's line stands out, the bound is dashed, and the others have colours that are readable on
/// both backgrounds.
Look look_of(const std::string& policy) {
  constexpr std::string_view kColours[] = {"#bc4c00", "#8c959f", "#6e7781", "#9a6700", "#8250df",
                                           "#2da44e", "#cf222e", "#bf3989", "#0a9a9a"};
  if (policy == "recency") {
    return {"#2f81f7", "ours"};
  }
  if (policy == kHinted) {
    return {"#79c0ff", "ours"};
  }
  if (policy == kHidden) {
    return {"#1b4b91", "ours"};
  }
  if (policy == "min") {
    return {"#8b949e", "bound"};
  }
  const std::vector<std::string> names = policy_names();
  const auto at =
      static_cast<std::size_t>(std::find(names.begin(), names.end(), policy) - names.begin());
  return {kColours[(at + std::size(kColours) - 1) % std::size(kColours)], "rival"};
}

/// A trace's name comes from a file name.
std::string panel(const MissRatios& table, std::span<const double> shares) {
  double low = 1, high = 0;
  for (const MissRatios::Row& row : table.rows) {
    const auto [least, most] = std::minmax_element(row.at.begin(), row.at.end());
    low = std::min(low, *least);
    high = std::max(high, *most);
  }
  low = std::floor(low * 10) / 10;
  high = std::max(std::ceil(high * 10) / 10, low + 0.1);
  const auto x = [&](std::size_t i) {
    const double last = std::max<double>(1, static_cast<double>(shares.size()) - 1);
    return kLeft + kPlotWidth * static_cast<double>(i) / last;
  };
  const auto y = [&](double miss) { return kTop + kPlotHeight * (high - miss) / (high - low); };
  std::string out = fmt::format("<text class=\"name\" x=\"{}\" y=\"{}\">{}</text>\n", kLeft,
                                kTop - 14, svg_text(table.trace));
  for (const double line : {low, (low + high) / 2, high}) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"small\" text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">{:.0f} %</text>\n",
        kLeft, kLeft + kPlotWidth, y(line), y(line), kLeft - 6, y(line) + 4, 100 * line);
  }
  for (std::size_t i = 0; i < shares.size(); ++i) {
    out += fmt::format(
        "<text class=\"small\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{}\">{:g} %</text>\n", x(i),
        kTop + kPlotHeight + 16, shares[i]);
  }
  // Draws tiermem's line on top.
  for (auto row = table.rows.rbegin(); row != table.rows.rend(); ++row) {
    const Look look = look_of(row->policy);
    out += fmt::format("<polyline class=\"{}\" stroke=\"{}\" points=\"", look.kind, look.colour);
    for (std::size_t i = 0; i < row->at.size(); ++i) {
      out += fmt::format("{:.1f},{:.1f} ", x(i), y(row->at[i]));
    }
    out += fmt::format("\"><title>{}</title></polyline>\n", svg_text(row->policy));
  }
  return out;
}

}  // namespace

std::string draw_miss_curves(std::span<const MissRatios> tables, std::span<const double> shares) {
  std::vector<std::string> policies;
  for (const MissRatios& table : tables) {
    for (const MissRatios::Row& row : table.rows) {
      if (std::find(policies.begin(), policies.end(), row.policy) == policies.end()) {
        policies.push_back(row.policy);
      }
    }
  }
  const double across = std::min<double>(kAcross, static_cast<double>(tables.size()));
  const double width = std::max(2.0, across) * kPanelWidth;
  const double bottom =
      kHeader + kPanelHeight * std::ceil(static_cast<double>(tables.size()) / kAcross);
  const auto columns = static_cast<std::size_t>((width - kLeft) / kLegendColumn);
  const double height =
      bottom +
      kLegendRow * std::ceil(static_cast<double>(policies.size()) / static_cast<double>(columns)) +
      10;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\">\n<title>Miss ratio over memory</title>\n<style>{2}</style>\n"
      "<text class=\"title\" x=\"{3}\" y=\"22\">Miss ratio over memory, in per cent of the "
      "trace's blocks</text>\n",
      width, height, kStyle, kLeft);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto across_all = static_cast<std::size_t>(kAcross);
    out += fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n",
                       static_cast<double>(i % across_all) * kPanelWidth,
                       kHeader - 20 + static_cast<double>(i / across_all) * kPanelHeight,
                       panel(tables[i], shares));
  }
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const Look look = look_of(policies[i]);
    const double x = kLeft + static_cast<double>(i % columns) * kLegendColumn;
    const double y = bottom + static_cast<double>(i / columns) * kLegendRow;
    out += fmt::format(
        "<polyline class=\"{}\" stroke=\"{}\" points=\"{},{} {},{}\"/><text x=\"{}\" "
        "y=\"{}\">{}</text>\n",
        look.kind, look.colour, x, y - 4, x + 22, y - 4, x + 28, y, svg_text(policies[i]));
  }
  return out + "</svg>\n";
}

}  // namespace tiermem::cli
