// The topology of a machine as a tree: nodes, the memory nodes that are nearest to their
// processors, and the devices attached to them. The text for people and the picture are made from
// this tree. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "os/topology.hpp"

namespace tiermem::cli {

struct TreeItem {
  enum class Kind : std::uint8_t { machine, processors, memory, device };
  Kind kind = Kind::machine;
  std::string title;                 ///< "node 0", "drive nvme0n1"
  std::vector<std::string> details;  ///< Each begins a line.
  std::vector<TreeItem> children;
};

TreeItem topology_tree(const Topology& topology);

/// Returns the text in lines of at most `width` columns, broken at blanks, or inside of a word that
/// is longer.
std::vector<std::string> broken(const std::string& text, std::size_t width);

/// Returns the tree as lines of at most `width` columns, drawn with lines of UTF-8 or of ASCII.
std::string tree_text(const TreeItem& tree, bool utf8, unsigned width);

/// Returns the distances between nodes as a table of at most 80 columns; several tables, one below
/// the other, for many nodes. Empty for a single node, or if no distance is told.
std::string distances_text(const Topology& topology);

/// Returns sentences about settings of the kernel and about files that could not be read.
std::vector<std::string> topology_notes(const Topology& topology);

}  // namespace tiermem::cli
