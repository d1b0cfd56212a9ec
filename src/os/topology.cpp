// Reads the attributes first, and then derives what several of them tell together: the kind of a
// node's memory, and the node of a CXL region. The formats are those of Documentation/ABI in the
// kernel's sources.
#include "os/topology.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <limits>
#include <utility>

#include "base/results.hpp"
#include "os/kernel_text.hpp"

namespace tiermem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNodes = "/sys/devices/system/node";
// An attribute has up to one page of 4 KiB, but the lists of nodes and status may be longer.
constexpr std::size_t kLargestAttribute = std::size_t{64} << 10;
constexpr std::size_t kLongestName = 120;
constexpr std::size_t kMostEntries = 65536;  // A node has a link for each memory block.
constexpr std::size_t kMostDamaged = 64;
constexpr unsigned kLargestId = 65535;  // More than the kernel supports of nodes and processors.

std::optional<unsigned> to_id(std::string_view text) {
  const auto value = to_number(text);
  return value && *value <= kLargestId ? std::optional(static_cast<unsigned>(*value))
                                       : std::nullopt;
}

/// "node12" with the prefix "node" is 12. Returns nothing for another name.
std::optional<unsigned> numbered(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || name.size() == prefix.size() ||
      name.find_first_not_of("0123456789", prefix.size()) != std::string_view::npos) {
    return std::nullopt;
  }
  return to_id(name.substr(prefix.size()));
}

std::optional<std::uint64_t> times(std::optional<std::uint64_t> value, std::uint64_t factor) {
  return value && *value <= std::numeric_limits<std::uint64_t>::max() / factor
             ? std::optional(*value * factor)
             : std::nullopt;
}

bool has(const IdList& list, unsigned id) {
  return std::binary_search(list.begin(), list.end(), id);
}

/// Reads files below the root. It notes files that exist but are useless.
class Tree {
 public:
  explicit Tree(std::string root) : root_(std::move(root)) {}

  /// Only regular files are read: a pipe in a copied tree must not block.
  std::optional<std::string> text(const std::string& path) {
    const int file = ::open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
      return failed(path, errno);
    }
    struct stat status {};
    std::string all;
    char part[4096];
    ssize_t n = 0;
    int error = ::fstat(file, &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
    while (error == 0 && all.size() <= kLargestAttribute &&
           (n = ::read(file, part, sizeof(part))) != 0) {
      if (n > 0) {
        all.append(part, static_cast<std::size_t>(n));
      } else {
        error = errno == EINTR ? 0 : errno;
      }
    }
    best_effort(::close(file), "the descriptor is gone in any case");
    if (error == 0 && all.size() > kLargestAttribute) {
      error = EFBIG;
    }
    return error != 0 ? failed(path, error) : std::optional(std::move(all));
  }

  /// Returns a name of printable ASCII with single blanks inside. Returns an empty text if there is
  /// none.
  std::string name(const std::string& path) {
    const auto all = text(path);
    const std::string_view plain = all ? trimmed(*all) : std::string_view();
    std::string out;
    for (const char c : plain) {
      if (c < ' ' || c > '~') {
        damaged(path);
        return {};
      }
      if (c != ' ' || out.back() != ' ') {
        out += c;
      }
    }
    if (out.size() > kLongestName) {
      damaged(path);
      return {};
    }
    return out;
  }

  std::optional<std::uint64_t> number(const std::string& path, int base = 10) {
    return parsed(path, [base](std::string_view text) { return to_number(text, base); });
  }
  std::optional<unsigned> id(const std::string& path) { return parsed(path, to_id); }
  /// An empty list is a line without text. A file without even this line is damaged.
  std::optional<IdList> list(const std::string& path) {
    return parsed(path, [](std::string_view text) {
      return text.empty() ? std::nullopt : parse_id_list(text);
    });
  }

  /// Returns the node in a file numa_node or target_node. -1 means that it is not told.
  std::optional<unsigned> node(const std::string& path) {
    const auto all = text(path);
    if (!all || trimmed(*all) == "-1") {
      return std::nullopt;
    }
    return checked(path, to_id(*all));
  }

