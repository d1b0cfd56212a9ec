// What this machine offers, read from procfs, sysfs and cgroupfs at run time. Facts only: what to
// do with them is decided above. Every file is read below a root path, so that tests lay out their
// own.
//
// Threads: any; probing blocks for some milliseconds and happens when a context starts. Never
// fails: a fact that cannot be read says why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tiermem/status.hpp"

namespace tiermem {

/// One thing about the machine. Either `available` with a `value`, or a `reason`.
struct Fact {
  bool available = false;
  std::string value;
  std::string reason;

  static Fact of(std::string value) { return {true, std::move(value), {}}; }
  static Fact missing(std::string reason) { return {false, {}, std::move(reason)}; }
  /// The value as a number, when it is one.
  std::optional<std::uint64_t> number() const;
};

struct NumaNode {
  unsigned id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t free_bytes = 0;
  std::string cpus;  ///< As the kernel writes it: "0-3,8". Empty for memory without processors.
};

struct BlockDeviceFacts {
  std::string name;  ///< As in /sys/block.
  std::uint64_t bytes = 0;
  std::uint32_t block_bytes = 512;  ///< Logical block size.
  bool rotational = false;
  std::string model;  ///< Empty when the driver tells none.
};

struct HostFacts {
  Fact kernel;              ///< Release.
  Fact memory_total;        ///< Bytes.
  Fact memory_available;    ///< Bytes that can be taken without swapping, as the kernel estimates.
  Fact cgroup_version;      ///< 1 or 2: of the hierarchy that controls memory.
  Fact cgroup_limit;        ///< Bytes: of the ancestor that leaves least.
  Fact cgroup_usage;        ///< Bytes charged to it.
  Fact cgroup_reclaimable;  ///< Of these, inactive page cache: the kernel gives it up first.
  Fact cgroup_file;         ///< The file that names the limit.
  Fact cores;               ///< Processors this process may run on.
  Fact cpu_limit;           ///< Of its cgroups' time: per cent of one processor's.
  Fact huge_pages;          ///< Transparent huge pages: always, madvise or never.
  Fact memlock_limit;       ///< Bytes that may be page-locked, or "unlimited".
  Fact max_map_count;       ///< VMAs a process may have.
  Fact io_uring_disabled;   ///< 0: for all; 1: privileged only; 2: for none.
  Fact unprivileged_userfaultfd;  ///< 1: kernel-mode faults for everyone.
  Fact userfaultfd_device;        ///< The path, when this process may open it.
  Fact numa;                      ///< How many nodes.
  std::vector<NumaNode> numa_nodes;
  Fact block;  ///< How many devices.
  std::vector<BlockDeviceFacts> block_devices;

  /// Bytes that can be taken now: what the tightest cgroup leaves (inactive page cache counted as
  /// free) or what the machine has available, whichever is less. Nothing when neither is known.
  std::optional<std::uint64_t> memory_left() const;
  /// Its cgroups let it run for less time than its processors have.
  bool cpu_time_is_limited() const;
  /// The single facts with their names, for people.
  std::vector<std::pair<std::string_view, const Fact*>> named() const;
};

/// `root` is put before every path; empty for this machine.
HostFacts probe_host_facts(const std::string& root = "");
/// Only the facts of memory and of cgroups that limit it; the others are missing.
HostFacts probe_memory_facts(const std::string& root = "");

/// Of the file system that holds a path. `free`: what an unprivileged process may still write.
struct FileSystemRoom {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
};
/// Errors: io_error with errno.
Result<FileSystemRoom> file_system_room(const std::string& path);

}  // namespace tiermem
