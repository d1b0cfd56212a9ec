// A machine as files: the parts of sysfs and procfs that tell its topology, with the links that the
// kernel makes. One thread.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "os/topology.hpp"
#include "support/directory.hpp"

namespace tiermem::test {

constexpr std::uint64_t kTreeGiB = std::uint64_t{1} << 30;

class MachineTree {
 public:
  const std::string& root() const { return own_.path(); }
  Topology read() const { return read_topology({.root = root()}); }

  void file(const std::string& path, const std::string& text) const {
    const std::string full = root() + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full, std::ios::binary) << text;
  }
  void folder(const std::string& path) const { std::filesystem::create_directories(root() + path); }
  void remove(const std::string& path) const { std::filesystem::remove_all(root() + path); }
  /// Links `path` to `to`, both below the root, by a relative target as in sysfs.
  void link(const std::string& path, const std::string& to) const {
    const std::filesystem::path from = root() + path;
    std::filesystem::create_directories(from.parent_path());
    std::filesystem::create_symlink(
        std::filesystem::path(root() + to).lexically_relative(from.parent_path()), from);
  }

  static std::string at(unsigned node) {
    return fmt::format("/sys/devices/system/node/node{}", node);
  }

  /// Adds a node. Without processors, `cpus` is empty.
  void node(unsigned id, const std::string& cpus, std::uint64_t bytes) {
    nodes_.push_back(id);
    with_memory_.push_back(id);
    file(at(id) + "/cpulist", cpus + "\n");
    file(at(id) + "/meminfo",
         fmt::format("Node {0} MemTotal:       {1} kB\nNode {0} MemFree:        {2} kB\n"
                     "Node {0} MemUsed:        {2} kB\n",
                     id, bytes / 1024, bytes / 2048));
    lists();
  }
  /// The files of all nodes: online, possible, has_memory and has_normal_memory.
  void lists(const std::string& movable = "") const {
    const std::string nodes = "/sys/devices/system/node/";
    file(nodes + "online", id_list_text(nodes_) + "\n");
    file(nodes + "possible", "0-7\n");
    file(nodes + "has_memory", id_list_text(with_memory_) + "\n");
    IdList normal;
    const IdList excluded = parse_id_list(movable).value_or(IdList());
    for (const unsigned id : with_memory_) {
      if (!std::binary_search(excluded.begin(), excluded.end(), id)) {
        normal.push_back(id);
      }
    }
    file(nodes + "has_normal_memory", id_list_text(normal) + "\n");
  }
  void distances(unsigned node, const std::vector<unsigned>& row) const {
    file(at(node) + "/distance", fmt::format("{}\n", fmt::join(row, " ")));
  }
  void access(unsigned node, unsigned number, const NodeAccess& facts) const {
    const std::string folder_of = fmt::format("{}/access{}/initiators", at(node), number);
    const auto figure = [&](const char* name, std::optional<std::uint64_t> value) {
      if (value) {
        file(folder_of + "/" + name, fmt::format("{}\n", *value));
      }
    };
    folder(folder_of);
    figure("read_bandwidth", facts.read_mib_s);
    figure("write_bandwidth", facts.write_mib_s);
    figure("read_latency", facts.read_ns);
    figure("write_latency", facts.write_ns);
    for (const unsigned id : facts.initiators) {
      link(fmt::format("{}/node{}", folder_of, id), at(id));
    }
  }
  void tier(unsigned number, const std::string& nodes) const {
    file(fmt::format("/sys/devices/virtual/memory_tiering/memory_tier{}/nodelist", number),
         nodes + "\n");
  }
  void allowed(const std::string& nodes) const {
    file("/proc/self/status", "Name:\tcat\nMems_allowed:\t1\nMems_allowed_list:\t" + nodes + "\n");
  }