  /// Returns the rest of the line that starts with `key`.
  std::optional<std::string> field(const std::string& path, std::string_view key) {
    const auto all = text(path);
    std::string_view rest = all ? *all : std::string_view();
    while (!rest.empty()) {
      const std::size_t stop = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, stop);
      rest.remove_prefix(std::min(stop + 1, rest.size()));
      if (line.starts_with(key)) {
        return std::string(trimmed(line.substr(key.size())));
      }
    }
    if (all) {
      damaged(path);
    }
    return std::nullopt;
  }

  /// The names in a folder, sorted.
  std::vector<std::string> names(const std::string& folder) const {
    std::vector<std::string> found;
    std::error_code error;
    fs::directory_iterator entry(root_ + folder, error);
    while (!error && entry != fs::directory_iterator() && found.size() < kMostEntries) {
      found.push_back(entry->path().filename().string());
      entry.increment(error);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  bool exists(const std::string& path) const { return ::access((root_ + path).c_str(), F_OK) == 0; }

  /// Returns the last part of a link's target, such as the name of a driver; empty: no link.
  std::string link(const std::string& path) const {
    std::error_code error;
    return fs::read_symlink(root_ + path, error).filename().string();
  }

  /// Returns the parts of the path that remains after all links, below the root. Empty: it does not
  /// exist, or leads out of the root.
  std::vector<std::string> real_parts(const std::string& path) const {
    std::error_code error;
    const fs::path real = fs::canonical(root_ + path, error);
    const fs::path top = error ? fs::path() : fs::canonical(root_ + "/", error);
    std::vector<std::string> parts;
    if (error) {
      return parts;
    }
    auto part = real.begin();
    for (auto one = top.begin(); one != top.end() && !one->empty(); ++one, ++part) {
      if (part == real.end() || *part != *one) {
        return {};
      }
    }
    for (; part != real.end(); ++part) {
      if (*part != "/") {
        parts.push_back(part->string());
      }
    }
    return parts;
  }

  /// Returns the node that a device is attached to: its own numa_node, or that of the nearest
  /// device above it which has one.
  std::optional<unsigned> near(const std::string& path) {
    for (std::vector<std::string> parts = real_parts(path); parts.size() > 2; parts.pop_back()) {
      const std::string file = fmt::format("/{}/numa_node", fmt::join(parts, "/"));
      if (exists(file)) {
        return node(file);
      }
    }
    return std::nullopt;
  }

  void damaged(const std::string& path) {
    if (damaged_.size() < kMostDamaged &&
        std::find(damaged_.begin(), damaged_.end(), path) == damaged_.end()) {
      damaged_.push_back(path);
    }
  }
  std::vector<std::string> take_damaged() { return std::move(damaged_); }

 private:
  template <typename Value>
  std::optional<Value> checked(const std::string& path, std::optional<Value> value) {
    if (!value) {
      damaged(path);
    }
    return value;
  }
  template <typename Parse>
  auto parsed(const std::string& path, Parse parse) -> decltype(parse(std::string_view())) {
    const auto all = text(path);
    return all ? checked(path, parse(std::string_view(*all))) : std::nullopt;
  }
  /// A file that does not exist is a usual thing. ENODEV: its device has gone.
  std::optional<std::string> failed(const std::string& path, int error) {
    if (error != ENOENT && error != ENOTDIR && error != ENODEV && error != ENXIO) {
      damaged(path);
    }
    return std::nullopt;
  }

  const std::string root_;
  std::vector<std::string> damaged_;
};

// ---- nodes ------------------------------------------------------------------------------------

std::optional<NodeAccess> read_access(Tree& tree, const std::string& node, const char* access) {
  const std::string at = fmt::format("{}/{}/initiators", node, access);
  if (!tree.exists(at)) {
    return std::nullopt;
  }
  // Firmware writes 0 for a figure that it does not know.
  const auto figure = [&](const char* name) {
    const auto value = tree.number(at + "/" + name);
    return value == 0 ? std::nullopt : value;
  };
  NodeAccess found;
  found.read_mib_s = figure("read_bandwidth");
  found.write_mib_s = figure("write_bandwidth");
  found.read_ns = figure("read_latency");
  found.write_ns = figure("write_latency");
  for (const std::string& name : tree.names(at)) {
    if (const auto id = numbered(name, "node")) {
      found.initiators.push_back(*id);
    }
  }
  std::sort(found.initiators.begin(), found.initiators.end());
  return found;
}

/// Reads a line such as "Node 0 MemTotal:  16384 kB" as bytes.
std::optional<std::uint64_t> read_size(Tree& tree, const std::string& node, unsigned id,
                                       const char* what) {
  const std::string path = node + "/meminfo";
  const auto field = tree.field(path, fmt::format("Node {} {}:", id, what));
  if (!field) {
    return std::nullopt;
  }
  const auto bytes = field->ends_with("kB")
                         ? times(to_number(field->substr(0, field->size() - 2)), 1024)
                         : std::nullopt;
  if (!bytes) {
    tree.damaged(path);
  }
  return bytes;
}

/// The file has a number for each online node, ascending. If a node came or went since `online` was
/// read, the count differs, and the meaning of the numbers is not known.
std::map<unsigned, unsigned> read_distances(Tree& tree, const std::string& node,
                                            const IdList& online) {
  const std::string path = node + "/distance";
  const auto all = tree.text(path);
  std::string_view rest = trimmed(all ? *all : std::string_view());
  std::map<unsigned, unsigned> found;
  std::size_t count = 0;
  for (; !rest.empty(); ++count) {
    const std::size_t stop = std::min(rest.find(' '), rest.size());
    const auto distance = to_id(rest.substr(0, stop));
    rest = trimmed(rest.substr(stop));
    if (!distance) {
      tree.damaged(path);
      return {};
    }
    if (count < online.size()) {
      found.emplace(online[count], *distance);
    }
  }
  return count == online.size() ? found : std::map<unsigned, unsigned>();
}

void read_nodes(Tree& tree, Topology& all) {
  const std::string nodes = kNodes;
  const auto online = tree.list(nodes + "/online");
  const auto with_memory = tree.list(nodes + "/has_memory");
  const auto with_normal = tree.list(nodes + "/has_normal_memory");
  all.possible_nodes = tree.list(nodes + "/possible");
  for (const std::string& name : tree.names(nodes)) {
    if (const auto id = numbered(name, "node")) {
      all.nodes.emplace_back().id = *id;
    }
  }
  std::sort(all.nodes.begin(), all.nodes.end(),
            [](const MemoryNode& a, const MemoryNode& b) { return a.id < b.id; });
  IdList ids;
  for (const MemoryNode& node : all.nodes) {
    ids.push_back(node.id);
  }
  for (MemoryNode& node : all.nodes) {
    const std::string at = fmt::format("{}/node{}", nodes, node.id);
    node.online = online ? std::optional(has(*online, node.id)) : std::nullopt;
    node.allowed =
        all.allowed_nodes ? std::optional(has(*all.allowed_nodes, node.id)) : std::nullopt;
    node.bytes = read_size(tree, at, node.id, "MemTotal");
    node.free_bytes = read_size(tree, at, node.id, "MemFree");
    if (with_memory && with_normal && has(*with_memory, node.id)) {
      node.movable_only = !has(*with_normal, node.id);
    }
    node.cpus = tree.list(at + "/cpulist");
    node.distances = read_distances(tree, at, online ? *online : ids);
    node.access0 = read_access(tree, at, "access0");
    node.access1 = read_access(tree, at, "access1");
    node.weight =
        tree.id(fmt::format("/sys/kernel/mm/mempolicy/weighted_interleave/node{}", node.id));
  }
}

std::optional<IdList> read_allowed(Tree& tree, const TopologySource& source) {
  std::optional<IdList> allowed;
  if (const auto field = tree.field(source.status, "Mems_allowed_list:")) {
    allowed = parse_id_list(*field);
    if (!allowed || allowed->empty()) {  // A process without any node cannot run.
      allowed.reset();
      tree.damaged(source.status);
    }
  }
  const auto group = source.cpuset.empty() ? std::nullopt : tree.list(source.cpuset);
  if (!allowed || !group) {
    return allowed ? allowed : group;
  }
  IdList both;
  std::set_intersection(allowed->begin(), allowed->end(), group->begin(), group->end(),
                        std::back_inserter(both));
  return both;
}

void read_tiers(Tree& tree, Topology& all) {
  const std::string tiers = "/sys/devices/virtual/memory_tiering";
  for (const std::string& name : tree.names(tiers)) {
    const auto number = numbered(name, "memory_tier");
    const auto nodes =
        number ? tree.list(fmt::format("{}/{}/nodelist", tiers, name)) : std::nullopt;
    if (nodes) {
      all.tiers.push_back({*number, *nodes});
    }
  }
  std::sort(all.tiers.begin(), all.tiers.end(),
            [](const KernelTier& a, const KernelTier& b) { return a.number < b.number; });
}

// ---- CXL and DAX ------------------------------------------------------------------------------

/// A decoder of the region belongs to an endpoint. The `uport` of the endpoint is the memdev.
std::string memdev_of(Tree& tree, const std::string& decoder) {
  std::vector<std::string> parts = tree.real_parts("/sys/bus/cxl/devices/" + decoder);
  if (parts.empty()) {
    return {};
  }
  parts.pop_back();
  const auto memdev = tree.real_parts(fmt::format("/{}/uport", fmt::join(parts, "/")));
  return !memdev.empty() && numbered(memdev.back(), "mem") ? memdev.back() : std::string();
}

/// Finds the node by the memory block at the region's start. Firmware may have configured the
/// region as RAM, and the region has no DAX device then.
std::optional<unsigned> node_of_address(Tree& tree, const Topology& all, std::uint64_t address) {
  const auto block_bytes = tree.number("/sys/devices/system/memory/block_size_bytes", 16);
  if (!block_bytes || *block_bytes == 0) {
    return std::nullopt;
  }
  for (const MemoryNode& node : all.nodes) {
    if (tree.exists(fmt::format("{}/node{}/memory{}", kNodes, node.id, address / *block_bytes))) {
      return node.id;
    }
  }
  return std::nullopt;
}

void read_cxl(Tree& tree, Topology& all) {
  const std::string devices = "/sys/bus/cxl/devices";
  for (const std::string& name : tree.names(devices)) {
    const std::string at = devices + "/" + name;
    if (numbered(name, "mem")) {
      all.cxl_memdevs.push_back({name, tree.name(at + "/serial"), tree.number(at + "/ram/size"),
                                 tree.number(at + "/pmem/size"), tree.near(at)});
    } else if (numbered(name, "region")) {
      CxlRegion region;
      region.name = name;
      region.bytes = tree.number(at + "/size");
      region.mode = tree.name(at + "/mode");
      region.ways = tree.number(at + "/interleave_ways");
      for (std::uint64_t i = 0; i < std::min<std::uint64_t>(region.ways.value_or(0), 16); ++i) {
        const std::string decoder = tree.name(fmt::format("{}/target{}", at, i));
        if (const std::string memdev = decoder.empty() ? "" : memdev_of(tree, decoder);
            !memdev.empty()) {
          region.memdevs.push_back(memdev);
        }
      }
      const auto start = tree.number(at + "/resource");
      region.node = start ? node_of_address(tree, all, *start) : std::nullopt;
      all.cxl_regions.push_back(std::move(region));
    }
  }
}

/// The path of a DAX device tells what it was made of: persistent memory is below an "ndbus", CXL
/// memory has a "dax_region" below its region, and memory set aside by firmware is "hmem".
void find_origin(const std::vector<std::string>& parts, DaxDevice& device) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (numbered(parts[i], "ndbus")) {
      device.origin = DaxOrigin::pmem;
      return;
    }
    if (numbered(parts[i], "hmem.")) {
      device.origin = DaxOrigin::special;
      return;
    }
    if (numbered(parts[i], "dax_region") && i > 0 && numbered(parts[i - 1], "region")) {
      device.origin = DaxOrigin::cxl;
      device.region = parts[i - 1];
      return;
    }
  }
}

