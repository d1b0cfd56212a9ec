// Reads /proc, the host facts, and git.
#include "bench/machine.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "bench/process.hpp"
#include "cli/mount.hpp"
#include "os/host_facts.hpp"
#include "tiermem/version.hpp"

namespace tiermem::bench {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

}  // namespace

std::string describe_machine(const std::string& directory) {
  const HostFacts facts = probe_host_facts();
  std::string out =
      fmt::format("{}, {} processors, {}, Linux {}", processor_name(), facts.cores.value,
                  human_bytes(facts.memory_total.number().value_or(0)), facts.kernel.value);
  if (!directory.empty()) {
    out += ", " + cli::mount_of(directory).text();
  }
  return out;
}

std::string describe_commit() {
  if (const char* named = std::getenv("TIERMEM_COMMIT"); named != nullptr && *named != '\0') {
    return named;
  }
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const Output git = run_program({"git", "-C", self.parent_path().string(), "describe",
                                    "--always", "--dirty", "--abbrev=12", "--exclude=*"});
    if (git.exit_code == 0 && git.text.size() > 1) {
      return git.text.substr(0, git.text.find('\n'));
    }
  }
  return fmt::format("v{}.{}.{}", TIERMEM_VERSION_MAJOR, TIERMEM_VERSION_MINOR,
                     TIERMEM_VERSION_PATCH);
}

}  // namespace tiermem::bench
