// The table, followed by the search.
#include "runtime/variables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/shown.hpp"
#include "runtime/options.hpp"

namespace tiermem {
namespace {

constexpr std::string_view kPrefix = "TIERMEM_";

constexpr std::array kVariables = {
    Variable{"TIERMEM_TIERS", "Options as a spec string, such as `dram=4G; nvme=/data:100G`."},
    Variable{"TIERMEM_CONFIG", "A TOML file of options."},
    Variable{"TIERMEM_DIR",
             "The directory of the block tier where `nvme` is not named. It must "
             "exist and be writable."},
    Variable{"TIERMEM_START",
             "Preload library: bytes that a process may take before its memory is "
             "tiered; unless set a thirty-second of `tiermem run --dram`, but 8M to "
             "32M, and at most an eighth of it."},
    Variable{"TIERMEM_THRESHOLD",
             "Preload library: allocations from this size on have a buffer of "
             "their own; 32M unless set."},
    Variable{"TIERMEM_WRAP_SYSCALLS",
             "Preload library: `1` makes system calls on absent pages for "
             "the program; `0` or unset: it does not."},
    Variable{"TIERMEM_GPU_DRAM",
             "Preload library: DRAM that the paused device memory of a process "
             "may take; 50% unless set."},
    Variable{"TIERMEM_GPU_THRESHOLD",
             "Preload library: allocations of device memory from this size "
             "on are tiered; 2M unless set."},
    Variable{"TIERMEM_PRELOAD_LIB",
             "`tiermem run`: the preload library, where it is not beside the "
             "program or installed."},
    Variable{"TIERMEM_CUFILE_PROBE",
             "The program that asks for cuFile, where it is not installed."},
    Variable{"TIERMEM_RUN", "Set by `tiermem run` for the processes under it."},
    Variable{"TIERMEM_RUN_BROKER",
             "Set by `tiermem run`: where a process under it that has changed its user or its root "
             "directory gets the files that it may not open."},
    // For scripts, examples and builds.
    Variable{"TIERMEM_DEMO_DIR", ""},
    Variable{"TIERMEM_LLM", ""},
    Variable{"TIERMEM_CGROUP_ROOT", ""},
    Variable{"TIERMEM_OWN_CGROUP", ""},
    Variable{"TIERMEM_CMAKE_ARGS", ""},
    Variable{"TIERMEM_COMMIT", ""},
    Variable{"TIERMEM_DOCS_OUT", ""},
    Variable{"TIERMEM_SIM_SEEDS", ""},
    Variable{"TIERMEM_TRACES", ""},
    Variable{"TIERMEM_GPU_TEST_DRIVER", ""},
    Variable{"TIERMEM_GPU_TEST_AS_REAL", ""},
};

/// Families of names that only tests set and read.
constexpr std::array<std::string_view, 4> kTestPrefixes = {"TIERMEM_TEST_", "TIERMEM_FAKE_",
                                                           "TIERMEM_STRESS_", "TIERMEM_MUTANT"};

template <typename Visit>
void for_each_name(Visit visit) {
  for (const Option& option : option_table()) {
    visit(option.env, true);
    if (const char* const former = former_variable(option)) {
      visit(former, false);
    }
  }
  for (const Variable& variable : kVariables) {
    visit(variable.name, *variable.meaning != '\0');
  }
}

}  // namespace

std::span<const Variable> variable_table() {
  return kVariables;
}

bool is_known_variable(std::string_view name) {
  bool known = std::any_of(kTestPrefixes.begin(), kTestPrefixes.end(),
                           [&](std::string_view prefix) { return name.starts_with(prefix); });
  for_each_name([&](const char* other, bool) { known = known || name == other; });
  return known;
}

const char* nearest_variable(std::string_view name) {
  name = name.substr(0, 64);  // No typing error is longer.
  const char* nearest = "";
  std::size_t least = ~std::size_t{0};
  for_each_name([&](const char* other, bool documented) {
    const std::size_t distance = documented ? edit_distance(name, other) : least;
    if (distance < least) {
      least = distance;
      nearest = other;
    }
  });
  return nearest;
}

std::vector<std::string> unknown_variables(const char* const* environment) {
  std::vector<std::string> sentences;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.starts_with(kPrefix) && !is_known_variable(name)) {
      sentences.push_back(
          fmt::format("{} has no effect: tiermem knows no such variable; did you mean {}?",
                      shown(whole_characters(name.substr(0, 80))), nearest_variable(name)));
    }
  }
  return sentences;
}

std::string variable_table_markdown() {
  std::string text = "| Variable | Meaning |\n|---|---|\n";
  for (const Variable& variable : kVariables) {
    if (*variable.meaning != '\0') {
      text += fmt::format("| `{}` | {} |\n", variable.name, variable.meaning);
    }
  }
  return text;
}

}  // namespace tiermem
