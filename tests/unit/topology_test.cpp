// Topologies of machines that are laid out as files: whole machines, hot-plugged nodes, restricted
// cpusets, and files that are damaged or vanish. Only one test depends on the machine that runs it.
#include "os/topology.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>

#ifdef TIERMEM_HAVE_RAPIDCHECK
#include <rapidcheck/gtest.h>
#endif

#include "support/machine_tree.hpp"

namespace tiermem {
namespace {

using test::kTreeGiB;
using test::MachineTree;

const MemoryNode& node_of(const Topology& all, unsigned id) {
  static const MemoryNode none;
  const MemoryNode* const found = all.node(id);
  EXPECT_NE(found, nullptr) << "node " << id;
  return found != nullptr ? *found : none;
}

class TopologyTest : public testing::Test {
 protected:
  MachineTree tree_;
};

TEST_F(TopologyTest, one_node_is_read) {
  tree_.one_node();
  const Topology all = tree_.read();
  ASSERT_EQ(all.nodes.size(), 1U);
  const MemoryNode& node = all.nodes[0];
  EXPECT_EQ(node.bytes, 16 * kTreeGiB);
  EXPECT_EQ(node.free_bytes, 8 * kTreeGiB);
  EXPECT_EQ(node.cpus, (IdList{0, 1, 2, 3}));
  EXPECT_EQ(node.online, true);
  EXPECT_EQ(node.allowed, true);
  EXPECT_EQ(node.movable_only, false);
  EXPECT_EQ(node.kind, MemoryKind::dram);
  EXPECT_EQ(node.distances, (std::map<unsigned, unsigned>{{0, 10}}));
  EXPECT_FALSE(node.access0) << "this machine has no HMAT";
  EXPECT_TRUE(all.tiers.empty());
  EXPECT_TRUE(all.damaged.empty()) << all.damaged[0];
}

TEST_F(TopologyTest, two_sockets_have_distances_and_hmat) {
  tree_.two_sockets();
  const Topology all = tree_.read();
  ASSERT_EQ(all.nodes.size(), 2U);
  EXPECT_EQ(id_list_text(*all.nodes[1].cpus), "8-15,24-31");
  EXPECT_EQ(all.nodes[1].distances, (std::map<unsigned, unsigned>{{0, 21}, {1, 10}}));
  EXPECT_EQ(all.nodes[1].access0, (NodeAccess{{1}, 102400, 81920, 90, 95}));
  ASSERT_EQ(all.tiers.size(), 1U);
  EXPECT_EQ(all.tiers[0].number, 4U);
  EXPECT_EQ(all.tiers[0].nodes, (IdList{0, 1}));
}

TEST_F(TopologyTest, cxl_memory_is_a_node_without_processors) {
  tree_.two_sockets_with_cxl();
  const Topology all = tree_.read();
  const MemoryNode& node = node_of(all, 2);
  EXPECT_EQ(node.cpus, IdList());
  EXPECT_EQ(node.kind, MemoryKind::cxl);
  EXPECT_EQ(node.movable_only, true);
  EXPECT_EQ(node.access0->read_mib_s, 25600U);
  EXPECT_EQ(node.access1->write_ns, 265U);
  EXPECT_EQ(all.nearest_processors(node), 0U);
  EXPECT_EQ(all.nearest_processors(node_of(all, 0)), std::nullopt);
  ASSERT_EQ(all.cxl_memdevs.size(), 1U);
  EXPECT_EQ(all.cxl_memdevs[0].serial, "0x1f");
  EXPECT_EQ(all.cxl_memdevs[0].ram_bytes, 128 * kTreeGiB);
  EXPECT_EQ(all.cxl_memdevs[0].near, 0U);
  ASSERT_EQ(all.cxl_regions.size(), 1U);
  EXPECT_EQ(all.cxl_regions[0].bytes, 128 * kTreeGiB);
  EXPECT_EQ(all.cxl_regions[0].mode, "ram");
  EXPECT_EQ(all.cxl_regions[0].memdevs, std::vector<std::string>{"mem0"});
  EXPECT_EQ(all.cxl_regions[0].node, 2U);
  ASSERT_EQ(all.dax.size(), 1U);
  EXPECT_EQ(all.dax[0].bytes, 128 * kTreeGiB);
  EXPECT_EQ(all.dax[0].mode, DaxMode::system_ram);
  EXPECT_EQ(all.dax[0].origin, DaxOrigin::cxl);
  EXPECT_EQ(all.dax[0].region, "region0");
  EXPECT_EQ(all.dax[0].target_node, 2U);
  ASSERT_EQ(all.tiers.size(), 2U);
  EXPECT_EQ(all.tiers[1].number, 22U) << "numbers are not sorted as text";
}

TEST_F(TopologyTest, kernel_has_weights_of_nodes_then_each_node_has_its_own) {
  tree_.two_sockets_with_cxl();
  EXPECT_EQ(node_of(tree_.read(), 2).weight, std::nullopt);
  tree_.file("/sys/kernel/mm/mempolicy/weighted_interleave/node0", "5\n");
  tree_.file("/sys/kernel/mm/mempolicy/weighted_interleave/node2", "1\n");
  const Topology all = tree_.read();
  EXPECT_EQ(node_of(all, 0).weight, 5U);
  EXPECT_EQ(node_of(all, 1).weight, std::nullopt);
  EXPECT_EQ(node_of(all, 2).weight, 1U);
}

TEST_F(TopologyTest, cxl_region_without_a_dax_device_has_the_node_of_its_memory_block) {
  tree_.two_sockets();
  tree_.node(2, "", 64 * kTreeGiB);
  tree_.cxl(64 * kTreeGiB, 0);
  EXPECT_EQ(tree_.read().cxl_regions.at(0).node, std::nullopt);
  EXPECT_EQ(node_of(tree_.read(), 2).kind, MemoryKind::unknown);
  tree_.file("/sys/devices/system/memory/block_size_bytes", "8000000\n");
  tree_.folder(MachineTree::at(2) + "/memory146");  // 0x490000000 / 0x8000000
  EXPECT_EQ(tree_.read().cxl_regions.at(0).node, 2U);
  EXPECT_EQ(node_of(tree_.read(), 2).kind, MemoryKind::cxl);
}

TEST_F(TopologyTest, memory_faster_than_that_of_its_processors_is_hbm) {
  tree_.sockets_with_hbm();
  const Topology all = tree_.read();
  EXPECT_EQ(node_of(all, 2).kind, MemoryKind::hbm);
  EXPECT_EQ(node_of(all, 3).kind, MemoryKind::hbm);
  EXPECT_EQ(all.nearest_processors(node_of(all, 3)), 1U);
  // Without the figure it is only known that firmware has set node 2 aside.
  tree_.remove(MachineTree::at(2) + "/access0");
  tree_.remove(MachineTree::at(3) + "/access0");
  EXPECT_EQ(node_of(tree_.read(), 2).kind, MemoryKind::special);
  EXPECT_EQ(node_of(tree_.read(), 3).kind, MemoryKind::unknown);
  EXPECT_EQ(tree_.read().nearest_processors(node_of(tree_.read(), 3)), 1U) << "by distance";
}

TEST_F(TopologyTest, node_of_a_gpu_is_named_by_its_driver) {
  tree_.node_of_a_gpu();
  const Topology all = tree_.read();
  ASSERT_EQ(all.gpus.size(), 1U);
  EXPECT_EQ(all.gpus[0].address, "0009:01:00.0");
  EXPECT_EQ(all.gpus[0].vendor_id, 0x10deU);
  EXPECT_EQ(all.gpus[0].near, 0U);
  EXPECT_EQ(all.gpus[0].memory_node, 1U);
  EXPECT_EQ(node_of(all, 1).kind, MemoryKind::gpu);
  tree_.file("/proc/driver/nvidia/gpus/0009:01:00.0/numa_status", "Node: -1\n");
  EXPECT_EQ(tree_.read().gpus[0].memory_node, std::nullopt);
}

TEST_F(TopologyTest, drives_are_found_by_serial_and_wwid) {
  tree_.eight_drives();
  const Topology all = tree_.read();
  ASSERT_EQ(all.drives.size(), 8U);
  for (unsigned i = 0; i < 8; ++i) {
    const std::string serial = fmt::format("S{:04}", i);
    const Drive* const drive = all.drive(serial);
    ASSERT_NE(drive, nullptr) << serial;
    EXPECT_EQ(drive, all.drive("eui." + serial));
    EXPECT_EQ(drive->name, fmt::format("nvme{}n1", (i * 3) % 8));
    EXPECT_EQ(drive->near, i < 4 ? 0U : 1U);
    EXPECT_EQ(drive->bytes, 1000 * kTreeGiB);
    EXPECT_EQ(drive->model, "Example NVMe 1000");
  }
  EXPECT_EQ(all.drive("nvme0n1"), nullptr) << "a name is not an identity";
  EXPECT_EQ(all.drive(""), nullptr);
  ASSERT_EQ(all.nics.size(), 1U);
  EXPECT_EQ(all.nics[0].interfaces, std::vector<std::string>{"ens1"});
  EXPECT_EQ(all.nics[0].near, 1U);
  ASSERT_EQ(all.gpus.size(), 1U);
  EXPECT_EQ(all.gpus[0].memory_node, std::nullopt);
}

TEST_F(TopologyTest, serial_of_two_drives_finds_neither) {
  tree_.two_sockets();
  tree_.nvme(0, "0000:11:00.0", 0, "SAME");
  tree_.nvme(1, "0000:21:00.0", 1, "SAME");
  EXPECT_EQ(tree_.read().drive("SAME"), nullptr);
}

TEST_F(TopologyTest, disk_with_multipath_is_near_the_node_of_all_its_controllers) {
  tree_.two_sockets();
  const std::string subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0";
  tree_.file(subsystem + "/serial", "S1\n");
  tree_.file(subsystem + "/nvme0n1/size", "2048\n");
  tree_.file(subsystem + "/nvme0n1/wwid", "eui.1\n");
  tree_.link(subsystem + "/nvme0n1/device", subsystem);
  tree_.link("/sys/block/nvme0n1", subsystem + "/nvme0n1");
  const auto controller = [&](unsigned number, const std::string& address, int near) {
    const std::string name = fmt::format("nvme{}", number);
    const std::string at = tree_.pci(address, "0x010802", near) + "/nvme/" + name;
    const std::string path = at + fmt::format("/nvme0c{}n1", number);
    tree_.file(path + "/hidden", "1\n");
    tree_.file(path + "/size", "2048\n");
    tree_.link(path + "/device", at);
    tree_.link("/sys/block/" + path.substr(at.size() + 1), path);
    tree_.link(subsystem + "/" + name, at);
  };
  controller(0, "0000:11:00.0", 1);
  Topology all = tree_.read();
  ASSERT_EQ(all.drives.size(), 1U) << "paths are not drives";
  EXPECT_EQ(all.drives[0].serial, "S1");
  EXPECT_EQ(all.drives[0].near, 1U);
  controller(1, "0000:21:00.0", 0);
  EXPECT_EQ(tree_.read().drives.at(0).near, std::nullopt) << "it is near both";
}

TEST_F(TopologyTest, cpuset_restricts_the_nodes) {
  tree_.two_sockets_with_cxl();
  tree_.allowed("0,2");
  Topology all = tree_.read();
  EXPECT_EQ(all.allowed_nodes, (IdList{0, 2}));
  EXPECT_EQ(node_of(all, 0).allowed, true);
  EXPECT_EQ(node_of(all, 1).allowed, false);
  // A cgroup limits it further.
  tree_.file("/cpuset.mems.effective", "1-2\n");
  tree_.file("/other_status", "Mems_allowed_list:\t0-1\n");
  all = read_topology({.root = tree_.root(), .cpuset = "/cpuset.mems.effective"});
  EXPECT_EQ(all.allowed_nodes, (IdList{2}));
  all = read_topology({.root = tree_.root(), .status = "/other_status"});
  EXPECT_EQ(all.allowed_nodes, (IdList{0, 1}));
  all =
      read_topology({.root = tree_.root(), .status = "/none", .cpuset = "/cpuset.mems.effective"});
  EXPECT_EQ(all.allowed_nodes, (IdList{1, 2}));
  tree_.allowed("");
  EXPECT_EQ(tree_.read().allowed_nodes, std::nullopt);
  EXPECT_EQ(node_of(tree_.read(), 0).allowed, std::nullopt);
}

TEST_F(TopologyTest, distances_follow_the_numbers_of_nodes_with_holes) {
  tree_.node(0, "0-3", 16 * kTreeGiB);
  tree_.node(4, "", 8 * kTreeGiB);
  tree_.node(11, "", 8 * kTreeGiB);
  tree_.distances(0, {10, 30, 40});
  tree_.distances(4, {30, 10, 35});
  tree_.distances(11, {40, 35, 10});
  const Topology all = tree_.read();
  ASSERT_EQ(all.nodes.size(), 3U);
  EXPECT_EQ(all.nodes[2].id, 11U) << "numbers are not sorted as text";
  EXPECT_EQ(node_of(all, 0).distances, (std::map<unsigned, unsigned>{{0, 10}, {4, 30}, {11, 40}}));
  EXPECT_EQ(node_of(all, 11).distances.at(4), 35U);
}

TEST_F(TopologyTest, node_that_goes_offline_between_two_reads_leaves_the_distances_unknown) {
  tree_.two_sockets_with_cxl();
  ASSERT_EQ(tree_.read().nodes.size(), 3U);
  // The kernel has taken node 2 from the list, but its folder is still there.
  tree_.file("/sys/devices/system/node/online", "0-1\n");
  Topology all = tree_.read();
  EXPECT_EQ(node_of(all, 2).online, false);
  EXPECT_TRUE(node_of(all, 0).distances.empty()) << "three numbers for two nodes";
  // Now all of it is gone. The DAX device still names it.
  tree_.remove(MachineTree::at(2));
  tree_.distances(0, {10, 21});
  all = tree_.read();
  EXPECT_EQ(all.node(2), nullptr);
  EXPECT_EQ(node_of(all, 0).distances.at(1), 21U);
  EXPECT_EQ(all.dax.at(0).target_node, 2U);
}

TEST_F(TopologyTest, dax_device_has_the_mode_of_its_driver) {
  tree_.one_node();
  const std::string pmem = "LNXSYSTM:00/ACPI0012:00/ndbus0/region0/dax0.0";
  tree_.dax("dax0.0", pmem, 1 << 30, 3, "device_dax");
  tree_.dax("dax1.0", "LNXSYSTM:00/ACPI0012:00/ndbus0/region1/dax1.0", 1 << 30, -1, "");
  tree_.dax("dax2.0", "platform/hmem.1", 1 << 30, 4, "another");
  const Topology all = tree_.read();
  ASSERT_EQ(all.dax.size(), 3U);
  EXPECT_EQ(all.dax[0].mode, DaxMode::devdax);
  EXPECT_EQ(all.dax[0].origin, DaxOrigin::pmem);
  EXPECT_EQ(all.dax[0].region, "") << "a region of persistent memory is not one of CXL";
  EXPECT_EQ(all.dax[0].align_bytes, 2U << 20);
  EXPECT_EQ(all.dax[1].mode, DaxMode::unbound);
  EXPECT_EQ(all.dax[1].target_node, std::nullopt) << "-1 is not told";
  EXPECT_EQ(all.dax[2].mode, DaxMode::unknown);
  EXPECT_EQ(all.dax[2].origin, DaxOrigin::special);
}

TEST_F(TopologyTest, persistent_memory_as_ram_is_a_node) {
  tree_.one_node();
  tree_.node(3, "", kTreeGiB);
  tree_.dax("dax0.0", "LNXSYSTM:00/ndbus0/region0/dax0.0", 1 << 30, 3, "kmem");
  EXPECT_EQ(node_of(tree_.read(), 3).kind, MemoryKind::pmem);
}

TEST_F(TopologyTest, kernel_settings_that_move_pages_are_read) {
  tree_.one_node();
  EXPECT_EQ(tree_.read().balancing, std::nullopt);
  EXPECT_EQ(tree_.read().demotion, std::nullopt);
  tree_.file("/proc/sys/kernel/numa_balancing", "2\n");
  tree_.file("/sys/kernel/mm/numa/demotion_enabled", "true\n");
  EXPECT_EQ(tree_.read().balancing, 2U);
  EXPECT_EQ(tree_.read().demotion, true);
}

TEST_F(TopologyTest, figure_of_zero_is_not_told) {
  tree_.one_node();
  tree_.access(0, 0, {{0}, 0, 5, std::nullopt, 0});
  EXPECT_EQ(node_of(tree_.read(), 0).access0,
            (NodeAccess{{0}, std::nullopt, 5, std::nullopt, std::nullopt}));
}

TEST_F(TopologyTest, empty_root_is_an_empty_topology) {
  const Topology all = tree_.read();
  EXPECT_TRUE(all.nodes.empty());
  EXPECT_TRUE(all.drives.empty());
  EXPECT_FALSE(all.possible_nodes);
  EXPECT_TRUE(all.damaged.empty());
  EXPECT_TRUE(read_topology({.root = tree_.root() + "/nowhere"}).nodes.empty());
}

// ---- damaged files ----------------------------------------------------------------------------

/// All regular files below the root, as paths below it.
std::vector<std::string> files_of(const std::string& root) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.is_regular_file() && !entry.is_symlink()) {
      found.push_back(entry.path().string().substr(root.size()));
    }
  }
  return found;
}