  /// Adds a PCI device and returns its folder.
  std::string pci(const std::string& address, const std::string& code, int near,
                  const std::string& vendor = "0x8086") const {
    const std::string device = "/sys/devices/pci" + address.substr(0, 7) + "/" + address;
    file(device + "/class", code + "\n");
    file(device + "/vendor", vendor + "\n");
    file(device + "/device", "0x1234\n");
    file(device + "/numa_node", fmt::format("{}\n", near));
    link("/sys/bus/pci/devices/" + address, device);
    return device;
  }
  /// Adds an NVMe drive with one disk, nvme<number>n1.
  void nvme(unsigned number, const std::string& address, int near, const std::string& serial,
            std::uint64_t bytes = 1000 * kTreeGiB) const {
    const std::string controller =
        fmt::format("{}/nvme/nvme{}", pci(address, "0x010802", near), number);
    const std::string disk = fmt::format("{}/nvme{}n1", controller, number);
    file(controller + "/serial", serial + "   \n");
    file(controller + "/model", "Example NVMe 1000\n");
    file(disk + "/size", fmt::format("{}\n", bytes / 512));
    file(disk + "/wwid", "eui." + serial + "\n");
    link(disk + "/device", controller);
    link(fmt::format("/sys/block/nvme{}n1", number), disk);
  }
  void nic(const std::string& address, int near, const std::string& interface) const {
    const std::string device = pci(address, "0x020000", near, "0x15b3");
    folder(device + "/net/" + interface);
    link(device + "/net/" + interface + "/device", device);
    link("/sys/class/net/" + interface, device + "/net/" + interface);
  }
  /// Adds a DAX device below `parent`, a folder of /sys/devices. Without a driver, it is unbound.
  void dax(const std::string& name, const std::string& parent, std::uint64_t bytes, int target,
           const std::string& driver) const {
    const std::string device = "/sys/devices/" + parent + "/" + name;
    file(device + "/size", fmt::format("{}\n", bytes));
    file(device + "/align", "2097152\n");
    file(device + "/target_node", fmt::format("{}\n", target));
    file(device + "/numa_node", "0\n");
    link("/sys/bus/dax/devices/" + name, device);
    if (!driver.empty()) {
      folder("/sys/bus/dax/drivers/" + driver);
      link(device + "/driver", "/sys/bus/dax/drivers/" + driver);
    }
  }
  /// Adds memdev mem0 and region0 over all of it, as RAM.
  void cxl(std::uint64_t bytes, int near) const {
    const std::string host = "/sys/devices/platform/ACPI0017:00";
    const std::string memdev = pci("0000:36:00.0", "0x050210", near) + "/mem0";
    file(memdev + "/serial", "0x1f\n");
    file(memdev + "/ram/size", fmt::format("0x{:x}\n", bytes));
    file(memdev + "/pmem/size", "0x0\n");
    file(memdev + "/numa_node", fmt::format("{}\n", near));
    const std::string endpoint = host + "/root0/port1/endpoint2";
    link(endpoint + "/uport", memdev);
    file(endpoint + "/decoder2.0/size", fmt::format("0x{:x}\n", bytes));
    const std::string region = host + "/root0/decoder0.0/region0";
    file(region + "/size", fmt::format("0x{:x}\n", bytes));
    file(region + "/resource", "0x490000000\n");
    file(region + "/mode", "ram\n");
    file(region + "/interleave_ways", "1\n");
    file(region + "/target0", "decoder2.0\n");
    link("/sys/bus/cxl/devices/mem0", memdev);
    link("/sys/bus/cxl/devices/endpoint2", endpoint);
    link("/sys/bus/cxl/devices/decoder2.0", endpoint + "/decoder2.0");
    link("/sys/bus/cxl/devices/region0", region);
  }

  // ---- whole machines ---------------------------------------------------------------------------

  void one_node() {
    node(0, "0-3", 16 * kTreeGiB);
    distances(0, {10});
    allowed("0");
  }
  void two_sockets() {
    node(0, "0-7,16-23", 64 * kTreeGiB);
    node(1, "8-15,24-31", 64 * kTreeGiB);
    distances(0, {10, 21});
    distances(1, {21, 10});
    access(0, 0, {{0}, 102400, 81920, 90, 95});
    access(1, 0, {{1}, 102400, 81920, 90, 95});
    allowed("0-1");
    tier(4, "0-1");
  }
  void two_sockets_with_cxl() {
    two_sockets();
    node(2, "", 128 * kTreeGiB);
    distances(0, {10, 21, 14});
    distances(1, {21, 10, 24});
    distances(2, {14, 24, 10});
    access(2, 0, {{0}, 25600, 20480, 250, 260});
    access(2, 1, {{0}, 24576, 19456, 255, 265});
    cxl(128 * kTreeGiB, 0);
    dax("dax0.0", "platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0", 128 * kTreeGiB, 2,
        "kmem");
    tier(22, "2");
    allowed("0-2");
    lists("2");
  }
  void sockets_with_hbm() {
    two_sockets();
    node(2, "", 16 * kTreeGiB);
    node(3, "", 16 * kTreeGiB);
    distances(0, {10, 21, 13, 23});
    distances(1, {21, 10, 23, 13});
    distances(2, {13, 23, 10, 23});
    distances(3, {23, 13, 23, 10});
    access(2, 0, {{0}, 409600, 307200, 110, 110});
    access(3, 0, {{1}, 409600, 307200, 110, 110});
    dax("dax0.0", "platform/hmem.0", 16 * kTreeGiB, 2, "kmem");
    allowed("0-3");
  }
  /// The node of the GPU's memory has no HMAT figures.
  void node_of_a_gpu() {
    one_node();
    node(1, "", 96 * kTreeGiB);
    distances(0, {10, 80});
    distances(1, {80, 10});
    pci("0009:01:00.0", "0x030200", 0, "0x10de");
    file("/proc/driver/nvidia/gpus/0009:01:00.0/numa_status", "Node:\t\t1\nStatus:\tonline\n");
    allowed("0-1");
  }
  /// The numbers of the drives do not follow their places.
  void eight_drives() {
    two_sockets();
    for (unsigned i = 0; i < 8; ++i) {
      nvme((i * 3) % 8, fmt::format("0000:{:x}1:00.0", i + 1), i < 4 ? 0 : 1,
           fmt::format("S{:04}", i));
    }
    nic("0000:b1:00.0", 1, "ens1");
    pci("0000:c1:00.0", "0x030000", 0, "0x10de");
  }

 private:
  const Directory own_;
  IdList nodes_, with_memory_;
};

}  // namespace tiermem::test