DaxMode mode_of(Tree& tree, const std::string& device) {
  const std::string driver = tree.link(device + "/driver");
  return driver == "kmem"                        ? DaxMode::system_ram
         : driver == "device_dax"                ? DaxMode::devdax
         : driver.empty() && tree.exists(device) ? DaxMode::unbound
                                                 : DaxMode::unknown;
}

void read_dax(Tree& tree, Topology& all) {
  const std::string devices = "/sys/bus/dax/devices";
  for (const std::string& name : tree.names(devices)) {
    const std::string at = devices + "/" + name;
    DaxDevice device;
    device.name = name;
    device.bytes = tree.number(at + "/size");
    device.align_bytes = tree.number(at + "/align");
    device.target_node = tree.node(at + "/target_node");
    device.near = tree.near(at);
    device.mode = mode_of(tree, at);
    find_origin(tree.real_parts(at), device);
    for (CxlRegion& region : all.cxl_regions) {
      if (region.name == device.region && device.target_node) {
        region.node = device.target_node;
      }
    }
    all.dax.push_back(std::move(device));
  }
}

// ---- devices ----------------------------------------------------------------------------------

/// With multipath, an NVMe disk belongs to a subsystem, which is not in one place. Its controllers
/// are: the node is told if all of them agree.
std::optional<unsigned> near_controllers(Tree& tree, const std::string& subsystem) {
  std::optional<unsigned> common;
  for (const std::string& name : tree.names(subsystem)) {
    if (!numbered(name, "nvme")) {
      continue;
    }
    const auto near = tree.near(subsystem + "/" + name);
    if (!near || (common && common != near)) {
      return std::nullopt;
    }
    common = near;
  }
  return common;
}

