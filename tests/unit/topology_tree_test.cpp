// The tree that `tiermem topo` shows, of whole machines that are laid out as files.
#include "cli/topology_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "cli/table.hpp"
#include "support/machine_tree.hpp"

namespace tiermem::cli {
namespace {

using test::MachineTree;

std::string ascii(const MachineTree& machine) {
  return tree_text(topology_tree(machine.read()), false, 80);
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    most = std::max(most, display_width(line));
  }
  return most;
}

TEST(TopologyTree, one_node_is_one_branch) {
  MachineTree machine;
  machine.one_node();
  EXPECT_EQ(ascii(machine),
            "machine: 1 node, 16.0 GiB of memory\n"
            "`- node 0: DRAM 16.0 GiB, 8.00 GiB free, processors 0-3\n");
  EXPECT_EQ(distances_text(machine.read()), "");
}

TEST(TopologyTree, cxl_memory_is_below_its_nearest_processors) {
  MachineTree machine;
  machine.two_sockets_with_cxl();
  EXPECT_EQ(ascii(machine), R"(machine: 3 nodes, 256.0 GiB of memory
|- node 0: DRAM 64.0 GiB, 32.0 GiB free, processors 0-7,16-23
|  |  read 107 GB/s, 90 ns; write 85.9 GB/s, 95 ns; from node 0
|  |  kernel tier 4
|  |- node 2: CXL memory 128.0 GiB, 64.0 GiB free, no processors
|  |  |  read 26.8 GB/s, 250 ns; write 21.5 GB/s, 260 ns; from node 0
|  |  |  by processors: read 25.8 GB/s, 255 ns; write 20.4 GB/s, 265 ns; from
|  |  |  node 0
|  |  |  kernel tier 22
|  |  |  movable: page-locking moves its pages to another node
|  |  |- CXL region0: 128.0 GiB, ram, on mem0
|  |  `- DAX dax0.0: 128.0 GiB, CXL region0, used as RAM
|  `- CXL mem0: 128.0 GiB volatile, serial 0x1f
`- node 1: DRAM 64.0 GiB, 32.0 GiB free, processors 8-15,24-31
      read 107 GB/s, 90 ns; write 85.9 GB/s, 95 ns; from node 1
      kernel tier 4
)");
  EXPECT_EQ(distances_text(machine.read()),
            "distance to   0   1   2\n"
            "from node 0  10  21  14\n"
            "from node 1  21  10  24\n"
            "from node 2  14  24  10\n");
}

TEST(TopologyTree, devices_are_below_their_node) {
  MachineTree machine;
  machine.eight_drives();
  machine.nvme(9, "0000:d1:00.0", -1, "S9");
  machine.nvme(10, "0000:e1:00.0", 5, "S10");
  const TreeItem tree = topology_tree(machine.read());
  ASSERT_EQ(tree.children.size(), 4U);
  EXPECT_EQ(tree.children[0].children.size(), 5U) << "four drives and a GPU";
  EXPECT_EQ(tree.children[1].children.size(), 5U) << "four drives and a NIC";
  EXPECT_EQ(tree.children[2].title, "drive nvme10n1");
  EXPECT_EQ(tree.children[2].details.back(), "at node 5, which is not there");
  EXPECT_EQ(tree.children[3].details.back(), "node not told");
}

TEST(TopologyTree, hbm_and_memory_of_gpus_have_their_kind) {
  MachineTree hbm;
  hbm.sockets_with_hbm();
  EXPECT_NE(ascii(hbm).find("node 3: HBM 16.0 GiB"), std::string::npos) << ascii(hbm);
  MachineTree gpu;
  gpu.node_of_a_gpu();
  EXPECT_NE(ascii(gpu).find("node 1: GPU memory 96.0 GiB"), std::string::npos) << ascii(gpu);
  EXPECT_NE(ascii(gpu).find("NVIDIA, its memory is node 1"), std::string::npos) << ascii(gpu);
}

TEST(TopologyTree, node_that_is_offline_or_forbidden_is_marked) {
  MachineTree machine;
  machine.two_sockets_with_cxl();
  machine.allowed("1-2");
  EXPECT_NE(ascii(machine).find("not in the cpuset"), std::string::npos) << ascii(machine);
  machine.file("/sys/devices/system/node/online", "0-1\n");
  EXPECT_NE(ascii(machine).find("node 2: offline"), std::string::npos) << ascii(machine);
  EXPECT_NE(ascii(machine).find("machine: 2 nodes"), std::string::npos) << ascii(machine);
}

TEST(TopologyTree, attributes_that_are_missing_are_not_told) {
  MachineTree machine;
  machine.folder(MachineTree::at(0));
  EXPECT_EQ(ascii(machine),
            "machine: 1 node, 0 B of memory\n"
            "`- node 0: memory size not told, processors not told\n");
  EXPECT_EQ(ascii(MachineTree()), "machine: nodes not told\n");
}

TEST(TopologyTree, lines_fit_the_width) {
  MachineTree machine;
  machine.two_sockets_with_cxl();
  machine.nvme(0, "0000:11:00.0", 0, std::string(110, 'S'));
  const TreeItem tree = topology_tree(machine.read());
  for (const unsigned width : {40U, 60U, 80U}) {
    EXPECT_LE(widest(tree_text(tree, true, width)), width);
    EXPECT_LE(widest(tree_text(tree, false, width)), width);
  }
}

TEST(TopologyTree, distances_of_many_nodes_are_several_tables) {
  MachineTree machine;
  for (unsigned id = 0; id < 20; ++id) {
    machine.node(id * 10, "", 1 << 30);
    machine.distances(id * 10, std::vector<unsigned>(20, 254));
  }
  const std::string text = distances_text(machine.read());
  EXPECT_LE(widest(text), 80U) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 * 21 + 1) << text;
}

TEST(TopologyTree, settings_and_damaged_files_are_noted) {
  MachineTree machine;
  machine.two_sockets();
  EXPECT_TRUE(topology_notes(machine.read()).empty());
  machine.file("/proc/sys/kernel/numa_balancing", "1\n");
  machine.file("/sys/kernel/mm/numa/demotion_enabled", "true\n");
  machine.file(MachineTree::at(0) + "/cpulist", "garbage\n");
  const auto notes = topology_notes(machine.read());
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_NE(notes[0].find("write 0 to /proc/sys/kernel/numa_balancing"), std::string::npos);
  EXPECT_NE(notes[1].find("demotes pages"), std::string::npos);
  EXPECT_TRUE(notes[2].starts_with(MachineTree::at(0) + "/cpulist: ")) << notes[2];
}

}  // namespace
}  // namespace tiermem::cli
