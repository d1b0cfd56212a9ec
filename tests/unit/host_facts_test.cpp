// Facts of a machine that is laid out as files: cgroups of both versions, NUMA nodes, devices, and
// unreadable files. Only one test depends on the machine that runs it.
#include "os/host_facts.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/directory.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr const char* kMountV2 =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kMountV1 =
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n";

class HostFactsTest : public testing::Test {
 protected:
  void SetUp() override {
    file("/proc/meminfo",
         "MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable: 16777216 kB\n");
  }

  void file(const std::string& path, const std::string& text) {
    const std::string full = root_ + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full) << text;
  }
  /// Creates a file that exists but cannot be read, even by root.
  void unreadable(const std::string& path) { std::filesystem::create_directories(root_ + path); }
  void cgroup_v2(const std::string& group, const std::string& max, std::uint64_t current,
                 std::uint64_t inactive = 0) {
    const std::string at = "/sys/fs/cgroup" + group;
    file(at + "/memory.max", max + "\n");
    file(at + "/memory.current", std::to_string(current) + "\n");
    file(at + "/memory.stat", "anon 5\ninactive_file " + std::to_string(inactive) + "\n");
  }
  HostFacts facts() const { return probe_host_facts(root_); }

  const test::Directory own_;
  const std::string& root_ = own_.path();
};

TEST_F(HostFactsTest, memory_is_read_in_bytes) {
  EXPECT_EQ(facts().memory_total.number(), 32 * kGiB);
  EXPECT_EQ(facts().memory_available.number(), 16 * kGiB);
}

TEST_F(HostFactsTest, without_a_cgroup_all_available_memory_is_left) {
  const HostFacts found = facts();
  EXPECT_FALSE(found.cgroup_limit.available);
  EXPECT_EQ(found.cgroup_limit.reason, "no cgroup of this process controls memory");
  EXPECT_EQ(found.memory_left(), 16 * kGiB);
}

TEST_F(HostFactsTest, the_tightest_of_nested_v2_limits_counts) {
  file("/proc/self/cgroup", "0::/outer/inner\n");
  file("/proc/self/mountinfo", kMountV2);
  cgroup_v2("/outer/inner", std::to_string(8 * kGiB), kGiB);
  // Other children of this group used most of it.
  cgroup_v2("/outer", std::to_string(9 * kGiB), 6 * kGiB);
  const HostFacts found = facts();
  EXPECT_EQ(found.cgroup_version.value, "2");
  EXPECT_EQ(found.cgroup_limit.number(), 9 * kGiB);
  EXPECT_EQ(found.cgroup_usage.number(), 6 * kGiB);
  EXPECT_EQ(found.cgroup_file.value, "/sys/fs/cgroup/outer/memory.max");
  EXPECT_EQ(found.memory_left(), 3 * kGiB);
}

TEST_F(HostFactsTest, max_is_no_limit_and_an_ancestor_may_have_one) {
  file("/proc/self/cgroup", "0::/a/b/c\n");
  file("/proc/self/mountinfo", kMountV2);
  cgroup_v2("/a/b/c", "max", kGiB);
  cgroup_v2("/a/b", "max", kGiB);
  EXPECT_EQ(facts().cgroup_limit.reason, "no cgroup above this process has a memory limit");
  EXPECT_EQ(facts().memory_left(), 16 * kGiB);
  cgroup_v2("/a", std::to_string(2 * kGiB), kGiB);
  EXPECT_EQ(facts().memory_left(), kGiB);
}

TEST_F(HostFactsTest, the_throttle_of_v2_counts_as_a_limit) {
  file("/proc/self/cgroup", "0::/a\n");
  file("/proc/self/mountinfo", kMountV2);
  cgroup_v2("/a", std::to_string(8 * kGiB), kGiB);
  file("/sys/fs/cgroup/a/memory.high", std::to_string(4 * kGiB));
  EXPECT_EQ(facts().cgroup_file.value, "/sys/fs/cgroup/a/memory.high");
  EXPECT_EQ(facts().memory_left(), 3 * kGiB);
}