void read_drives(Tree& tree, Topology& all) {
  for (const std::string& name : tree.names("/sys/block")) {
    const std::string at = "/sys/block/" + name;
    const std::string device = at + "/device";
    // A hidden disk is one path of a disk with multipath.
    if (!tree.exists(device) || tree.number(at + "/hidden") == 1U) {
      continue;
    }
    const auto sectors = tree.number(at + "/size");
    if (sectors == 0U) {
      continue;  // An empty reader.
    }
    Drive drive;
    drive.name = name;
    drive.bytes = times(sectors, 512);  // The kernel counts sectors of 512 bytes for every disk.
    drive.wwid = tree.name(at + "/wwid");
    if (drive.wwid.empty()) {
      drive.wwid = tree.name(device + "/wwid");
    }
    drive.serial = tree.name(device + "/serial");
    if (drive.serial.empty()) {
      drive.serial = tree.name(at + "/serial");
    }
    drive.model = tree.name(device + "/model");
    drive.near = tree.near(device);
    if (!drive.near) {
      drive.near = near_controllers(tree, device);
    }
    all.drives.push_back(std::move(drive));
  }
}

std::vector<std::string> interfaces_of(const Tree& tree, const std::vector<std::string>& nic) {
  std::vector<std::string> found;
  for (const std::string& name : tree.names("/sys/class/net")) {
    const auto parts = tree.real_parts(fmt::format("/sys/class/net/{}/device", name));
    if (!nic.empty() && parts.size() >= nic.size() &&
        std::equal(nic.begin(), nic.end(), parts.begin())) {
      found.push_back(name);
    }
  }
  return found;
}

