// A grid of rates, as text and as an image.
#include "cli/heat_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tiermem::cli {
namespace {

const HeatMap kMap = {
    "reads <fast>", "size", {"1", "2"}, {{"4 KiB", {1e9, 2e9}}, {"64 MiB", {4e9, 0}}}};

TEST(HeatMap, elsewhere_it_is_a_table) {
  EXPECT_EQ(heat_map_text(kMap, 1e9, false),
            "reads <fast>\n"
            "size       1     2\n"
            "4 KiB   1.00  2.00\n"
            "64 MiB  4.00     -\n");
}

TEST(HeatMap, on_a_terminal_what_is_known_has_a_colour) {
  const std::string text = heat_map_text(kMap, 1e9, true);
  std::size_t coloured = 0;
  for (std::size_t at = text.find("48;5;"); at != std::string::npos;
       at = text.find("48;5;", at + 1)) {
    ++coloured;
  }
  EXPECT_EQ(coloured, 3U) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(HeatMap, the_picture_escapes_names_and_leaves_gaps) {
  const std::string svg = draw_heat_maps(std::vector<HeatMap>{kMap, kMap}, 1e9, "A & B");
  EXPECT_NE(svg.find("A &amp; B"), std::string::npos);
  EXPECT_NE(svg.find("reads &lt;fast&gt;"), std::string::npos);
  std::size_t cells = 0;
  for (std::size_t at = svg.find("<rect"); at != std::string::npos;
       at = svg.find("<rect", at + 1)) {
    ++cells;
  }
  EXPECT_EQ(cells, 6U);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(HeatMap, nothing_measured_divides_by_nothing) {
  const HeatMap none{"none", "", {"1"}, {{"4 KiB", {0}}}};
  EXPECT_EQ(none.largest(), 1);
  EXPECT_EQ(heat_map_text(none, 1e9, false), "none\n       1\n4 KiB  -\n");
}

}  // namespace
}  // namespace tiermem::cli