/// A machine with a device of every kind.
void everything(MachineTree& tree) {
  tree.two_sockets_with_cxl();
  tree.nvme(0, "0000:11:00.0", 1, "S0001");
  tree.nic("0000:b1:00.0", 1, "ens1");
  tree.pci("0000:c1:00.0", "0x030000", 0, "0x10de");
  tree.file("/proc/driver/nvidia/gpus/0000:c1:00.0/numa_status", "Node: 2\n");
  tree.file("/sys/devices/system/memory/block_size_bytes", "8000000\n");
  tree.file("/proc/sys/kernel/numa_balancing", "1\n");
  tree.file("/sys/kernel/mm/numa/demotion_enabled", "false\n");
}

TEST_F(TopologyTest, each_damaged_file_is_unknown_and_the_others_are_read) {
  everything(tree_);
  ASSERT_TRUE(tree_.read().damaged.empty()) << tree_.read().damaged[0];
  const std::vector<std::string> texts = {"",
                                          "\n",
                                          "garbage\n",
                                          "-7\n",
                                          std::string("\0\xff\x1b[2J", 6),
                                          "99999999999999999999999\n",
                                          "0-4294967295\n",
                                          "5-3,1\n",
                                          "10 x 10\n",
                                          std::string(200'000, '7')};
  for (const std::string& path : files_of(tree_.root())) {
    std::ifstream old(tree_.root() + path, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(old)), {});
    for (const std::string& text : texts) {
      tree_.file(path, text);
      const Topology all = tree_.read();
      EXPECT_EQ(all.nodes.size(), 3U) << path;
      for (const MemoryNode& node : all.nodes) {
        EXPECT_TRUE(!node.bytes || *node.bytes == 64 * kTreeGiB || *node.bytes == 128 * kTreeGiB);
        EXPECT_TRUE(!node.cpus || node.cpus->size() <= 16 || path.ends_with("/cpulist")) << path;
      }
      EXPECT_LE(all.drives.size(), 1U);
    }
    // A folder in its place cannot be read, even by root.
    tree_.remove(path);
    tree_.folder(path);
    EXPECT_EQ(tree_.read().nodes.size(), 3U) << path;
    tree_.remove(path);
    ASSERT_EQ(mkfifo((tree_.root() + path).c_str(), 0600), 0);
    EXPECT_EQ(tree_.read().nodes.size(), 3U) << path << ": a pipe must not block";
    tree_.remove(path);
    EXPECT_EQ(tree_.read().nodes.size(), 3U) << path;
    tree_.file(path, whole);
  }
  EXPECT_TRUE(tree_.read().damaged.empty());
}

TEST_F(TopologyTest, damaged_attributes_are_unknown_and_named) {
  everything(tree_);
  const std::string node = MachineTree::at(1);
  tree_.file(node + "/meminfo", "Node 1 MemTotal: many kB\nNode 1 MemFree: 7\n");
  tree_.file(node + "/cpulist", "");
  tree_.file(node + "/distance", "10 far 21\n");
  tree_.file(node + "/access0/initiators/read_bandwidth", "fast\n");
  const Topology all = tree_.read();
  const MemoryNode& found = node_of(all, 1);
  EXPECT_EQ(found.bytes, std::nullopt);
  EXPECT_EQ(found.free_bytes, std::nullopt) << "without a unit";
  EXPECT_EQ(found.cpus, std::nullopt) << "a node without processors has an empty line";
  EXPECT_EQ(found.kind, MemoryKind::unknown);
  EXPECT_TRUE(found.distances.empty());
  EXPECT_EQ(found.access0->read_mib_s, std::nullopt);
  EXPECT_EQ(found.access0->read_ns, 90U);
  EXPECT_EQ(all.damaged,
            (std::vector<std::string>{node + "/meminfo", node + "/cpulist", node + "/distance",
                                      node + "/access0/initiators/read_bandwidth"}));
}

TEST_F(TopologyTest, links_out_of_the_root_and_in_circles_are_not_followed) {
  tree_.two_sockets();
  tree_.link("/sys/bus/cxl/devices/mem0", "/sys/bus/cxl/devices/mem0");
  tree_.folder("/sys/bus/pci/devices");
  std::filesystem::create_directory_symlink("/",
                                            tree_.root() + "/sys/bus/pci/devices/0000:01:00.0");
  const Topology all = tree_.read();
  ASSERT_EQ(all.cxl_memdevs.size(), 1U);
  EXPECT_EQ(all.cxl_memdevs[0].near, std::nullopt);
  EXPECT_TRUE(all.gpus.empty());
}

TEST_F(TopologyTest, files_that_vanish_during_the_read_do_no_harm) {
  everything(tree_);
  std::atomic<bool> stop = false;
  std::thread other([&] {
    MachineTree scratch;
    for (unsigned i = 0; !stop; ++i) {
      const std::string name = i % 2 == 0 ? MachineTree::at(2) : "/sys/devices/pci0000:11";
      std::filesystem::rename(tree_.root() + name, scratch.root() + "/away");
      std::this_thread::yield();
      std::filesystem::rename(scratch.root() + "/away", tree_.root() + name);
    }
  });
  for (unsigned i = 0; i < 300; ++i) {
    const Topology all = tree_.read();
    EXPECT_LE(all.nodes.size(), 3U);
    EXPECT_TRUE(all.damaged.empty()) << all.damaged[0];
    const MemoryNode* const node = all.node(2);
    EXPECT_TRUE(node == nullptr || !node->bytes || *node->bytes == 128 * kTreeGiB);
  }
  stop = true;
  other.join();
  EXPECT_EQ(tree_.read().nodes.size(), 3U);
}

TEST(ThisMachine, has_the_nodes_that_the_kernel_lists) {
  const Topology all = read_topology();
  std::ifstream file("/sys/devices/system/node/online");
  std::string line;
  if (!std::getline(file, line)) {
    GTEST_SKIP() << "this kernel has no /sys/devices/system/node/online";
  }
  IdList online;
  for (const MemoryNode& node : all.nodes) {
    if (node.online == true) {
      online.push_back(node.id);
    }
  }
  EXPECT_EQ(id_list_text(online), line);
}

// ---- lists ------------------------------------------------------------------------------------

TEST(IdLists, are_read_as_the_kernel_writes_them) {
  EXPECT_EQ(parse_id_list("0-3,8\n"), (IdList{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_id_list("\n"), IdList());
  for (const char* wrong : {"a", "1-", "-1", "3-1", "1,1", "2,1", "1,", ",1", "0-70000", "1 2"}) {
    EXPECT_EQ(parse_id_list(wrong), std::nullopt) << wrong;
  }
}

#ifdef TIERMEM_HAVE_RAPIDCHECK
RC_GTEST_PROP(IdLists, survive_being_written_and_read, (const std::set<std::uint16_t>& ids)) {
  const IdList list(ids.begin(), ids.end());
  RC_ASSERT(parse_id_list(id_list_text(list)) == list);
}

RC_GTEST_PROP(Topologies, random_tree_is_read_as_it_was_written, ()) {
  MachineTree tree;
  // A file takes a tenth of a millisecond, so that a tree has few nodes and drives.
  const auto few = [](auto element) {
    return rc::gen::mapcat(rc::gen::inRange(0, 7), [element](int count) {
      return rc::gen::container<std::vector<unsigned>>(static_cast<std::size_t>(count), element);
    });
  };
  const std::vector<unsigned> drawn = *few(rc::gen::inRange(0U, 40U));
  const std::set<unsigned> ids(drawn.begin(), drawn.end());
  const auto maybe = [](std::uint64_t most) {
    return *rc::gen::oneOf(rc::gen::just(std::optional<std::uint64_t>()),
                           rc::gen::map(rc::gen::inRange<std::uint64_t>(1, most),
                                        [](std::uint64_t value) { return std::optional(value); }));
  };
  const auto some_ids = [] {
    const auto set = *rc::gen::container<std::set<unsigned>>(rc::gen::inRange(0U, 300U));
    return IdList(set.begin(), set.end());
  };
  std::vector<MemoryNode> nodes;
  for (const unsigned id : ids) {
    MemoryNode node;
    node.id = id;
    node.bytes = *rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 30) * 2048;
    node.cpus = some_ids();
    for (auto* access : {&node.access0, &node.access1}) {
      if (*rc::gen::arbitrary<bool>()) {
        *access = NodeAccess{{}, maybe(1'000'000), maybe(1'000'000), maybe(10'000), maybe(10'000)};
        (*access)->initiators = *rc::gen::arbitrary<bool>() ? IdList{id} : IdList{};
      }
    }
    for (const unsigned other : ids) {
      node.distances[other] = *rc::gen::inRange(10U, 256U);
    }
    nodes.push_back(node);
  }
  for (const MemoryNode& node : nodes) {
    tree.node(node.id, id_list_text(*node.cpus), *node.bytes);
    std::vector<unsigned> row;
    for (const auto& [other, distance] : node.distances) {
      row.push_back(distance);
    }
    tree.distances(node.id, row);
    if (node.access0) {
      tree.access(node.id, 0, *node.access0);
    }
    if (node.access1) {
      tree.access(node.id, 1, *node.access1);
    }
  }
  std::map<unsigned, int> drives;
  for (const unsigned number : *few(rc::gen::inRange(0U, 30U))) {
    drives[number] = *rc::gen::inRange(-1, 8);
  }
  for (const auto& [number, near] : drives) {
    tree.nvme(number, fmt::format("0000:{:02x}:00.0", number), near, fmt::format("S{}", number));
  }
  const IdList allowed = some_ids();
  tree.allowed(id_list_text(allowed));

  const Topology all = tree.read();
  RC_ASSERT(all.nodes.size() == nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const MemoryNode& wrote = nodes[i];
    const MemoryNode& read = all.nodes[i];
    RC_ASSERT(read.id == wrote.id);
    RC_ASSERT(read.online == true);
    RC_ASSERT(read.bytes == wrote.bytes);
    RC_ASSERT(read.free_bytes == *wrote.bytes / 2);
    RC_ASSERT(read.cpus == wrote.cpus);
    RC_ASSERT(read.distances == wrote.distances);
    RC_ASSERT(read.access0 == wrote.access0);
    RC_ASSERT(read.access1 == wrote.access1);
  }
  RC_ASSERT(all.allowed_nodes == (allowed.empty() ? std::optional<IdList>() : allowed));
  RC_ASSERT(all.drives.size() == drives.size());
  for (const auto& [number, near] : drives) {
    const Drive* const drive = all.drive(fmt::format("S{}", number));
    RC_ASSERT(drive != nullptr);
    RC_ASSERT(drive->near == (near < 0 ? std::nullopt : std::optional(unsigned(near))));
  }
}
#endif

}  // namespace
}  // namespace tiermem
