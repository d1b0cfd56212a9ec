// Whether this machine has what a configuration names: memory for the budgets, room and rights in
// directories, devices that are as large as their sizes. Judged once, when a context starts: a
// sentence is cheap then, and the alternative is the OOM killer, SIGBUS or a full disk hours later.
//
// What cannot work is an error. What can work and is unwise is a warning: one sentence in
// Config::warnings, for the log or descriptor 2. The table of both is in docs/configuration.md.
//
// Threads: any. judge_fit() is pure but for `look`, which tests replace.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "os/host_facts.hpp"
#include "runtime/config.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

/// What the judgement asks of a path.
struct PathFacts {
  enum class Kind : std::uint8_t { missing, directory, raw, other };
  Kind kind = Kind::missing;
  int error = 0;  ///< errno of `missing`, or of the failed access for writing; 0: writable.
  bool in_memory = false;   ///< tmpfs or ramfs.
  std::uint64_t group = 0;  ///< Equal for paths that share `total` and `free`.
  std::uint64_t total = 0;  ///< Bytes of the file system or of the raw device; 0: unknown.
  std::uint64_t free = 0;   ///< Of a file system: bytes that an ordinary user may still write.
};
using LookAtPath = std::function<PathFacts(const std::string& path)>;
/// Of this machine. Creates nothing.
PathFacts look_at_path(const std::string& path);

/// Errors: invalid_argument for a size that the machine does not have, and for a path that does not
/// exist or is of the wrong kind; unavailable for a path without write access. Warnings are
/// appended to config.warnings.
Status judge_fit(Config& config, const HostFacts& facts, const LookAtPath& look);

/// load_config() with the process's environment, and judge_fit(). The warnings begin with the
/// unknown TIERMEM_ variables of the environment.
Result<Config> load_fitting_config(std::string_view tiers, const char* toml_path,
                                   const HostFacts& facts);
Result<Config> load_fitting_config(std::span<const Spec> tiers, const char* toml_path,
                                   const HostFacts& facts);

}  // namespace tiermem
