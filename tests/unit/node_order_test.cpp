// The memories of NUMA nodes as a configuration names them, against nodes that the test makes: the
// order of naming is the order of demotion.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/fit.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// A machine with processors on node 0, and further nodes without any.
struct Nodes : ::testing::Test {
  Nodes() {
    MemoryNode& node = add(0, 10);
    node.cpus = IdList{0, 1};
    node.kind = MemoryKind::dram;
  }
  MemoryNode& add(unsigned id, unsigned distance) {
    MemoryNode& node = topology.nodes.emplace_back();
    node.id = id;
    node.online = true;
    node.allowed = true;
    node.bytes = 64 * kGiB;
    node.free_bytes = 60 * kGiB;
    node.cpus = IdList{};
    node.kind = MemoryKind::cxl;
    node.distances = {{0, distance}};
    return node;
  }
  static NodeAccess access(std::uint64_t mib_s, std::uint64_t ns) {
    return {.initiators = {0},
            .read_mib_s = mib_s,
            .write_mib_s = mib_s,
            .read_ns = ns,
            .write_ns = ns};
  }
  /// Returns the warnings, in one text.
  std::string warnings(std::vector<unsigned> named) {
    Config config;
    for (const unsigned index : named) {
      config.numa.push_back({.index = index, .bytes = kGiB});
    }
    const Status status = judge_numa(config, topology);
    EXPECT_TRUE(status.ok()) << status.message();
    std::string all;
    for (const std::string& warning : config.warnings) {
      all += warning + "\n";
    }
    return all;
  }
  std::vector<std::uint64_t> bandwidths(std::vector<unsigned> named) {
    Config config;
    for (const unsigned index : named) {
      config.numa.push_back({.index = index, .bytes = kGiB});
    }
    const Status status = judge_numa(config, topology);
    EXPECT_TRUE(status.ok()) << status.message();
    return config.bandwidths;
  }
  Topology topology;
};

TEST_F(Nodes, a_faster_node_is_named_later_then_a_warning_says_which_and_by_how_much) {
  add(1, 20).access1 = access(10'000, 400);
  add(2, 20).access1 = access(40'000, 200);
  EXPECT_EQ(warnings({2, 1}), "");
  EXPECT_EQ(
      warnings({1, 2}),
      "numa: node 1 is named before node 2, which is faster: 100 us for 2 MiB there and back, "
      "against 400 us; name node 2 before node 1, because bytes that leave DRAM go to the first "
      "node named\n");
}

TEST_F(Nodes, the_firmware_tells_no_speeds_then_the_distances_decide) {
  add(1, 30);
  add(2, 20).access1 = access(40'000, 200);
  EXPECT_EQ(warnings({2, 1}), "");
  EXPECT_NE(warnings({1, 2}).find("which is nearer: distance 20, against 30"), std::string::npos);
}

TEST_F(Nodes, nearly_equal_or_nothing_known_then_there_is_no_warning) {
  add(1, 20).access1 = access(10'000, 400);
  add(2, 20).access1 = access(10'500, 390);
  MemoryNode& unknown = add(3, 20);
  unknown.distances.clear();
  EXPECT_EQ(warnings({1, 2}), "");
  EXPECT_EQ(warnings({2, 1}), "");
  EXPECT_EQ(warnings({3, 1}), "");
  EXPECT_EQ(warnings({1, 3}), "");
}

TEST_F(Nodes, the_firmware_tells_nonsense_then_nothing_overflows) {
  add(1, 20).access1 = access(~std::uint64_t{0}, 0);
  add(2, 20).access1 = access(1, ~std::uint64_t{0} >> 4);
  EXPECT_EQ(warnings({1, 2}), "");
  EXPECT_NE(warnings({2, 1}).find("name node 1 before node 2"), std::string::npos);
}

TEST_F(Nodes, three_nodes_in_the_wrong_order_then_each_late_one_has_its_warning) {
  add(1, 40);
  add(2, 30);
  add(3, 20);
  const std::string all = warnings({1, 2, 3});
  EXPECT_NE(all.find("name node 2 before node 1"), std::string::npos);
  EXPECT_NE(all.find("name node 3 before node 1"), std::string::npos);
  EXPECT_EQ(warnings({3, 2, 1}), "");
}

TEST_F(Nodes, a_node_without_figures_is_between_them_then_the_others_are_compared) {
  add(1, 40);
  add(2, 30).distances.clear();
  add(3, 20);
  EXPECT_NE(warnings({1, 2, 3}).find("name node 3 before node 1"), std::string::npos);
}

// Its figures are those of its own processors.
TEST_F(Nodes, a_node_has_processors_then_it_is_not_compared) {
  add(1, 20).access1 = access(10'000, 400);
  MemoryNode& socket = add(2, 20);
  socket.cpus = IdList{2, 3};
  socket.access1 = access(100'000, 90);
  EXPECT_EQ(warnings({1, 2}), "");
  EXPECT_EQ(warnings({2, 1}), "");
}

// ---- Bandwidths for interleaved buffers

TEST_F(Nodes, firmware_tells_bandwidths_then_they_are_those_of_dram_and_of_the_named_nodes) {
  topology.nodes.front().access1 = access(100'000, 90);
  add(1, 20).access1 = access(25'000, 250);
  add(2, 20).access0 = access(8'000, 400);
  EXPECT_EQ(bandwidths({2, 1}), (std::vector<std::uint64_t>{100'000, 8'000, 25'000}));
}

TEST_F(Nodes, administrator_has_set_weights_then_they_come_first) {
  topology.nodes.front().access1 = access(100'000, 90);
  topology.nodes.front().weight = 3;
  add(1, 20).access1 = access(25'000, 250);
  topology.nodes.back().weight = 1;
  EXPECT_EQ(bandwidths({1}), (std::vector<std::uint64_t>{3, 1}));
  topology.nodes.back().weight = 3;
  EXPECT_EQ(bandwidths({1}), (std::vector<std::uint64_t>{100'000, 25'000})) << "all are equal";
}

TEST_F(Nodes, the_only_node_with_processors_is_named_then_no_bandwidth_is_known_for_dram) {
  topology.nodes.front().access1 = access(100'000, 90);
  EXPECT_EQ(bandwidths({0}), (std::vector<std::uint64_t>{0, 100'000}));
}

}  // namespace
}  // namespace tiermem
