// Checks first, followed by names and values.
#include "cli/run_devices.hpp"

#include <array>

#include "base/error.hpp"
#include "os/cuda_driver.hpp"
#include "runtime/fit.hpp"
#include "runtime/options.hpp"

namespace tiermem::cli {
namespace {

/// More than any program has, so its own memory stays plain.
constexpr const char* kAllPlain = "1048576T";

/// Checks a size or a percentage with the parser of the option `dram`.
Status check_dram(const std::string& text) {
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  const HostFacts facts = probe_host_facts();
  const std::array specs = {Spec{"nvme=off", "--gpu-dram"}, Spec{"dram=" + text, "--gpu-dram"}};
  auto config = load_config(specs, nullptr, nothing, facts);
  Status status = config.ok() ? judge_fit(*config, facts, look_at_path) : config.status().clone();
  return status.ok() ? std::move(status)
                     : fail(Code::invalid_argument, "run: --gpu-dram: {}", status.message());
}

}  // namespace

bool tiers_host(const Config& config) {
  return config.gpus.empty() || config.dram.hard;
}

Status add_device_variables(const Config& config, const DeviceArguments& arguments,
                            std::vector<std::pair<std::string, std::string>>& variables) {
  if (config.gpus.empty()) {
    const bool named = !arguments.dram.empty() || !arguments.threshold.empty();
    return named ? fail(Code::invalid_argument,
                        "run: --gpu-dram and --gpu-threshold are for the memory of GPUs; name "
                        "one with --gpu")
                 : Status();
  }
  if (!arguments.dram.empty()) {
    Status accepted = check_dram(arguments.dram);
    if (!accepted.ok()) {
      return accepted;
    }
    variables.emplace_back("TIERMEM_GPU_DRAM", arguments.dram);
  }
  if (!arguments.threshold.empty()) {
    const auto bytes = parse_size(arguments.threshold);
    if (!bytes.ok()) {
      return fail(Code::invalid_argument, "run: --gpu-threshold: {}", bytes.message());
    }
    variables.emplace_back("TIERMEM_GPU_THRESHOLD", format_size(*bytes));
  }
  if (!tiers_host(config)) {
    variables.emplace_back("TIERMEM_START", kAllPlain);
  }
  const auto driver = CudaDriver::load(config.gpu_driver.c_str());
  return driver.ok() ? Status() : fail(Code::unavailable, "run: --gpu: {}", driver.message());
}

}  // namespace tiermem::cli
