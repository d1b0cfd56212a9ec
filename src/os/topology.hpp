// The topology of the machine, read from sysfs: which NUMA nodes there are, what kind of memory
// they have, how far they are from the processors, and which devices are attached to them. Facts
// only: nothing is measured, and higher layers decide how to use them. Every file is read below a
// root path, so that tests can provide their own files.
//
// Threads: any. A read takes some milliseconds. It never fails: an attribute that is missing,
// cannot be read or makes no sense is "not told", which is an empty std::optional, an empty text or
// a node without an entry in a map. Devices and nodes may come and go during the read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tiermem {

/// Ids of nodes or processors, ascending.
using IdList = std::vector<unsigned>;

/// Returns the ids of a list in the kernel's form: "0-3,8". Nothing for text that is not a list.
std::optional<IdList> parse_id_list(std::string_view text);
/// Returns the list in the kernel's form.
std::string id_list_text(const IdList& ids);

enum class MemoryKind : std::uint8_t {
  unknown,  ///< Memory without processors, and no source tells what it is.
  none,     ///< The node has no memory.
  dram,     ///< Memory of a node with processors.
  hbm,      ///< Without processors, and by HMAT faster than the memory of its processors.
  cxl,      ///< A CXL region.
  pmem,     ///< Persistent memory that the kernel uses as RAM.
  gpu,      ///< The memory of a GPU, as its driver reports.
  special,  ///< Set aside by the firmware ("specific purpose"), such as HBM or CXL.
};
/// "DRAM", "CXL memory"; text for people.
std::string_view memory_kind_name(MemoryKind kind);

/// The access class of a node (access0 or access1), which firmware tells by HMAT or CDAT: figures
/// for accesses from the initiators, which are the nearest nodes. For access0 an initiator has
/// processors or is a device; for access1 it has processors.
struct NodeAccess {
  IdList initiators;
  std::optional<std::uint64_t> read_mib_s, write_mib_s;
  std::optional<std::uint64_t> read_ns, write_ns;
  friend bool operator==(const NodeAccess&, const NodeAccess&) = default;
};

struct MemoryNode {
  unsigned id = 0;
  std::optional<bool> online;
  std::optional<bool> allowed;  ///< Whether the cpuset of the process includes it.
  std::optional<std::uint64_t> bytes, free_bytes;
  /// All its memory may be offlined (ZONE_MOVABLE). Page-locking migrates such pages elsewhere.
  std::optional<bool> movable_only;
  std::optional<IdList> cpus;  ///< Online processors; an empty list: it has none.
  MemoryKind kind = MemoryKind::unknown;
  std::map<unsigned, unsigned> distances;  ///< From this node to a node; 10 is local.
  std::optional<NodeAccess> access0, access1;
  /// Its share when the kernel interleaves pages by weight (Linux 6.9).
  std::optional<unsigned> weight;
};

/// A tier of the kernel: nodes of similar speed. The kernel demotes pages to higher numbers.
struct KernelTier {
  unsigned number = 0;
  IdList nodes;
};

struct CxlMemdev {
  std::string name;    ///< "mem0". It may change from one start of the machine to the next.
  std::string serial;  ///< "0x1".
  std::optional<std::uint64_t> ram_bytes, pmem_bytes;
  std::optional<unsigned> near;  ///< The node that it is attached to.
};

struct CxlRegion {
  std::string name;  ///< "region0"
  std::optional<std::uint64_t> bytes;
  std::string mode;                   ///< "ram" or "pmem".
  std::optional<std::uint64_t> ways;  ///< Number of memdevs that are interleaved.
  std::vector<std::string> memdevs;   ///< Names of those that are known.
  std::optional<unsigned> node;       ///< The node that its memory is, or would become.
};

enum class DaxMode : std::uint8_t { unknown, unbound, devdax, system_ram };
enum class DaxOrigin : std::uint8_t { unknown, pmem, cxl, special };

struct DaxDevice {
  std::string name;  ///< "dax0.0"
  std::optional<std::uint64_t> bytes, align_bytes;
  std::optional<unsigned> target_node;  ///< The node that its memory is, or would become.
  std::optional<unsigned> near;
  DaxMode mode = DaxMode::unknown;
  DaxOrigin origin = DaxOrigin::unknown;
  std::string region;  ///< The CXL region that it is a part of.
};

/// A disk with a device behind it: not a loop device, not a device mapper.
struct Drive {
  std::string name;  ///< Name in /sys/block. It may change from one start to the next.
  std::string wwid, serial, model;
  std::optional<std::uint64_t> bytes;
  std::optional<unsigned> near;
};

struct PciDevice {
  std::string address;  ///< "0000:41:00.0"
  std::optional<unsigned> vendor_id, device_id;
  std::vector<std::string> interfaces;  ///< Names of a NIC's network interfaces.
  std::optional<unsigned> near;
  std::optional<unsigned> memory_node;  ///< The node that a GPU's memory is.
};

struct Topology {
  std::vector<MemoryNode> nodes;  ///< Those with a folder, ascending.
  std::optional<IdList> possible_nodes;
  std::optional<IdList> allowed_nodes;  ///< The nodes from which the process may get memory.
  std::vector<KernelTier> tiers;        ///< The fastest first.
  std::vector<CxlMemdev> cxl_memdevs;
  std::vector<CxlRegion> cxl_regions;
  std::vector<DaxDevice> dax;
  std::vector<Drive> drives;
  std::vector<PciDevice> gpus, nics;
  std::optional<bool> demotion;  ///< Whether the kernel demotes pages when a node is full.
  /// kernel.numa_balancing: 0 off, 1 pages move to the processors that use them, 2 also between
  /// tiers. Such moves bypass tiermem.
  std::optional<unsigned> balancing;
  /// Files that exist but cannot be read or make no sense, up to 64.
  std::vector<std::string> damaged;

  const MemoryNode* node(unsigned id) const;
  /// Returns the drive with this WWID or serial number, or null if none or more than one has it.
  const Drive* drive(std::string_view wwid_or_serial) const;
  /// Returns the node with processors that is nearest to a node without any: the first initiator of
  /// access0, or else the one at the shortest distance. Nothing for a node with processors.
  std::optional<unsigned> nearest_processors(const MemoryNode& node) const;
};

struct TopologySource {
  std::string root{};  ///< A prefix for every path; empty: this machine.
  /// The nodes that the process may use: the line Mems_allowed_list of this file.
  std::string status = "/proc/self/status";
  /// A further list of allowed nodes, such as cpuset.mems.effective of a cgroup; empty: none.
  std::string cpuset{};
};

Topology read_topology(const TopologySource& source = {});

}  // namespace tiermem
