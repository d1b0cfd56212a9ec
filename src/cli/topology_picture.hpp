// The topology of a machine as a picture: a box for each part, inside of the box that it belongs
// to. One thread.
#pragma once

#include <string>

#include "cli/topology_tree.hpp"

namespace tiermem::cli {

/// Returns an SVG for light and dark pages, with a table of distances below the boxes.
std::string draw_topology(const Topology& topology);

}  // namespace tiermem::cli
