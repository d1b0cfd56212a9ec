// The properties of this machine, read from procfs, sysfs and cgroupfs at run time. Facts only:
// higher layers decide how to use them. Every file is read below a root path, so that tests can
// provide their own files.
//
// Threads: any. A probe blocks for some milliseconds and runs when a context starts. It never
// fails: a fact that cannot be read carries the reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tiermem/status.hpp"

namespace tiermem {

/// One property of the machine: either `available` with a `value`, or with a `reason`.
struct Fact {
  bool available = false;
  std::string value;
  std::string reason;

  static Fact of(std::string value) { return {true, std::move(value), {}}; }
  static Fact missing(std::string reason) { return {false, {}, std::move(reason)}; }
  /// Returns the value as a number, if it is one.
  std::optional<std::uint64_t> number() const;
};

struct NumaNode {
  unsigned id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t free_bytes = 0;
  std::string cpus;  ///< In the kernel's form: "0-3,8". Empty for memory without processors.
};

struct BlockDeviceFacts {
  std::string name;  ///< Name in /sys/block.
  std::uint64_t bytes = 0;
  std::uint32_t block_bytes = 512;  ///< Logical block size.
  bool rotational = false;
  std::string model;  ///< Empty if the driver does not report one.
};

struct HostFacts {
  Fact kernel;            ///< Kernel release.
  Fact memory_total;      ///< Bytes.
  Fact memory_available;  ///< Bytes available without swapping, as the kernel estimates.
  Fact cgroup_version;    ///< 1 or 2: version of the hierarchy that controls memory.
  Fact cgroup_limit;      ///< Bytes: limit of the ancestor that leaves the least memory.
  Fact cgroup_usage;      ///< Bytes charged to this ancestor.
  /// Part of it that is inactive page cache: the kernel reclaims it first.
  Fact cgroup_reclaimable;
  Fact cgroup_file;               ///< The file with the limit.
  Fact cores;                     ///< Number of processors that this process may run on.
  Fact cpu_limit;                 ///< Limit of its cgroups in per cent of one processor's time.
  Fact huge_pages;                ///< Transparent huge pages: always, madvise or never.
  Fact memlock_limit;             ///< Bytes that may be page-locked, or "unlimited".
  Fact max_map_count;             ///< Max number of VMAs of a process.
  Fact io_uring_disabled;         ///< 0: allowed for all; 1: for privileged processes; 2: for none.
  Fact unprivileged_userfaultfd;  ///< 1: every process may serve kernel-mode faults.
  Fact userfaultfd_device;        ///< The path, if this process may open it.
  Fact numa;                      ///< Number of nodes.
  std::vector<NumaNode> numa_nodes;
  Fact block;  ///< Number of devices.
  std::vector<BlockDeviceFacts> block_devices;

  /// Returns the bytes available now: the lower of what the tightest cgroup leaves (inactive page
  /// cache counts as free) and what the machine has available. Nothing if neither is known.
  std::optional<std::uint64_t> memory_left() const;
  /// Returns whether its cgroups give the process less time than its processors have.
  bool cpu_time_is_limited() const;
  /// Returns the single facts with their names, for people.
  std::vector<std::pair<std::string_view, const Fact*>> named() const;
};

/// Probes all facts.
///
/// - `root`: a prefix for every path; empty for this machine.
HostFacts probe_host_facts(const std::string& root = "");
/// Probes only the facts about memory and about cgroups that limit it; the others are missing.
HostFacts probe_memory_facts(const std::string& root = "");

/// The space of the file system that holds a path. `free` is what an unprivileged process may still
/// write.
struct FileSystemRoom {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
};
/// Errors: io_error with errno.
Result<FileSystemRoom> file_system_room(const std::string& path);

}  // namespace tiermem
