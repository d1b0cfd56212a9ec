// The settings about devices that `tiermem run` passes to a program, and whether only device memory
// is tiered. Called before the program starts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/config.hpp"
#include "tiermem/status.hpp"

namespace tiermem::cli {

/// As typed; empty: not given. The devices themselves are an option of the tiers.
struct DeviceArguments {
  std::string dram;
  std::string threshold;
};

/// A command line with a GPU but without DRAM leaves the program's own memory alone.
bool tiers_host(const Config& config);

/// Adds the variables that the preload library reads. Errors: invalid_argument naming the option;
/// unavailable if a GPU is named and there is no driver.
Status add_device_variables(const Config& config, const DeviceArguments& arguments,
                            std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace tiermem::cli
