// The topology of the emulated machine is read as scripts/rig has configured it. check_topo reads
// what `tiermem topo` prints about it.
#include "os/topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "rig/rig.hpp"

namespace tiermem::rig {
namespace {

class RigTopology : public RigTest {
 protected:
  const MemoryNode& node(unsigned id) {
    static const MemoryNode none;
    const MemoryNode* const found = machine_.node(id);
    EXPECT_NE(found, nullptr) << "node " << id;
    return found != nullptr ? *found : none;
  }
  const Topology machine_ = read_topology();
};

TEST_F(RigTopology, nodes_have_their_processors_and_kinds) {
  EXPECT_EQ(node(0).cpus, IdList{0});
  EXPECT_EQ(node(1).cpus, IdList{1});
  EXPECT_EQ(node(2).cpus, IdList{});
  EXPECT_EQ(node(0).kind, MemoryKind::dram);
  EXPECT_EQ(node(1).kind, MemoryKind::dram);
  EXPECT_EQ(node(2).kind, MemoryKind::unknown);
  EXPECT_EQ(node(2).movable_only, false);
  if (const auto dax = node_of("RIG_DAX_NODE")) {
    EXPECT_EQ(node(*dax).kind, MemoryKind::pmem);
    EXPECT_EQ(node(*dax).movable_only, true);
    EXPECT_EQ(node(*dax).cpus, IdList{});
  }
  EXPECT_TRUE(machine_.damaged.empty()) << machine_.damaged.front();
}

TEST_F(RigTopology, distances_and_speeds_are_told) {
  EXPECT_EQ(node(0).distances.at(1), 20U);
  EXPECT_EQ(node(0).distances.at(2), 30U);
  EXPECT_EQ(node(1).distances.at(2), 35U);
  ASSERT_TRUE(node(0).access0);
  ASSERT_TRUE(node(2).access0);
  EXPECT_EQ(node(0).access0->read_ns, 90U);
  EXPECT_EQ(node(2).access0->read_ns, 250U);
  EXPECT_EQ(node(2).access0->read_mib_s, 25600U);
  EXPECT_EQ(machine_.nearest_processors(node(2)), 0U);
}

TEST_F(RigTopology, kernel_tiers_are_in_order_of_speed) {
  std::map<unsigned, unsigned> order;
  for (unsigned i = 0; i < machine_.tiers.size(); ++i) {
    for (const unsigned id : machine_.tiers[i].nodes) {
      order[id] = i;
    }
  }
  ASSERT_TRUE(order.contains(0) && order.contains(1) && order.contains(2));
  EXPECT_EQ(order[0], order[1]);
  EXPECT_LT(order[0], order[2]);
}

TEST_F(RigTopology, drives_are_found_by_serial_number) {
  for (const char* serial : {"rigcmb", "rigpeer", "rigfar"}) {
    const Drive* const drive = machine_.drive(serial);
    ASSERT_NE(drive, nullptr) << serial;
    EXPECT_EQ(drive->bytes, std::uint64_t{256} << 20);
  }
}

TEST_F(RigTopology, dax_device_is_told_with_its_node_and_mode) {
  const auto node = node_of("RIG_DAX_NODE");
  if (!node) {
    GTEST_SKIP() << "no node of persistent memory";
  }
  const auto device = std::find_if(machine_.dax.begin(), machine_.dax.end(),
                                   [&](const DaxDevice& each) { return each.target_node == node; });
  ASSERT_NE(device, machine_.dax.end());
  EXPECT_EQ(device->mode, DaxMode::system_ram);
  EXPECT_EQ(device->origin, DaxOrigin::pmem);
}

TEST_F(RigTopology, cxl_region_is_a_node) {
  const auto id = node_of("RIG_CXL_NODE");
  if (!id) {
    GTEST_SKIP() << "no CXL memory: scripts/rig --cxl";
  }
  EXPECT_EQ(node(*id).kind, MemoryKind::cxl);
  ASSERT_EQ(machine_.cxl_regions.size(), 1U);
  EXPECT_EQ(machine_.cxl_regions[0].node, id);
}

}  // namespace
}  // namespace tiermem::rig
