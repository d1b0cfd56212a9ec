// Checks that this machine has what a configuration names: memory for the budgets, room and
// permissions in directories, devices as large as their sizes. Checked once, when a context starts.
// An error is cheap at that point; the alternative is the OOM killer, SIGBUS or a full disk hours
// later.
//
// A configuration that cannot work is an error. One that works but is unwise is a warning: one
// sentence in Config::warnings, for the log or descriptor 2. docs/configuration.md has a table of
// both.
//
// Threads: any. judge_fit() is pure except for `look`, which tests replace.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "os/host_facts.hpp"
#include "os/topology.hpp"
#include "runtime/config.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

/// The facts about a path that the check needs.
struct PathFacts {
  enum class Kind : std::uint8_t { missing, directory, raw, other };
  Kind kind = Kind::missing;
  int error = 0;  ///< errno of `missing`, or of the failed access for writing; 0: writable.
  bool in_memory = false;   ///< tmpfs or ramfs.
  std::uint64_t group = 0;  ///< Equal for paths that share `total` and `free`.
  std::uint64_t total = 0;  ///< Bytes of the file system or of the raw device; 0: unknown.
  std::uint64_t free = 0;   ///< Free bytes of the file system for an ordinary user.
};
using LookAtPath = std::function<PathFacts(const std::string& path)>;
/// Looks at a path on this machine. Creates nothing.
PathFacts look_at_path(const std::string& path);

/// Adds a warning for each unknown TIERMEM_ variable of the environment, before the other warnings.
void add_unknown_variables(Config& config);

/// Compares the configuration with the machine. Warnings are appended to config.warnings. Errors:
///
/// - invalid_argument: a size that the machine does not have, or a path that is missing or of the
///   wrong kind.
/// - unavailable: a path without write access.
/// - io_error: a file that cannot be written.
Status judge_fit(Config& config, const HostFacts& facts, const LookAtPath& look);

/// Checks the memories of NUMA nodes, gives those without a size 80 % of what is free, and looks up
/// the bandwidths for interleaved buffers. Warns if a slower node is named before a faster one.
///
/// Errors: invalid_argument: the machine has no such memory, or less; no_capacity: a node without a
/// size has too little free memory.
Status judge_numa(Config& config, const Topology& topology);

/// The same for persistent memory: compares the paths and sizes with what is there, and gives a
/// device without a size all of it. Warns if its extents may need more mappings than the process
/// may have. Errors: those of refuse_dax_path(); invalid_argument: a directory has no size.
Status judge_pmem(Config& config);

/// load_config() with the process's environment, followed by judge_fit(). Unknown TIERMEM_
/// variables of the environment come first in the warnings.
Result<Config> load_fitting_config(std::string_view tiers, const char* toml_path,
                                   const HostFacts& facts);
Result<Config> load_fitting_config(std::span<const Spec> tiers, const char* toml_path,
                                   const HostFacts& facts);

}  // namespace tiermem