/// NVIDIA's driver tells the node of a GPU's memory: "Node: 1".
std::optional<unsigned> memory_node_of(Tree& tree, const std::string& address) {
  const std::string path = fmt::format("/proc/driver/nvidia/gpus/{}/numa_status", address);
  const auto field = tree.exists(path) ? tree.field(path, "Node:") : std::nullopt;
  return field && *field != "-1" ? to_id(*field) : std::nullopt;
}

void read_pci(Tree& tree, Topology& all) {
  const std::string devices = "/sys/bus/pci/devices";
  for (const std::string& name : tree.names(devices)) {
    const std::string at = devices + "/" + name;
    const auto code = tree.number(at + "/class");
    const std::uint64_t kind = code.value_or(0) >> 8;  // Class and subclass.
    const bool gpu = kind == 0x0300 || kind == 0x0302;
    const bool nic = kind >> 8 == 0x02;
    if (!gpu && !nic) {
      continue;
    }
    PciDevice device;
    device.address = name;
    device.vendor_id = tree.id(at + "/vendor");
    device.device_id = tree.id(at + "/device");
    device.near = tree.near(at);
    if (gpu) {
      device.memory_node = memory_node_of(tree, name);
    } else {
      device.interfaces = interfaces_of(tree, tree.real_parts(at));
    }
    (gpu ? all.gpus : all.nics).push_back(std::move(device));
  }
}

// ---- what several attributes tell -------------------------------------------------------------

bool is_faster_than_its_processors(const Topology& all, const MemoryNode& node) {
  if (!node.access0 || !node.access0->read_mib_s || node.access0->initiators.empty()) {
    return false;
  }
  return std::all_of(
      node.access0->initiators.begin(), node.access0->initiators.end(), [&](unsigned id) {
        const MemoryNode* const other = all.node(id);
        return other != nullptr && other != &node && other->access0 && other->access0->read_mib_s &&
               *node.access0->read_mib_s > *other->access0->read_mib_s;
      });
}

