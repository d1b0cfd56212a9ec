// The picture of a topology: its boxes and its text.
#include "cli/topology_picture.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "support/machine_tree.hpp"

namespace tiermem::cli {
namespace {

using test::MachineTree;

std::size_t count_of(const std::string& text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

std::size_t items_below(const TreeItem& item) {
  std::size_t count = 0;
  for (const TreeItem& child : item.children) {
    count += 1 + items_below(child);
  }
  return count;
}

TEST(TopologyPicture, has_a_box_for_each_part) {
  MachineTree machine;
  machine.two_sockets_with_cxl();
  machine.nvme(0, "0000:11:00.0", 1, "S1");
  const std::string svg = draw_topology(machine.read());
  EXPECT_EQ(count_of(svg, "<rect"), items_below(topology_tree(machine.read())));
  EXPECT_EQ(count_of(svg, "<g "), count_of(svg, "</g>"));
  EXPECT_EQ(count_of(svg, "class=\"memory\""), 1U);
  EXPECT_EQ(count_of(svg, "class=\"processors\""), 2U);
  EXPECT_EQ(count_of(svg, ">Distances from"), 1U);
}

TEST(TopologyPicture, markup_in_names_is_escaped) {
  MachineTree machine;
  machine.one_node();
  machine.nvme(0, "0000:11:00.0", 0, "<b>&");
  const std::string svg = draw_topology(machine.read());
  EXPECT_NE(svg.find("serial &lt;b&gt;&amp;"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("<b>"), std::string::npos) << svg;
}

TEST(TopologyPicture, machine_without_nodes_is_drawn) {
  const std::string svg = draw_topology(MachineTree().read());
  EXPECT_TRUE(svg.ends_with("</svg>\n")) << svg;
  EXPECT_NE(svg.find("nodes not told"), std::string::npos) << svg;
}

}  // namespace
}  // namespace tiermem::cli
