// The parts of the machine fill columns of one width, the next part always the shortest column.
// Inside a part all boxes are one below the other. Widths are known first, and then text is broken
// into lines, from which the heights follow.
#include "cli/topology_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/svg_text.hpp"
#include "cli/table.hpp"

namespace tiermem::cli {
namespace {

constexpr double kColumn = 330, kPad = 10, kGap = 14, kHeader = 52;
constexpr double kTitleHeight = 18, kLineHeight = 15;
constexpr double kLetter = 6.1;  // Width of an average letter of 11 pixels, rounded up.
constexpr std::size_t kMostColumns = 4;
constexpr double kDistanceWidth = 40, kDistanceLeft = 70, kDistanceHeight = 17;
constexpr std::size_t kMostDistances = 32;

constexpr std::string_view kStyle = R"(
  text { font: 11px sans-serif; fill: #24292f; }
  .title { font-size: 16px; font-weight: bold; }
  .name { font-size: 12px; font-weight: bold; }
  .small { fill: #57606a; }
  rect { stroke-width: 1; }
  .processors { fill: #ddeeff; stroke: #54799e; }
  .memory { fill: #dff5e1; stroke: #4b8a55; }
  .device { fill: #f6f1e3; stroke: #94835a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; }
    .processors { fill: #16283b; } .memory { fill: #16301c; } .device { fill: #2e2818; }
  }
)";

const char* class_of(TreeItem::Kind kind) {
  static constexpr std::array kClasses = {"", "processors", "memory", "device"};
  return kClasses[static_cast<std::size_t>(kind)];
}

struct Drawn {
  std::string svg;  ///< With the upper left corner of the box at (0, 0).
  double height = 0;
};

Drawn draw_box(const TreeItem& item, double width) {
  const auto letters = static_cast<std::size_t>((width - 2 * kPad) / kLetter);
  double y = kPad + 11;
  std::string inside = fmt::format("<text class=\"name\" x=\"{}\" y=\"{}\">{}</text>\n", kPad, y,
                                   svg_text(item.title));
  for (const std::string& detail : item.details) {
    for (const std::string& line : broken(detail, letters)) {
      y += kLineHeight;
      inside += fmt::format("<text class=\"small\" x=\"{}\" y=\"{}\">{}</text>\n", kPad, y,
                            svg_text(line));
    }
  }
  y += kPad;
  for (const TreeItem& child : item.children) {
    const Drawn box = draw_box(child, width - 2 * kPad);
    inside += fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n", kPad, y, box.svg);
    y += box.height + kPad;
  }
  return {fmt::format("<rect class=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/>\n",
                      class_of(item.kind), width, y) +
              inside,
          y};
}

/// Draws the distances; nothing for a single node, or for more than can be read.
Drawn draw_distances(const Topology& topology) {
  std::vector<const MemoryNode*> nodes;
  for (const MemoryNode& node : topology.nodes) {
    if (!node.distances.empty()) {
      nodes.push_back(&node);
    }
  }
  if (nodes.size() < 2 || nodes.size() > kMostDistances) {
    return {};
  }
  double y = kTitleHeight;
  std::string svg = fmt::format(
      "<text class=\"name\" x=\"0\" y=\"{}\">Distances from the node of a row to that of a "
      "column</text>\n",
      y);
  const auto cell = [&](std::size_t column, const std::string& text, const char* kind) {
    svg += fmt::format("<text class=\"{}\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{}</text>\n", kind,
                       kDistanceLeft + static_cast<double>(column) * kDistanceWidth, y, text);
  };
  y += kDistanceHeight + 3;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    cell(i + 1, fmt::format("{}", nodes[i]->id), "small");
  }
  for (const MemoryNode* const node : nodes) {
    y += kDistanceHeight;
    cell(0, fmt::format("node {}", node->id), "small");
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const auto found = node->distances.find(nodes[i]->id);
      cell(i + 1, found == node->distances.end() ? "-" : fmt::format("{}", found->second), "");
    }
  }
  return {std::move(svg), y + kPad};
}

double distances_width(const Topology& topology) {
  return kDistanceLeft +
         static_cast<double>(std::min(topology.nodes.size(), kMostDistances)) * kDistanceWidth;
}

}  // namespace

std::string draw_topology(const Topology& topology) {
  const TreeItem tree = topology_tree(topology);
  const std::size_t count = std::clamp<std::size_t>(tree.children.size(), 1, kMostColumns);
  std::vector<double> bottoms(count, kHeader);
  std::string boxes;
  for (const TreeItem& child : tree.children) {
    const auto shortest = std::min_element(bottoms.begin(), bottoms.end());
    const Drawn box = draw_box(child, kColumn);
    boxes += fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n",
                         kGap + static_cast<double>(shortest - bottoms.begin()) * (kColumn + kGap),
                         *shortest, box.svg);
    *shortest += box.height + kGap;
  }
  const double bottom = *std::max_element(bottoms.begin(), bottoms.end());
  const Drawn distances = draw_distances(topology);
  const double boxes_width = static_cast<double>(count) * (kColumn + kGap);
  const double width =
      kGap + std::max(boxes_width, distances.svg.empty() ? 0 : distances_width(topology) + kGap);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
             "height=\"{1}\" role=\"img\">\n<title>Topology</title>\n<style>{2}</style>\n"
             "<text class=\"title\" x=\"{3}\" y=\"22\">Topology</text>\n"
             "<text class=\"small\" x=\"{3}\" y=\"40\">{4}</text>\n",
             width, bottom + distances.height, kStyle, kGap,
             svg_text(tree.details.empty() ? "" : tree.details.front())) +
         boxes +
         (distances.svg.empty() ? ""
                                : fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n", kGap,
                                              bottom, distances.svg)) +
         "</svg>\n";
}

}  // namespace tiermem::cli
