// What `tiermem run` tells a program of its devices, and whether their memory is all that is to be
// tiered. Called before anything is started.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/config.hpp"
#include "tiermem/status.hpp"

namespace tiermem::cli {

/// As they were written; empty: not at all. The devices themselves are an option of the tiers.
struct DeviceArguments {
  std::string dram;
  std::string threshold;
};

/// Who names a GPU and no DRAM wants the program's own memory left alone.
bool tiers_host(const Config& config);

/// Adds the variables that the preload library reads. Errors: invalid_argument naming the option;
/// unavailable where a GPU is named and there is no driver.
Status add_device_variables(const Config& config, const DeviceArguments& arguments,
                            std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace tiermem::cli
