// One function for each record of os/topology.hpp.
#include "cli/topology_json.hpp"

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tiermem::cli {
namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

template <typename Records, typename Convert>
Json list(const Records& records, Convert convert) {
  Json out = Json::array();
  for (const auto& record : records) {
    out.push_back(convert(record));
  }
  return out;
}

/// In bytes per second and seconds, as all rates and times of the command.
Json access_json(const std::optional<NodeAccess>& access) {
  if (!access) {
    return nullptr;
  }
  const auto rate = [](const std::optional<std::uint64_t>& mib_s) {
    return mib_s ? Json(static_cast<double>(*mib_s) * (1 << 20)) : Json(nullptr);
  };
  const auto time = [](const std::optional<std::uint64_t>& ns) {
    return ns ? Json(static_cast<double>(*ns) * 1e-9) : Json(nullptr);
  };
  return {{"initiators", access->initiators},
          {"read_bytes_per_s", rate(access->read_mib_s)},
          {"write_bytes_per_s", rate(access->write_mib_s)},
          {"read_latency_s", time(access->read_ns)},
          {"write_latency_s", time(access->write_ns)}};
}

const char* kind_word(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::none:
      return "none";
    case MemoryKind::dram:
      return "dram";
    case MemoryKind::hbm:
      return "hbm";
    case MemoryKind::cxl:
      return "cxl";
    case MemoryKind::pmem:
      return "pmem";
    case MemoryKind::gpu:
      return "gpu";
    case MemoryKind::special:
      return "specific_purpose";
    case MemoryKind::unknown:
      break;
  }
  return nullptr;
}

Json word_or_null(const char* word) {
  return word != nullptr ? Json(word) : Json(nullptr);
}

const char* mode_word(DaxMode mode) {
  return mode == DaxMode::unbound      ? "unbound"
         : mode == DaxMode::devdax     ? "devdax"
         : mode == DaxMode::system_ram ? "system-ram"
                                       : nullptr;
}

const char* origin_word(DaxOrigin origin) {
  return origin == DaxOrigin::pmem      ? "pmem"
         : origin == DaxOrigin::cxl     ? "cxl"
         : origin == DaxOrigin::special ? "specific_purpose"
                                        : nullptr;
}

Json node_json(const Topology& all, const MemoryNode& node) {
  Json distances = Json::object();
  for (const auto& [id, distance] : node.distances) {
    distances[std::to_string(id)] = distance;
  }
  return {{"id", node.id},
          {"kind", word_or_null(kind_word(node.kind))},
          {"online", or_null(node.online)},
          {"allowed", or_null(node.allowed)},
          {"bytes", or_null(node.bytes)},
          {"free_bytes", or_null(node.free_bytes)},
          {"movable_only", or_null(node.movable_only)},
          {"processors", or_null(node.cpus)},
          {"nearest_processors_node", or_null(all.nearest_processors(node))},
          {"distances", std::move(distances)},
          {"access0", access_json(node.access0)},
          {"access1", access_json(node.access1)}};
}

Json pci_json(const PciDevice& device) {
  return {{"address", device.address},
          {"vendor_id", or_null(device.vendor_id)},
          {"device_id", or_null(device.device_id)},
          {"node", or_null(device.near)}};
}

}  // namespace

Json topology_json(const Topology& all) {
  return {{"nodes", list(all.nodes, [&](const MemoryNode& node) { return node_json(all, node); })},
          {"possible_nodes", or_null(all.possible_nodes)},
          {"allowed_nodes", or_null(all.allowed_nodes)},
          {"kernel_tiers", list(all.tiers,
                                [](const KernelTier& tier) {
                                  return Json{{"number", tier.number}, {"nodes", tier.nodes}};
                                })},
          {"cxl_memdevs", list(all.cxl_memdevs,
                               [](const CxlMemdev& memdev) {
                                 return Json{{"name", memdev.name},
                                             {"serial", or_null(memdev.serial)},
                                             {"ram_bytes", or_null(memdev.ram_bytes)},
                                             {"pmem_bytes", or_null(memdev.pmem_bytes)},
                                             {"node", or_null(memdev.near)}};
                               })},
          {"cxl_regions", list(all.cxl_regions,
                               [](const CxlRegion& region) {
                                 return Json{{"name", region.name},
                                             {"bytes", or_null(region.bytes)},
                                             {"mode", or_null(region.mode)},
                                             {"interleave_ways", or_null(region.ways)},
                                             {"memdevs", region.memdevs},
                                             {"memory_node", or_null(region.node)}};
                               })},
          {"dax_devices", list(all.dax,
                               [](const DaxDevice& device) {
                                 return Json{{"name", device.name},
                                             {"bytes", or_null(device.bytes)},
                                             {"align_bytes", or_null(device.align_bytes)},
                                             {"mode", word_or_null(mode_word(device.mode))},
                                             {"origin", word_or_null(origin_word(device.origin))},
                                             {"cxl_region", or_null(device.region)},
                                             {"memory_node", or_null(device.target_node)},
                                             {"node", or_null(device.near)}};
                               })},
          {"drives", list(all.drives,
                          [](const Drive& drive) {
                            return Json{{"name", drive.name},
                                        {"wwid", or_null(drive.wwid)},
                                        {"serial", or_null(drive.serial)},
                                        {"model", or_null(drive.model)},
                                        {"bytes", or_null(drive.bytes)},
                                        {"node", or_null(drive.near)}};
                          })},
          {"gpus", list(all.gpus,
                        [](const PciDevice& gpu) {
                          Json out = pci_json(gpu);
                          out["memory_node"] = or_null(gpu.memory_node);
                          return out;
                        })},
          {"nics", list(all.nics,
                        [](const PciDevice& nic) {
                          Json out = pci_json(nic);
                          out["interfaces"] = nic.interfaces;
                          return out;
                        })},
          {"demotion", or_null(all.demotion)},
          {"numa_balancing", or_null(all.balancing)},
          {"damaged_files", all.damaged}};
}

}  // namespace tiermem::cli
