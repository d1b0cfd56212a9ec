// Reads the facts. The only complex part is the cgroup. The process's path comes from
// /proc/self/cgroup, and the mount point of the hierarchy from /proc/self/mountinfo. Every ancestor
// up to the mount counts, because a limit applies to everything below it.
#include "os/host_facts.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>

#include "base/error.hpp"
#include "base/results.hpp"
#include "os/kernel_text.hpp"

namespace tiermem {
namespace {

namespace fs = std::filesystem;

// The size of mountinfo on a busy container host.
constexpr std::size_t kLargestFile = std::size_t{4} << 20;
// Version 1 writes "no limit" as the largest multiple of the page size, which is at least 2^62.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;

/// Reads a whole file below the root; the value of the fact is its text.
class Reader {
 public:
  explicit Reader(std::string root) : root_(std::move(root)) {}

  Fact text(const std::string& path) const {
    const std::string full = root_ + path;
    const int file = open(full.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) {
      return unreadable(path, errno);
    }
    std::string all;
    char part[4096];
    ssize_t n = 0;
    while ((n = read(file, part, sizeof(part))) != 0 && all.size() < kLargestFile) {
      if (n > 0) {
        all.append(part, static_cast<std::size_t>(n));
      } else if (errno != EINTR) {
        const int error = errno;
        best_effort(close(file), "the descriptor is gone in any case");
        return unreadable(path, error);
      }
    }
    best_effort(close(file), "the descriptor is gone in any case");
    return Fact::of(std::move(all));
  }

  /// Reads a file of one line, without its newline.
  Fact line(const std::string& path) const {
    Fact fact = text(path);
    fact.value = std::string(trimmed(fact.value));
    return fact;
  }

  Fact number(const std::string& path) const {
    Fact fact = line(path);
    if (fact.available && !fact.number()) {
      return Fact::missing(fmt::format("{}: '{:.40}' is not a number", path, fact.value));
    }
    return fact;
  }

  /// Returns the rest of the line that starts with `key`, in a file of many lines.
  Fact field(const std::string& path, std::string_view key) const {
    Fact fact = text(path);
    if (!fact.available) {
      return fact;
    }
    std::istringstream lines(fact.value);
    for (std::string one; std::getline(lines, one);) {
      if (one.compare(0, key.size(), key) == 0) {
        return Fact::of(std::string(trimmed(std::string_view(one).substr(key.size()))));
      }
    }
    return Fact::missing(fmt::format("{} has no line '{}'", path, trimmed(key)));
  }

  /// The same as field(), for values like "12345 kB": returns bytes.
  Fact kilobytes(const std::string& path, std::string_view key) const {
    Fact fact = field(path, key);
    if (!fact.available) {
      return fact;
    }
    const auto value = to_number(std::string_view(fact.value).substr(0, fact.value.find(' ')));
    if (!value || *value > std::numeric_limits<std::uint64_t>::max() / 1024) {
      return Fact::missing(fmt::format("{}: '{:.40}' is not a size", path, fact.value));
    }
    return Fact::of(std::to_string(*value * 1024));
  }