MemoryKind kind_of(const Topology& all, const MemoryNode& node) {
  if (node.bytes == 0U) {
    return MemoryKind::none;
  }
  for (const PciDevice& gpu : all.gpus) {
    if (gpu.memory_node == node.id) {
      return MemoryKind::gpu;
    }
  }
  if (node.cpus && !node.cpus->empty()) {
    return MemoryKind::dram;
  }
  for (const CxlRegion& region : all.cxl_regions) {
    if (region.node == node.id) {
      return MemoryKind::cxl;
    }
  }
  DaxOrigin origin = DaxOrigin::unknown;
  for (const DaxDevice& device : all.dax) {
    if (device.target_node == node.id && device.mode == DaxMode::system_ram) {
      origin = device.origin;
    }
  }
  if (origin == DaxOrigin::cxl || origin == DaxOrigin::pmem) {
    return origin == DaxOrigin::cxl ? MemoryKind::cxl : MemoryKind::pmem;
  }
  if (node.cpus && is_faster_than_its_processors(all, node)) {
    return MemoryKind::hbm;
  }
  return origin == DaxOrigin::special ? MemoryKind::special : MemoryKind::unknown;
}

}  // namespace

std::optional<IdList> parse_id_list(std::string_view text) {
  IdList ids;
  text = trimmed(text);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    const bool more = comma < text.size();
    text.remove_prefix(comma + (more ? 1 : 0));
    const std::size_t dash = range.find('-');
    const auto first = to_id(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : to_id(range.substr(dash + 1));
    // The kernel writes lists that ascend, and no comma at the end.
    if (!first || !last || *last < *first || (!ids.empty() && *first <= ids.back()) ||
        (more && text.empty())) {
      return std::nullopt;
    }
    for (unsigned id = *first; id <= *last; ++id) {
      ids.push_back(id);
    }
  }
  return ids;
}

std::string id_list_text(const IdList& ids) {
  std::string text;
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) {
      ++last;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ",", ids[i]);
    text += last > i ? fmt::format("-{}", ids[last]) : "";
    i = last + 1;
  }
  return text;
}

std::string_view memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::none:
      return "no memory";
    case MemoryKind::dram:
      return "DRAM";
    case MemoryKind::hbm:
      return "HBM";
    case MemoryKind::cxl:
      return "CXL memory";
    case MemoryKind::pmem:
      return "persistent memory";
    case MemoryKind::gpu:
      return "GPU memory";
    case MemoryKind::special:
      return "specific purpose memory";
    case MemoryKind::unknown:
      break;
  }
  return "memory";
}

const MemoryNode* Topology::node(unsigned id) const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const MemoryNode& one) { return one.id == id; });
  return found == nodes.end() ? nullptr : &*found;
}

const Drive* Topology::drive(std::string_view wwid_or_serial) const {
  const Drive* found = nullptr;
  for (const Drive& drive : drives) {
    if (!wwid_or_serial.empty() &&
        (drive.wwid == wwid_or_serial || drive.serial == wwid_or_serial)) {
      if (found != nullptr) {
        return nullptr;
      }
      found = &drive;
    }
  }
  return found;
}

std::optional<unsigned> Topology::nearest_processors(const MemoryNode& node) const {
  if (!node.cpus || !node.cpus->empty()) {
    return std::nullopt;
  }
  const auto with_processors = [&](unsigned id) {
    const MemoryNode* const other = this->node(id);
    return other != nullptr && other->cpus && !other->cpus->empty();
  };
  for (const auto* access : {&node.access0, &node.access1}) {
    for (const unsigned id : *access ? (*access)->initiators : IdList()) {
      if (with_processors(id)) {
        return id;
      }
    }
  }
  std::optional<unsigned> nearest;
  for (const auto& [id, distance] : node.distances) {
    if (with_processors(id) && (!nearest || distance < node.distances.at(*nearest))) {
      nearest = id;
    }
  }
  return nearest;
}

Topology read_topology(const TopologySource& source) {
  Tree tree(source.root);
  Topology all;
  all.allowed_nodes = read_allowed(tree, source);
  read_nodes(tree, all);
  read_tiers(tree, all);
  read_cxl(tree, all);
  read_dax(tree, all);
  read_drives(tree, all);
  read_pci(tree, all);
  const std::string demotion = tree.name("/sys/kernel/mm/numa/demotion_enabled");
  if (demotion == "true" || demotion == "false") {
    all.demotion = demotion == "true";
  }
  all.balancing = tree.id("/proc/sys/kernel/numa_balancing");
  for (MemoryNode& node : all.nodes) {
    node.kind = kind_of(all, node);
  }
  all.damaged = tree.take_damaged();
  return all;
}

}  // namespace tiermem
