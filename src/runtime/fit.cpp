// Checks memory first, then each place of the block tier, then files that are written later.
#include "runtime/fit.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/results.hpp"
#include "os/dax_file.hpp"
#include "os/handed_descriptors.hpp"
#include "os/host_memory.hpp"
#include "policy/cost.hpp"
#include "runtime/variables.hpp"
#include "tier/frame_mapper.hpp"

namespace tiermem {
namespace {

/// The memory that this process can never exceed, and the source of the limit.
struct MemoryLimit {
  std::uint64_t bytes;
  std::string owner;
};

std::optional<MemoryLimit> memory_limit(const HostFacts& facts) {
  std::optional<MemoryLimit> limit;
  if (const auto total = facts.memory_total.number()) {
    limit = {*total, "this machine"};
  }
  const auto cgroup = facts.cgroup_limit.number();
  if (cgroup && (!limit || *cgroup < limit->bytes)) {
    limit = {*cgroup, "the cgroup (" + facts.cgroup_file.value + ")"};
  }
  return limit;
}

// A named budget is an upper limit, so a lower cap would satisfy it. It is refused all the same: a
// user with 1T on a machine of 24 GiB does not expect 24 GiB, and a program sized by that number
// would run until the OOM killer ends it.
Status judge_dram(Config& config, const HostFacts& facts) {
  const auto limit = memory_limit(facts);
  std::uint64_t budget = config.dram.budget;
  for (const NodeMemory& node : config.numa) {
    budget = saturating_add(budget, node.bytes);
  }
  const char* const what = config.numa.empty() ? "dram" : "dram and numa together";
  if (!config.dram.hard) {
    return {};  // A guess, made from the same facts.
  }
  if (limit && budget > limit->bytes) {
    return fail(Code::invalid_argument,
                "{}: {} is more than {} has, which is {}; name less, such as dram=80%", what,
                human_bytes(budget), limit->owner, human_bytes(limit->bytes));
  }
  if (const auto left = facts.memory_left(); left && budget > *left) {
    config.warnings.push_back(fmt::format(
        "{}: {} is more than the {} of memory that are left now; name less, such as dram=80%, or "
        "free some",
        what, human_bytes(budget), human_bytes(*left)));
  }
  return {};
}

/// Devices that share one file system or disk.
struct Group {
  const char* option = "";  // The option that names the first path.
  std::string path;
  std::uint64_t named = 0;
  PathFacts facts;
};

Status judge_place(const char* option, const BlockDevice& device, const PathFacts& facts) {
  using Kind = PathFacts::Kind;
  const int error = facts.kind == Kind::other ? ENOTDIR : facts.error;
  if (error == 0 || (facts.kind != Kind::raw && has_descriptor_source())) {
    return {};  // `tiermem run` has checked the directory, and may create the file.
  }
  const bool found = facts.kind == Kind::directory || facts.kind == Kind::raw;
  return fail_native(found ? Code::unavailable : Code::invalid_argument, error,
                     "{}={:.120}: {}; name a directory that this user may write to, or a block "
                     "device",
                     option, device.path, std::strerror(error));
}

/// The reserve of a file system, as the block tier interprets `reserve_free`.
std::uint64_t reserve_of(const Config& config, const PathFacts& facts) {
  return config.reserve_free == BlockFileOptions::kDefaultReserve
             ? std::min(facts.total / 20, std::uint64_t{1} << 30)
             : config.reserve_free;
}

Status judge_room(Config& config, const Group& group) {
  const PathFacts& facts = group.facts;
  const char* const owner = facts.kind == PathFacts::Kind::raw ? "the device" : "its file system";
  if (facts.total != 0 && group.named > facts.total) {
    return fail(Code::invalid_argument,
                "{}: {:.100}: {} is more than {} has, which is {}; name less", group.option,
                group.path, human_bytes(group.named), owner, human_bytes(facts.total));
  }
  const std::uint64_t usable = facts.free - std::min(facts.free, reserve_of(config, facts));
  if (facts.kind == PathFacts::Kind::directory && facts.total != 0 && group.named > usable) {
    config.warnings.push_back(fmt::format(
        "{}: {}: {} is more than the {} that are free there (reserve_free is left out): writes "
        "will fail when it is full; name less, or free some",
        group.option, group.path, human_bytes(group.named), human_bytes(usable)));
  }
  return {};
}

// A disk in memory adds no room: each byte that leaves DRAM stays in memory.
Status judge_memory_disks(Config& config, const HostFacts& facts, const Group& group) {
  const auto limit = memory_limit(facts);
  const std::uint64_t both = saturating_add(config.dram.budget, group.named);
  if (limit && config.dram.hard && group.named != 0 && both > limit->bytes) {
    return fail(Code::invalid_argument,
                "{}: {:.80} is a file system in memory, and {} of it with dram={} are more than "
                "{} has, which is {}; name a directory on a disk",
                group.option, group.path, human_bytes(group.named), human_bytes(config.dram.budget),
                limit->owner, human_bytes(limit->bytes));
  }
  config.warnings.push_back(
      fmt::format("{}: {} is a file system in memory: what leaves DRAM stays in memory; name a "
                  "directory on a disk",
                  group.option, group.path));
  return {};
}

Status judge_block(Config& config, const HostFacts& facts, const LookAtPath& look) {
  std::map<std::uint64_t, Group> groups;
  for (const auto& [option, devices] :
       {std::pair("nvme", &config.block), std::pair("slow", &config.slow)}) {
    for (const BlockDevice& device : *devices) {
      const PathFacts found = look(config.block_is_made ? existing_part(device.path) : device.path);
      if (Status status = judge_place(option, device, found); !status.ok()) {
        return status;
      }
      Group& group =
          groups.try_emplace(found.group, Group{option, device.path, 0, found}).first->second;
      group.named = saturating_add(group.named, device.bytes);
    }
  }
  for (const auto& [_, group] : groups) {
    Status status = judge_room(config, group);
    if (status.ok() && group.facts.in_memory) {
      status = judge_memory_disks(config, facts, group);
    }
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status judge_written_file(const char* option, const std::string& path, const LookAtPath& look) {
  const std::size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  PathFacts facts = look(path);
  int error = facts.kind == PathFacts::Kind::directory ? EISDIR : facts.error;
  if (error == ENOENT) {
    facts = look(parent);
    const bool directory = facts.kind == PathFacts::Kind::directory;
    error = directory || facts.error != 0 ? facts.error : ENOTDIR;
  }
  return error == 0
             ? Status()
             : fail_native(Code::io_error, error,
                           "{}: cannot write {:.120}: {}; name a file in a directory that exists "
                           "and that this user may write to",
                           option, path, std::strerror(error));
}

// The file of statistics is written when the context closes: no caller can get an error then. The
// log is opened when a context is created; `tiermem run` must refuse it before the program starts.
Status judge_files(Config& config, const LookAtPath& look) {
  if (config.stats_file != "off") {
    if (Status status = judge_written_file("stats_file", config.stats_file, look); !status.ok()) {
      return status;
    }
  }
  if (config.log_file == Config().log_file) {
    return {};
  }
  if (config.log == LogLevel::off) {
    config.warnings.push_back(
        fmt::format("log_file: nothing is written to {:.120}, because log is off; set log=warn, "
                    "info or debug, or leave log_file out",
                    config.log_file));
  }
  return judge_written_file("log_file", config.log_file, look);
}

// The default extent size passes unchecked: small buffers have smaller extents.
void judge_extent(Config& config) {
  if (config.extent != Config().extent && config.extent > config.dram.budget) {
    config.warnings.push_back(
        fmt::format("extent: {} is more than dram, which is {}: a buffer that names no extent size "
                    "may not fit; name a smaller extent",
                    human_bytes(config.extent), human_bytes(config.dram.budget)));
  }
}

}  // namespace

PathFacts look_at_path(const std::string& path) {
  PathFacts facts;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    facts.error = errno;
    return facts;
  }
  const int rights = S_ISDIR(status.st_mode) ? R_OK | W_OK | X_OK : W_OK;
  facts.error = faccessat(AT_FDCWD, path.c_str(), rights, AT_EACCESS) == 0 ? 0 : errno;
  if (S_ISBLK(status.st_mode)) {
    facts.kind = PathFacts::Kind::raw;
    facts.group = std::uint64_t{status.st_rdev};
    const int device = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (device >= 0) {
      if (ioctl(device, BLKGETSIZE64, &facts.total) != 0) {
        facts.total = 0;
      }
      best_effort(::close(device), "the descriptor is gone in any case");
    }
    return facts;
  }
  facts.kind = S_ISDIR(status.st_mode) ? PathFacts::Kind::directory : PathFacts::Kind::other;
  facts.group = std::uint64_t{status.st_dev};
  struct statfs system {};
  if (statfs(path.c_str(), &system) == 0) {
    facts.in_memory = system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
  }
  if (const auto room = file_system_room(path); room.ok()) {
    facts.total = room->total;  // 0 for a ramfs, which has no limit.
    facts.free = room->free;
  }
  return facts;
}

void add_unknown_variables(Config& config) {
  std::vector<std::string> unknown = unknown_variables(environ);
  config.warnings.insert(config.warnings.begin(), std::make_move_iterator(unknown.begin()),
                         std::make_move_iterator(unknown.end()));
}

Status judge_fit(Config& config, const HostFacts& facts, const LookAtPath& look) {
  Status status = judge_dram(config, facts);
  if (status.ok()) {
    status = judge_block(config, facts, look);
  }
  if (status.ok()) {
    status = judge_files(config, look);
  }
  judge_extent(config);
  return status;
}

namespace {

// How far a node without processors is from those next to it, as the firmware tells. Figures of a
// node with processors are those of its own processors, and say nothing here.
struct Reach {
  std::optional<std::int64_t> visit_ns{};  // The time that 2 MiB take to the node and back.
  std::optional<unsigned> distance{};
};

Reach reach_of(const Topology& topology, unsigned id) {
  const MemoryNode& node = *topology.node(id);
  const std::optional<unsigned> near = topology.nearest_processors(node);
  if (!near) {
    return {};
  }
  Reach reach;
  if (const auto to = node.distances.find(*near); to != node.distances.end()) {
    reach.distance = to->second;
  }
  const auto way_ns = [](std::uint64_t mib_s, std::uint64_t latency_ns) {
    constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kSecond = 1'000'000'000;
    return cost_ns(2 * kMiB,
                   {.bytes_per_s = saturating_mul(mib_s, kMiB),
                    .latency_ns = static_cast<std::int64_t>(std::min(latency_ns, kSecond))});
  };
  const auto& access = node.access1 ? node.access1 : node.access0;
  if (access && access->read_mib_s && access->write_mib_s) {
    reach.visit_ns = way_ns(*access->write_mib_s, access->write_ns.value_or(0)) +
                     way_ns(*access->read_mib_s, access->read_ns.value_or(0));
  }
  return reach;
}

// Says why `a` is the better one, or nothing. Differences of times below a tenth do not count.
std::string better(const Reach& a, const Reach& b) {
  if (a.visit_ns && b.visit_ns) {
    return *a.visit_ns < *b.visit_ns / 10 * 9
               ? fmt::format("faster: {} us for 2 MiB there and back, against {} us",
                             *a.visit_ns / 1000, *b.visit_ns / 1000)
               : "";
  }
  return a.distance && b.distance && *a.distance < *b.distance
             ? fmt::format("nearer: distance {}, against {}", *a.distance, *b.distance)
             : "";
}

// The order of naming is the order of demotion. One warning for each node that is named too late.
void warn_of_order(Config& config, const Topology& topology) {
  std::vector<Reach> reach;
  for (const NodeMemory& named : config.numa) {
    const Reach late = reach_of(topology, named.index);
    for (std::size_t i = 0; i < reach.size(); ++i) {
      const std::string why = better(late, reach[i]);
      if (why.empty()) {
        continue;
      }
      config.warnings.push_back(fmt::format(
          "numa: node {0} is named before node {1}, which is {2}; name node {1} before node {0}, "
          "because bytes that leave DRAM go to the first node named",
          config.numa[i].index, named.index, why));
      break;
    }
    reach.push_back(late);
  }
}

// Returns the bandwidth of the fastest of these nodes as `figure` tells it, or 0.
template <typename Figure>
std::uint64_t fastest(const Topology& topology, const std::vector<unsigned>& ids, Figure&& figure) {
  std::uint64_t most = 0;
  for (const unsigned id : ids) {
    most = std::max<std::uint64_t>(most, figure(*topology.node(id)));
  }
  return most;
}

// The shares that an administrator has set come first, and then the figures of the firmware. The
// kernel's own shares are all equal before Linux 6.16.
std::vector<std::uint64_t> bandwidths_of(const Config& config, const Topology& topology) {
  std::vector<std::vector<unsigned>> memories(1);
  for (const MemoryNode& node : topology.nodes) {
    const bool named = std::any_of(config.numa.begin(), config.numa.end(),
                                   [&](const NodeMemory& each) { return each.index == node.id; });
    if (node.cpus && !node.cpus->empty() && !named) {
      memories.front().push_back(node.id);
    }
  }
  for (const NodeMemory& each : config.numa) {
    memories.push_back({each.index});
  }
  const auto all = [&](auto&& figure) {
    std::vector<std::uint64_t> found;
    for (const std::vector<unsigned>& ids : memories) {
      found.push_back(fastest(topology, ids, figure));
    }
    return found;
  };
  const auto weights = all([](const MemoryNode& node) { return node.weight.value_or(0); });
  const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
  if (*least != 0 && *least != *most) {
    return weights;
  }
  return all([](const MemoryNode& node) {
    const auto& access = node.access1 ? node.access1 : node.access0;
    return access ? access->read_mib_s.value_or(0) : 0;
  });
}

}  // namespace

Status judge_numa(Config& config, const Topology& topology) {
  for (NodeMemory& tier : config.numa) {
    const std::string why = host::node_refusal(topology, tier.index, tier.bytes);
    if (!why.empty()) {
      return fail(Code::invalid_argument, "numa={}: {}", tier.index, why);
    }
    if (tier.bytes != 0) {
      continue;
    }
    const std::uint64_t free = topology.node(tier.index)->free_bytes.value_or(0);
    constexpr std::uint64_t kUnit = std::uint64_t{2} << 20;
    tier.bytes = free / 5 * 4 / kUnit * kUnit;
    if (tier.bytes == 0) {
      return fail(
          Code::no_capacity,
          "numa={}: {} of the memory of the node are free, which is too little; free some, or "
          "leave the node out",
          tier.index, human_bytes(free));
    }
    config.notes.push_back(fmt::format("numa {}: {}, of {} that are free there", tier.index,
                                       human_bytes(tier.bytes), human_bytes(free)));
  }
  warn_of_order(config, topology);
  config.bandwidths = bandwidths_of(config, topology);
  return {};
}

Status judge_pmem(Config& config) {
  constexpr std::uint64_t kMappingsEach = FrameMapper::kMappingsEach;
  std::uint64_t frames = 0;
  for (BlockDevice& memory : config.pmem) {
    const DaxPath facts = look_at_dax_path(memory.path);
    if (Status refused = refuse_dax_path(memory.path, facts, memory.bytes); !refused.ok()) {
      return refused;
    }
    if (memory.bytes == 0 && facts.kind == DaxPath::Kind::device) {
      memory.bytes = facts.total;
      config.notes.push_back(
          fmt::format("pmem: all {} of {}", human_bytes(facts.total), memory.path));
    }
    if (memory.bytes == 0) {
      return fail(Code::invalid_argument,
                  "pmem={:.120}: a directory needs a size; add one, such as {:.40}:32G",
                  memory.path, memory.path);
    }
    if (!facts.dax) {
      config.warnings.push_back(fmt::format(
          "pmem={}: its file system maps no persistent memory (MAP_SYNC is refused), so the bytes "
          "pass through the page cache; mount it with dax, or name another directory",
          memory.path));
    }
    frames += memory.bytes / DaxFile::kUnit;
  }
  if (const std::uint64_t limit = host::map_limit(); limit != 0 && frames > limit / kMappingsEach) {
    config.warnings.push_back(fmt::format(
        "pmem: {} extents of 2 MiB may need {} mappings, of {} that the process may have; raise "
        "vm.max_map_count, or use larger extents",
        frames, saturating_mul(frames, kMappingsEach), limit));
  }
  return {};
}

namespace {

Result<Config> judged(Result<Config> config, const HostFacts& facts) {
  if (!config.ok()) {
    return config;
  }
  if (getauxval(AT_SECURE) == 0) {
    add_unknown_variables(*config);
  }
  if (!config->numa.empty()) {
    if (Status status = judge_numa(*config, read_topology()); !status.ok()) {
      return status;
    }
  }
  if (Status status = judge_pmem(*config); !status.ok()) {
    return status;
  }
  if (Status status = judge_fit(*config, facts, look_at_path); !status.ok()) {
    return status;
  }
  // `tiermem run` has made the same check, and reports it once for all processes under it.
  if (const char* const run = secure_getenv("TIERMEM_RUN"); run != nullptr && *run != '\0') {
    config->warnings.clear();
  }
  return config;
}

}  // namespace

Result<Config> load_fitting_config(std::string_view tiers, const char* toml_path,
                                   const HostFacts& facts) {
  return judged(load_config(tiers, toml_path, process_environment(), facts), facts);
}

Result<Config> load_fitting_config(std::span<const Spec> tiers, const char* toml_path,
                                   const HostFacts& facts) {
  return judged(load_config(tiers, toml_path, process_environment(), facts), facts);
}

}  // namespace tiermem