  std::vector<std::string> names(const std::string& directory) const {
    std::vector<std::string> found;
    std::error_code error;
    fs::directory_iterator entry(root_ + directory, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      found.push_back(entry->path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  const std::string& root() const { return root_; }

 private:
  static Fact unreadable(const std::string& path, int error) {
    return Fact::missing(fmt::format("{}: {}", path, std::strerror(error)));
  }

  const std::string root_;
};

/// Counts the entries of a list: "0-3,8" is 5. Returns 0 for text that is not a list.
std::uint64_t count_list(std::string_view list) {
  std::uint64_t count = 0;
  while (!list.empty()) {
    const auto comma = list.find(',');
    const std::string_view range = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    const auto dash = range.find('-');
    const auto first = to_number(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : to_number(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last > 1'000'000) {
      return 0;
    }
    count += *last - *first + 1;
  }
  return count;
}

// ---- cgroups ----------------------------------------------------------------------------------

/// The location of a hierarchy that may control a resource, as this process sees it.
struct Hierarchy {
  int version = 0;
  std::string mount;  // Directory of the mount.
  std::string path;   // Path of this process below the mount: "" or "/a/b".
};

/// The memory that an ancestor leaves: limit - (usage - reclaimable).
struct CgroupLimit {
  std::uint64_t limit = 0, usage = 0, reclaimable = 0;
  std::string file;
  std::uint64_t left() const {
    const std::uint64_t held = usage - std::min(usage, reclaimable);
    return limit - std::min(limit, held);
  }
};

/// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ptr ==
            text.data() + i + 4) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool has_word(std::string_view list, std::string_view word) {
  while (true) {
    const auto comma = list.find(',');
    if (list.substr(0, comma) == word) {
      return true;
    }
    if (comma == std::string_view::npos) {
      return false;
    }
    list = list.substr(comma + 1);
  }
}

/// Returns the path below the mount. A container may see only a part of the hierarchy: `mount_root`
/// is the mounted part. A process outside this part ("/../x" in another cgroup namespace) is
/// treated as if it were at the top of the part.
std::string below_mount(std::string path, const std::string& mount_root) {
  if (mount_root != "/") {
    const bool inside = path.compare(0, mount_root.size(), mount_root) == 0 &&
                        (path.size() == mount_root.size() || path[mount_root.size()] == '/');
    path = inside ? path.substr(mount_root.size()) : "";
  }
  if (path.find("/..") != std::string::npos || path == "/") {
    return "";
  }
  return path;
}

std::vector<Hierarchy> hierarchies_of(const Reader& reader, std::string_view controller) {
  std::string path_v1, path_v2;
  bool has_v1 = false, has_v2 = false;
  std::istringstream memberships(reader.text("/proc/self/cgroup").value);
  for (std::string line; std::getline(memberships, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) {
      path_v2 = line.substr(second + 1);
      has_v2 = true;
    } else if (has_word(controllers, controller)) {
      path_v1 = line.substr(second + 1);
      has_v1 = true;
    }
  }
  // id parent major:minor root mount options [optional…] - type source super-options
  std::vector<Hierarchy> found;
  std::istringstream mounts(reader.text("/proc/self/mountinfo").value);
  for (std::string line; std::getline(mounts, line);) {
    const auto separator = line.find(" - ");
    if (separator == std::string::npos) {
      continue;
    }
    std::istringstream before(line.substr(0, separator)), after(line.substr(separator + 3));
    std::string id, parent, device, root, mount, type, source, options;
    before >> id >> parent >> device >> root >> mount;
    after >> type >> source >> options;
    if (type == "cgroup2" && has_v2) {
      found.push_back({2, unescaped(mount), below_mount(path_v2, unescaped(root))});
    } else if (type == "cgroup" && has_v1 && has_word(options, controller)) {
      found.push_back({1, unescaped(mount), below_mount(path_v1, unescaped(root))});
    }
  }
  return found;
}

/// Version 2 kills above memory.max and stalls above memory.high: both count as limits.
std::optional<CgroupLimit> limit_at(const Reader& reader, int version, const std::string& group) {
  CgroupLimit found;
  found.limit = kUnlimited;
  const std::vector<const char*> files =
      version == 2 ? std::vector<const char*>{"/memory.max", "/memory.high"}
                   : std::vector<const char*>{"/memory.limit_in_bytes"};
  for (const char* file : files) {
    // "max" is not a number, so there is no limit.
    const auto limit = reader.line(group + file).number();
    if (limit && *limit < found.limit) {
      found.limit = *limit;
      found.file = group + file;
    }
  }
  if (found.file.empty()) {
    return std::nullopt;
  }
  const char* usage = version == 2 ? "/memory.current" : "/memory.usage_in_bytes";
  const char* cache = version == 2 ? "inactive_file " : "total_inactive_file ";
  found.usage = reader.line(group + usage).number().value_or(0);
  found.reclaimable = reader.field(group + "/memory.stat", cache).number().value_or(0);
  return found;
}

/// Visits this process's group and all its ancestors: `visit(version, directory)`.
template <typename Visit>
void walk_groups(const std::vector<Hierarchy>& hierarchies, Visit visit) {
  for (const Hierarchy& hierarchy : hierarchies) {
    std::string path = hierarchy.path;
    while (true) {
      visit(hierarchy.version, hierarchy.mount + path);
      if (path.empty()) {
        break;
      }
      path.erase(path.rfind('/'));
    }
  }
}

void probe_cgroup(const Reader& reader, HostFacts& facts) {
  std::optional<CgroupLimit> tightest;
  int version = 0;
  const std::vector<Hierarchy> hierarchies = hierarchies_of(reader, "memory");
  walk_groups(hierarchies, [&](int its_version, const std::string& group) {
    const auto limit = limit_at(reader, its_version, group);
    if (limit && (!tightest || limit->left() < tightest->left())) {
      tightest = limit;
      version = its_version;
    }
  });
  if (!tightest) {
    const Fact none =
        Fact::missing(hierarchies.empty() ? "no cgroup of this process controls memory"
                                          : "no cgroup above this process has a memory limit");
    facts.cgroup_version = facts.cgroup_limit = facts.cgroup_usage = none;
    facts.cgroup_reclaimable = facts.cgroup_file = none;
    return;
  }
  facts.cgroup_version = Fact::of(std::to_string(version));
  facts.cgroup_limit = Fact::of(std::to_string(tightest->limit));
  facts.cgroup_usage = Fact::of(std::to_string(tightest->usage));
  facts.cgroup_reclaimable = Fact::of(std::to_string(tightest->reclaimable));
  facts.cgroup_file = Fact::of(tightest->file);
}

/// Returns the time in each period that a group may run, in per cent of one processor's time. For
/// no limit, version 2 writes "max 100000" and version 1 a quota of -1.
std::optional<std::uint64_t> cpu_limit_at(const Reader& reader, int version,
                                          const std::string& group) {
  std::string quota, period;
  if (version == 2) {
    std::istringstream(reader.line(group + "/cpu.max").value) >> quota >> period;
  } else {
    quota = reader.line(group + "/cpu.cfs_quota_us").value;
    period = reader.line(group + "/cpu.cfs_period_us").value;
  }
  const auto of = to_number(period);
  const auto most = to_number(quota);
  if (!most || *most > kUnlimited / 100 || of.value_or(0) == 0) {
    return std::nullopt;
  }
  return *most * 100 / *of;
}

Fact probe_cpu_limit(const Reader& reader) {
  std::optional<std::uint64_t> tightest;
  walk_groups(hierarchies_of(reader, "cpu"), [&](int version, const std::string& group) {
    const auto limit = cpu_limit_at(reader, version, group);
    if (limit && *limit < tightest.value_or(kUnlimited)) {
      tightest = limit;
    }
  });
  return tightest ? Fact::of(std::to_string(*tightest))
                  : Fact::missing("no cgroup above this process limits processor time");
}

// ---- the rest ---------------------------------------------------------------------------------

/// Returns the selected value: "always [madvise] never" is madvise.
Fact bracketed(const Fact& fact, const std::string& path) {
  const auto open = fact.value.find('['), close = fact.value.find(']');
  if (!fact.available) {
    return fact;
  }
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return Fact::missing(fmt::format("{}: '{:.40}' marks no choice", path, fact.value));
  }
  return Fact::of(fact.value.substr(open + 1, close - open - 1));
}

Fact probe_cores(const Reader& reader) {
  const Fact list = reader.field("/proc/self/status", "Cpus_allowed_list:");
  const std::uint64_t count = count_list(list.value);
  if (!list.available || count == 0) {
    return Fact::missing(list.available ? "/proc/self/status: '" + list.value + "' is not a list"
                                        : list.reason);
  }
  return Fact::of(std::to_string(count));
}

/// Returns the soft limit: the first of the two numbers in /proc/self/limits.
Fact probe_memlock(const Reader& reader) {
  const Fact fact = reader.field("/proc/self/limits", "Max locked memory");
  if (!fact.available) {
    return fact;
  }
  return Fact::of(fact.value.substr(0, fact.value.find(' ')));
}

Fact probe_userfaultfd_device(const Reader& reader) {
  const std::string path = "/dev/userfaultfd";
  if (access((reader.root() + path).c_str(), R_OK | W_OK) != 0) {
    return Fact::missing(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  return Fact::of(path);
}

void probe_numa(const Reader& reader, HostFacts& facts) {
  const std::string nodes = "/sys/devices/system/node";
  for (const std::string& name : reader.names(nodes)) {
    const auto id = name.compare(0, 4, "node") == 0 ? to_number(name.substr(4)) : std::nullopt;
    if (!id) {
      continue;
    }
    const std::string meminfo = nodes + "/" + name + "/meminfo";
    const auto size = [&](const char* what) {
      return reader.kilobytes(meminfo, fmt::format("Node {} {}:", *id, what)).number().value_or(0);
    };
    facts.numa_nodes.push_back({static_cast<unsigned>(*id), size("MemTotal"), size("MemFree"),
                                reader.line(nodes + "/" + name + "/cpulist").value});
  }
  std::sort(facts.numa_nodes.begin(), facts.numa_nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  facts.numa = facts.numa_nodes.empty() ? Fact::missing("no node in " + nodes)
                                        : Fact::of(std::to_string(facts.numa_nodes.size()));
}

void probe_block(const Reader& reader, HostFacts& facts) {
  const std::string devices = "/sys/block";
  for (const std::string& name : reader.names(devices)) {
    const std::string device = devices + "/" + name;
    const auto sectors = reader.number(device + "/size").number();
    if (!sectors || *sectors == 0) {
      continue;  // An unused loop device, an empty reader.
    }
    BlockDeviceFacts found;
    found.name = name;
    found.bytes = *sectors * 512;  // The kernel counts sectors of 512 bytes for every device.
    found.block_bytes = static_cast<std::uint32_t>(
        reader.number(device + "/queue/logical_block_size").number().value_or(512));
    found.rotational = reader.line(device + "/queue/rotational").value == "1";
    found.model = reader.line(device + "/device/model").value;
    facts.block_devices.push_back(std::move(found));
  }
  facts.block = facts.block_devices.empty() ? Fact::missing("no device in " + devices)
                                            : Fact::of(std::to_string(facts.block_devices.size()));
}

}  // namespace

std::optional<std::uint64_t> Fact::number() const {
  return available ? to_number(value) : std::nullopt;
}

std::optional<std::uint64_t> HostFacts::memory_left() const {
  std::optional<std::uint64_t> left = memory_available.number();
  if (const auto limit = cgroup_limit.number()) {
    const CgroupLimit group{
        *limit, cgroup_usage.number().value_or(0), cgroup_reclaimable.number().value_or(0), {}};
    left = std::min(left.value_or(group.left()), group.left());
  }
  return left;
}

bool HostFacts::cpu_time_is_limited() const {
  const auto limit = cpu_limit.number();
  return limit && *limit < 100 * cores.number().value_or(1);
}

std::vector<std::pair<std::string_view, const Fact*>> HostFacts::named() const {
  return {{"kernel", &kernel},
          {"memory_total", &memory_total},
          {"memory_available", &memory_available},
          {"cgroup_version", &cgroup_version},
          {"cgroup_limit", &cgroup_limit},
          {"cgroup_usage", &cgroup_usage},
          {"cgroup_reclaimable", &cgroup_reclaimable},
          {"cgroup_file", &cgroup_file},
          {"cores", &cores},
          {"cpu_limit", &cpu_limit},
          {"huge_pages", &huge_pages},
          {"memlock_limit", &memlock_limit},
          {"max_map_count", &max_map_count},
          {"io_uring_disabled", &io_uring_disabled},
          {"unprivileged_userfaultfd", &unprivileged_userfaultfd},
          {"userfaultfd_device", &userfaultfd_device},
          {"numa", &numa},
          {"block", &block}};
}

HostFacts probe_memory_facts(const std::string& root) {
  const Reader reader(root);
  HostFacts facts;
  facts.memory_total = reader.kilobytes("/proc/meminfo", "MemTotal:");
  facts.memory_available = reader.kilobytes("/proc/meminfo", "MemAvailable:");
  probe_cgroup(reader, facts);
  return facts;
}

HostFacts probe_host_facts(const std::string& root) {
  const Reader reader(root);
  HostFacts facts = probe_memory_facts(root);
  facts.kernel = reader.line("/proc/sys/kernel/osrelease");
  facts.cores = probe_cores(reader);
  facts.cpu_limit = probe_cpu_limit(reader);
  const std::string huge_pages = "/sys/kernel/mm/transparent_hugepage/enabled";
  facts.huge_pages = bracketed(reader.line(huge_pages), huge_pages);
  facts.memlock_limit = probe_memlock(reader);
  facts.max_map_count = reader.number("/proc/sys/vm/max_map_count");
  facts.io_uring_disabled = reader.number("/proc/sys/kernel/io_uring_disabled");
  facts.unprivileged_userfaultfd = reader.number("/proc/sys/vm/unprivileged_userfaultfd");
  facts.userfaultfd_device = probe_userfaultfd_device(reader);
  probe_numa(reader, facts);
  probe_block(reader, facts);
  return facts;
}

Result<FileSystemRoom> file_system_room(const std::string& path) {
  struct statvfs status {};
  if (statvfs(path.c_str(), &status) != 0) {
    const int error = errno;
    return fail_native(Code::io_error, error, "{}: {}", path, std::strerror(error));
  }
  const std::uint64_t unit = status.f_frsize;
  return FileSystemRoom{status.f_blocks * unit, status.f_bavail * unit};
}

}  // namespace tiermem
