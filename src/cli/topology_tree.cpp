// A node without processors is a child of the nearest node with processors. A device is a child of
// its node. All others are children of the machine.
#include "cli/topology_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/shown.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"

namespace tiermem::cli {
namespace {

using Kind = TreeItem::Kind;
constexpr std::size_t kNarrowest = 20;       // Minimum width of the text beside the lines.
constexpr std::size_t kDistancesInRow = 11;  // Numbers of four digits fit into 80 columns.

std::string size_text(std::optional<std::uint64_t> bytes) {
  return bytes ? human_bytes(*bytes) : "size not told";
}

std::string rate_text(std::uint64_t mib_s) {
  return human_rate(static_cast<double>(mib_s) * (1 << 20));
}

/// "read 107 GB/s, 90 ns; write 85.9 GB/s, 95 ns"; empty if nothing is told.
std::string access_text(const NodeAccess& access) {
  const auto half = [](const char* word, std::optional<std::uint64_t> mib_s,
                       std::optional<std::uint64_t> ns) {
    std::vector<std::string> parts;
    if (mib_s) {
      parts.push_back(rate_text(*mib_s));
    }
    if (ns) {
      parts.push_back(fmt::format("{} ns", *ns));
    }
    return parts.empty() ? "" : fmt::format("{} {}", word, fmt::join(parts, ", "));
  };
  const std::string read = half("read", access.read_mib_s, access.read_ns);
  const std::string write = half("write", access.write_mib_s, access.write_ns);
  std::string text = read + (read.empty() || write.empty() ? "" : "; ") + write;
  if (!text.empty() && !access.initiators.empty()) {
    text += fmt::format("; from node {}", id_list_text(access.initiators));
  }
  return text;
}

TreeItem node_item(const Topology& all, const MemoryNode& node) {
  const bool processors = node.cpus && !node.cpus->empty();
  TreeItem item{
      processors ? Kind::processors : Kind::memory, fmt::format("node {}", node.id), {}, {}};
  if (node.online == false) {
    item.details.push_back("offline");
    return item;
  }
  std::string memory(memory_kind_name(node.kind));
  if (node.kind != MemoryKind::none) {
    memory += " " + size_text(node.bytes);
  }
  if (node.free_bytes && node.kind != MemoryKind::none) {
    memory += fmt::format(", {} free", human_bytes(*node.free_bytes));
  }
  memory += !node.cpus           ? ", processors not told"
            : node.cpus->empty() ? ", no processors"
                                 : ", processors " + id_list_text(*node.cpus);
  item.details.push_back(std::move(memory));
  const std::string from_processors = node.access1 ? access_text(*node.access1) : "";
  const std::string nearest = node.access0 ? access_text(*node.access0) : "";
  if (!nearest.empty()) {
    item.details.push_back(nearest);
  }
  if (!from_processors.empty() && from_processors != nearest) {
    item.details.push_back("by processors: " + from_processors);
  }
  for (const KernelTier& tier : all.tiers) {
    if (std::binary_search(tier.nodes.begin(), tier.nodes.end(), node.id)) {
      item.details.push_back(fmt::format("kernel tier {}", tier.number));
    }
  }
  if (node.movable_only == true) {
    item.details.push_back("movable: page-locking moves its pages to another node");
  }
  if (node.allowed == false) {
    item.details.push_back("not in the cpuset of this process");
  }
  return item;
}

std::string vendor_text(const PciDevice& device) {
  static constexpr std::array<std::pair<unsigned, const char*>, 7> kVendors = {
      {{0x10de, "NVIDIA"},
       {0x1002, "AMD"},
       {0x8086, "Intel"},
       {0x15b3, "Mellanox"},
       {0x14e4, "Broadcom"},
       {0x1af4, "virtio"},
       {0x1d0f, "Amazon"}}};
  for (const auto& [id, name] : kVendors) {
    if (device.vendor_id == id) {
      return name;
    }
  }
  return device.vendor_id ? fmt::format("vendor {:04x}", *device.vendor_id) : "vendor not told";
}

TreeItem device_item(std::string title, const std::vector<std::string>& parts) {
  return {Kind::device, std::move(title), {fmt::format("{}", fmt::join(parts, ", "))}, {}};
}

TreeItem drive_item(const Drive& drive) {
  std::vector<std::string> parts = {size_text(drive.bytes)};
  if (!drive.model.empty()) {
    parts.push_back(drive.model);
  }
  if (!drive.serial.empty() || !drive.wwid.empty()) {
    parts.push_back(drive.serial.empty() ? "WWID " + drive.wwid : "serial " + drive.serial);
  }
  return device_item("drive " + drive.name, parts);
}

TreeItem dax_item(const DaxDevice& device) {
  static constexpr std::array kModes = {"", "no driver", "devdax", "used as RAM"};
  static constexpr std::array kOrigins = {"", "persistent memory", "CXL",
                                          "specific purpose memory"};
  std::vector<std::string> parts = {size_text(device.bytes)};
  if (const std::string origin = kOrigins[static_cast<std::size_t>(device.origin)];
      !origin.empty()) {
    parts.push_back(origin + (device.region.empty() ? "" : " " + device.region));
  }
  if (const std::string mode = kModes[static_cast<std::size_t>(device.mode)]; !mode.empty()) {
    parts.push_back(mode);
  }
  if (device.mode != DaxMode::system_ram && device.target_node) {
    parts.push_back(fmt::format("would be node {}", *device.target_node));
  }
  return device_item("DAX " + device.name, parts);
}

TreeItem region_item(const CxlRegion& region) {
  std::vector<std::string> parts = {size_text(region.bytes)};
  if (!region.mode.empty()) {
    parts.push_back(region.mode);
  }
  if (!region.memdevs.empty()) {
    parts.push_back(fmt::format("on {}", fmt::join(region.memdevs, " and ")));
  }
  return device_item("CXL " + region.name, parts);
}

TreeItem memdev_item(const CxlMemdev& memdev) {
  std::vector<std::string> parts;
  if (memdev.ram_bytes.value_or(0) != 0) {
    parts.push_back(human_bytes(*memdev.ram_bytes) + " volatile");
  }
  if (memdev.pmem_bytes.value_or(0) != 0) {
    parts.push_back(human_bytes(*memdev.pmem_bytes) + " persistent");
  }
  if (parts.empty()) {
    parts.push_back("size not told");
  }
  if (!memdev.serial.empty()) {
    parts.push_back("serial " + memdev.serial);
  }
  return device_item("CXL " + memdev.name, parts);
}

TreeItem gpu_item(const PciDevice& gpu) {
  std::vector<std::string> parts = {vendor_text(gpu)};
  if (gpu.memory_node) {
    parts.push_back(fmt::format("its memory is node {}", *gpu.memory_node));
  }
  return device_item("GPU " + gpu.address, parts);
}

TreeItem nic_item(const PciDevice& nic) {
  if (nic.interfaces.empty()) {
    return device_item("NIC " + nic.address, {vendor_text(nic)});
  }
  return device_item(fmt::format("NIC {}", fmt::join(nic.interfaces, " and ")),
                     {nic.address, vendor_text(nic)});
}

/// A device with the node that it belongs to, if that is told.
struct Placed {
  std::optional<unsigned> node;
  TreeItem item;
};

std::vector<Placed> devices_of(const Topology& all) {
  std::vector<Placed> devices;
  for (const CxlMemdev& memdev : all.cxl_memdevs) {
    devices.push_back({memdev.near, memdev_item(memdev)});
  }
  for (const CxlRegion& region : all.cxl_regions) {
    devices.push_back({region.node, region_item(region)});
  }
  for (const DaxDevice& device : all.dax) {
    const bool ram = device.mode == DaxMode::system_ram && device.target_node;
    devices.push_back({ram ? device.target_node : device.near, dax_item(device)});
  }
  for (const Drive& drive : all.drives) {
    devices.push_back({drive.near, drive_item(drive)});
  }
  for (const PciDevice& gpu : all.gpus) {
    devices.push_back({gpu.near, gpu_item(gpu)});
  }
  for (const PciDevice& nic : all.nics) {
    devices.push_back({nic.near, nic_item(nic)});
  }
  return devices;
}

/// Returns the node's item with its children, and takes their devices.
TreeItem whole_node(const Topology& all, const MemoryNode& node, std::vector<Placed>& devices) {
  TreeItem item = node_item(all, node);
  for (const MemoryNode& other : all.nodes) {
    if (&other != &node && all.nearest_processors(other) == node.id) {
      item.children.push_back(whole_node(all, other, devices));
    }
  }
  for (Placed& device : devices) {
    if (device.node == node.id) {
      item.children.push_back(std::move(device.item));
    }
  }
  std::erase_if(devices, [&](const Placed& device) { return device.node == node.id; });
  return item;
}

struct Lines {
  std::string_view fork, last, bar;
};
constexpr Lines kAscii = {"|- ", "`- ", "|  "};
constexpr Lines kUtf8 = {"├─ ", "└─ ", "│  "};

/// `first` precedes the item's first line, and `rest` all others below it.
void add_item(const TreeItem& item, const Lines& lines, const std::string& first,
              const std::string& rest, unsigned width, std::string& out) {
  const std::string below = rest + std::string(item.children.empty() ? "   " : lines.bar);
  const std::size_t used = std::max(display_width(first), display_width(below));
  const std::size_t room = std::max(width > used ? width - used : 0, kNarrowest);
  bool is_first = true;
  for (std::size_t i = 0; i < std::max<std::size_t>(item.details.size(), 1); ++i) {
    std::string text = i == 0 ? item.title : "";
    if (i < item.details.size()) {
      text += (text.empty() ? "" : ": ") + item.details[i];
    }
    for (const std::string& line : broken(shown(text), room)) {
      out += (is_first ? first : below) + line + "\n";
      is_first = false;
    }
  }
  for (std::size_t i = 0; i < item.children.size(); ++i) {
    const bool last = i + 1 == item.children.size();
    add_item(item.children[i], lines, rest + std::string(last ? lines.last : lines.fork),
             rest + std::string(last ? "   " : lines.bar), width, out);
  }
}

}  // namespace

TreeItem topology_tree(const Topology& topology) {
  TreeItem machine{Kind::machine, "machine", {}, {}};
  std::uint64_t bytes = 0;
  std::size_t online = 0;
  for (const MemoryNode& node : topology.nodes) {
    bytes += node.bytes.value_or(0);
    online += node.online == false ? 0 : 1;
  }
  machine.details.push_back(topology.nodes.empty()
                                ? "nodes not told"
                                : fmt::format("{} node{}, {} of memory", online,
                                              online == 1 ? "" : "s", human_bytes(bytes)));
  std::vector<Placed> devices = devices_of(topology);
  for (const MemoryNode& node : topology.nodes) {
    if (!topology.nearest_processors(node)) {
      machine.children.push_back(whole_node(topology, node, devices));
    }
  }
  for (Placed& device : devices) {
    if (device.node) {
      device.item.details.push_back(fmt::format("at node {}, which is not there", *device.node));
    } else if (topology.nodes.size() > 1) {
      device.item.details.push_back("node not told");
    }
    machine.children.push_back(std::move(device.item));
  }
  return machine;
}

std::vector<std::string> broken(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  for (std::string line : wrapped(text, width)) {
    while (line.size() > width) {
      std::size_t cut = width;
      while (cut > 1 && (static_cast<unsigned char>(line[cut]) >> 6) == 2) {
        --cut;  // Not inside of a character.
      }
      lines.push_back(line.substr(0, cut));
      line.erase(0, cut);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string tree_text(const TreeItem& tree, bool utf8, unsigned width) {
  std::string out;
  add_item(tree, utf8 ? kUtf8 : kAscii, "", "", width, out);
  return out;
}

std::string distances_text(const Topology& topology) {
  IdList ids;
  for (const MemoryNode& node : topology.nodes) {
    if (!node.distances.empty()) {
      ids.push_back(node.id);
    }
  }
  if (ids.size() < 2) {
    return {};
  }
  std::string out;
  for (std::size_t begin = 0; begin < ids.size(); begin += kDistancesInRow) {
    const std::size_t end = std::min(begin + kDistancesInRow, ids.size());
    std::vector<Table::Column> columns = {{"distance to"}};
    for (std::size_t i = begin; i < end; ++i) {
      columns.push_back({fmt::format("{}", ids[i]), Table::Align::right});
    }
    Table table(std::move(columns));
    for (const unsigned id : ids) {
      std::vector<std::string> row = {fmt::format("from node {}", id)};
      const auto& distances = topology.node(id)->distances;
      for (std::size_t i = begin; i < end; ++i) {
        const auto found = distances.find(ids[i]);
        row.push_back(found == distances.end() ? "-" : fmt::format("{}", found->second));
      }
      table.add(std::move(row));
    }
    out += (out.empty() ? "" : "\n") + table.text(false, 0);
  }
  return out;
}

std::vector<std::string> topology_notes(const Topology& topology) {
  std::vector<std::string> notes;
  if (topology.nodes.size() > 1 && topology.balancing.value_or(0) != 0) {
    notes.push_back(fmt::format(
        "kernel.numa_balancing is {}: the kernel moves pages between nodes by itself, and the "
        "budgets of tiermem do not count these moves; write 0 to "
        "/proc/sys/kernel/numa_balancing to prevent it",
        *topology.balancing));
  }
  if (topology.nodes.size() > 1 && topology.demotion == true) {
    notes.push_back(
        "The kernel demotes pages of full nodes to the next kernel tier; write false to "
        "/sys/kernel/mm/numa/demotion_enabled to prevent it");
  }
  for (const std::string& path : topology.damaged) {
    notes.push_back(path + ": cannot be read or makes no sense, so its facts are not told");
  }
  return notes;
}

}  // namespace tiermem::cli