TEST_F(HostFactsTest, inactive_page_cache_counts_as_left) {
  file("/proc/self/cgroup", "0::/a\n");
  file("/proc/self/mountinfo", kMountV2);
  cgroup_v2("/a", std::to_string(8 * kGiB), 7 * kGiB, 5 * kGiB);
  EXPECT_EQ(facts().cgroup_reclaimable.number(), 5 * kGiB);
  EXPECT_EQ(facts().memory_left(), 6 * kGiB);
}

TEST_F(HostFactsTest, the_group_with_least_processor_time_counts) {
  file("/proc/self/status", "Cpus_allowed_list:\t0-3\n");
  file("/proc/self/cgroup", "0::/a/b\n");
  file("/proc/self/mountinfo", kMountV2);
  EXPECT_EQ(facts().cpu_limit.reason, "no cgroup above this process limits processor time");
  EXPECT_FALSE(facts().cpu_time_is_limited());
  file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(facts().cpu_limit.available);
  file("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  EXPECT_EQ(facts().cpu_limit.number(), 400U);
  EXPECT_FALSE(facts().cpu_time_is_limited()) << "as much as there is";
  file("/sys/fs/cgroup/a/b/cpu.max", "50000 20000\n");
  EXPECT_EQ(facts().cpu_limit.number(), 250U);
  EXPECT_TRUE(facts().cpu_time_is_limited());
  for (const char* wrong : {"", "5", "-5 7", "7 0", "99999999999999999999 1", "x y"}) {
    file("/sys/fs/cgroup/a/b/cpu.max", wrong);
    EXPECT_EQ(facts().cpu_limit.number(), 400U) << wrong;
  }
}

TEST_F(HostFactsTest, the_old_hierarchy_limits_processor_time_by_quota_and_period) {
  file("/proc/self/status", "Cpus_allowed_list:\t0-1\n");
  file("/proc/self/cgroup", "4:cpu,cpuacct:/job\n3:memory:/other\n0::/\n");
  file("/proc/self/mountinfo",
       "35 31 0:32 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n");
  const std::string job = "/sys/fs/cgroup/cpu/job";
  file(job + "/cpu.cfs_period_us", "100000\n");
  file(job + "/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(facts().cpu_limit.available);
  file(job + "/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(facts().cpu_limit.number(), 150U);
  EXPECT_TRUE(facts().cpu_time_is_limited());
}

TEST_F(HostFactsTest, a_cgroup_above_its_limit_leaves_nothing) {
  file("/proc/self/cgroup", "0::/a\n");
  file("/proc/self/mountinfo", kMountV2);
  cgroup_v2("/a", std::to_string(kGiB), 2 * kGiB);
  EXPECT_EQ(facts().memory_left(), 0U);
}

TEST_F(HostFactsTest, a_limit_above_the_memory_available_does_not_matter) {
  file("/proc/self/cgroup", "0::/a\n");
  file("/proc/self/mountinfo", kMountV2);
  cgroup_v2("/a", std::to_string(100 * kGiB), 0);
  EXPECT_EQ(facts().memory_left(), 16 * kGiB);
}

TEST_F(HostFactsTest, v1_limits_and_their_sentinels_are_understood) {
  file("/proc/self/cgroup", "9:name=systemd:/\n4:cpuset,memory:/job/task\n0::/\n");
  file("/proc/self/mountinfo", std::string(kMountV1) + kMountV2);
  const std::string task = "/sys/fs/cgroup/memory/job/task";
  for (const char* sentinel : {"9223372036854771712", "9223372036854710272"}) {
    file(task + "/memory.limit_in_bytes", sentinel);
    EXPECT_FALSE(facts().cgroup_limit.available) << sentinel;
  }
  file(task + "/memory.limit_in_bytes", std::to_string(4 * kGiB) + "\n");
  file(task + "/memory.usage_in_bytes", std::to_string(2 * kGiB) + "\n");
  file(task + "/memory.stat",
       "inactive_file 7\ntotal_inactive_file " + std::to_string(kGiB) + "\n");
  const HostFacts found = facts();
  EXPECT_EQ(found.cgroup_version.value, "1");
  EXPECT_EQ(found.cgroup_file.value, task + "/memory.limit_in_bytes");
  EXPECT_EQ(found.memory_left(), 3 * kGiB);
}

TEST_F(HostFactsTest, a_container_that_sees_a_part_of_the_hierarchy_finds_its_limit) {
  file("/proc/self/cgroup", "4:memory:/docker/abc/sub\n");
  file("/proc/self/mountinfo",
       "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  file("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(3 * kGiB));
  file("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(kGiB));
  EXPECT_EQ(facts().memory_left(), 2 * kGiB);
  file("/sys/fs/cgroup/memory/sub/memory.limit_in_bytes", std::to_string(kGiB));
  EXPECT_EQ(facts().memory_left(), kGiB);
  // The process has joined a group outside the mounted part, so only the top of the mounted part is
  // visible.
  file("/proc/self/cgroup", "4:memory:/docker/abcdef\n");
  EXPECT_EQ(facts().memory_left(), 2 * kGiB);
  file("/proc/self/cgroup", "4:memory:/../other\n");
  EXPECT_EQ(facts().memory_left(), 2 * kGiB);
}

TEST_F(HostFactsTest, a_mount_with_a_space_in_its_path_is_found) {
  file("/proc/self/cgroup", "0::/a\n");
  file("/proc/self/mountinfo", "30 23 0:26 / /sys/my\\040cgroup rw - cgroup2 cgroup2 rw\n");
  file("/sys/my cgroup/a/memory.max", std::to_string(kGiB));
  EXPECT_EQ(facts().memory_left(), kGiB);
}

TEST_F(HostFactsTest, unreadable_files_are_reasons_and_not_failures) {
  std::filesystem::remove(root_ + "/proc/meminfo");
  unreadable("/proc/meminfo");
  unreadable("/proc/self/cgroup");
  unreadable("/proc/sys/vm/max_map_count");
  unreadable("/sys/kernel/mm/transparent_hugepage/enabled");
  const HostFacts found = facts();
  EXPECT_FALSE(found.memory_total.available);
  EXPECT_EQ(found.memory_total.reason, "/proc/meminfo: Is a directory");
  EXPECT_EQ(found.max_map_count.reason, "/proc/sys/vm/max_map_count: Is a directory");
  EXPECT_FALSE(found.huge_pages.available);
  EXPECT_FALSE(found.memory_left().has_value());
}

TEST_F(HostFactsTest, files_with_other_contents_are_reasons) {
  file("/proc/meminfo", "MemTotal: lots kB\n");
  file("/proc/sys/vm/max_map_count", "many\n");
  file("/sys/kernel/mm/transparent_hugepage/enabled", "always never\n");
  file("/proc/self/status", "Cpus_allowed_list:\tabc\n");
  const HostFacts found = facts();
  EXPECT_EQ(found.memory_total.reason, "/proc/meminfo: 'lots kB' is not a size");
  EXPECT_EQ(found.memory_available.reason, "/proc/meminfo has no line 'MemAvailable:'");
  EXPECT_EQ(found.max_map_count.reason, "/proc/sys/vm/max_map_count: 'many' is not a number");
  EXPECT_FALSE(found.huge_pages.available);
  EXPECT_FALSE(found.cores.available);
}

TEST_F(HostFactsTest, an_empty_machine_gives_a_reason_for_every_fact) {
  std::filesystem::remove_all(root_);
  const HostFacts found = facts();
  EXPECT_GE(found.named().size(), 17U);
  for (const auto& [name, fact] : found.named()) {
    EXPECT_FALSE(fact->available) << name;
    EXPECT_FALSE(fact->reason.empty()) << name;
  }
}

TEST_F(HostFactsTest, two_nodes_one_without_processors) {
  const std::string nodes = "/sys/devices/system/node";
  file(nodes + "/has_cpu", "0\n");
  file(nodes + "/node0/meminfo", "Node 0 MemTotal: 4194304 kB\nNode 0 MemFree: 1048576 kB\n");
  file(nodes + "/node0/cpulist", "0-3\n");
  file(nodes + "/node1/meminfo", "Node 1 MemTotal: 8388608 kB\nNode 1 MemFree: 8388608 kB\n");
  file(nodes + "/node1/cpulist", "\n");
  const HostFacts found = facts();
  EXPECT_EQ(found.numa.value, "2");
  ASSERT_EQ(found.numa_nodes.size(), 2U);
  EXPECT_EQ(found.numa_nodes[0].bytes, 4 * kGiB);
  EXPECT_EQ(found.numa_nodes[0].free_bytes, kGiB);
  EXPECT_EQ(found.numa_nodes[0].cpus, "0-3");
  EXPECT_EQ(found.numa_nodes[1].id, 1U);
  EXPECT_EQ(found.numa_nodes[1].bytes, 8 * kGiB);
  EXPECT_EQ(found.numa_nodes[1].cpus, "");
}

TEST_F(HostFactsTest, block_devices_are_described_and_empty_ones_left_out) {
  file("/sys/block/loop0/size", "0\n");
  file("/sys/block/nvme0n1/size", "2097152\n");
  file("/sys/block/nvme0n1/queue/rotational", "0\n");
  file("/sys/block/nvme0n1/queue/logical_block_size", "4096\n");
  file("/sys/block/nvme0n1/device/model", "Fast Disk 1            \n");
  file("/sys/block/sda/size", "4194304\n");
  file("/sys/block/sda/queue/rotational", "1\n");
  const HostFacts found = facts();
  ASSERT_EQ(found.block_devices.size(), 2U);
  EXPECT_EQ(found.block_devices[0].name, "nvme0n1");
  EXPECT_EQ(found.block_devices[0].bytes, kGiB);
  EXPECT_EQ(found.block_devices[0].block_bytes, 4096U);
  EXPECT_FALSE(found.block_devices[0].rotational);
  EXPECT_EQ(found.block_devices[0].model, "Fast Disk 1");
  EXPECT_TRUE(found.block_devices[1].rotational);
  EXPECT_EQ(found.block_devices[1].block_bytes, 512U);
}

TEST_F(HostFactsTest, limits_and_switches_are_read) {
  file("/proc/sys/kernel/osrelease", "6.18.0-test\n");
  file("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-2,8,10-11\n");
  file("/proc/self/limits",
       "Limit                     Soft Limit           Hard Limit           Units\n"
       "Max locked memory         8388608              unlimited            bytes\n");
  file("/proc/sys/vm/max_map_count", "65530\n");
  file("/proc/sys/kernel/io_uring_disabled", "1\n");
  file("/proc/sys/vm/unprivileged_userfaultfd", "0\n");
  file("/dev/userfaultfd", "");
  file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const HostFacts found = facts();
  EXPECT_EQ(found.kernel.value, "6.18.0-test");
  EXPECT_EQ(found.cores.number(), 6U);
  EXPECT_EQ(found.memlock_limit.number(), 8388608U);
  EXPECT_EQ(found.max_map_count.number(), 65530U);
  EXPECT_EQ(found.io_uring_disabled.value, "1");
  EXPECT_EQ(found.unprivileged_userfaultfd.value, "0");
  EXPECT_EQ(found.userfaultfd_device.value, "/dev/userfaultfd");
  EXPECT_EQ(found.huge_pages.value, "madvise");
}

TEST(HostFacts, of_this_machine_agree_with_its_system_calls) {
  const HostFacts found = probe_host_facts();
  if (!found.memory_total.available) {
    GTEST_SKIP() << found.memory_total.reason;
  }
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  EXPECT_EQ(found.cores.number(), static_cast<std::uint64_t>(CPU_COUNT(&allowed)));
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  EXPECT_EQ(found.memory_total.number(), pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
  ASSERT_TRUE(found.memory_left().has_value());
  EXPECT_LE(*found.memory_left(), *found.memory_total.number());
}

TEST(HostFacts, free_room_of_a_missing_directory_is_an_error_with_errno) {
  EXPECT_TRUE(file_system_room(testing::TempDir()).ok());
  const auto missing = file_system_room("/no/such/directory");
  EXPECT_EQ(missing.code(), Code::io_error);
  EXPECT_EQ(missing.status().info()->native, ENOENT);
}

}  // namespace
}  // namespace tiermem
