// tiermem topo: this machine's hardware, and how tiermem would use it. Gathers all facts first, and
// then shows them as tables or as JSON.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/json_file.hpp"
#include "cli/mount.hpp"
#include "cli/option_facts.hpp"
#include "cli/picture.hpp"
#include "cli/probes.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"
#include "cli/tier_rates.hpp"
#include "cli/topology_json.hpp"
#include "cli/topology_picture.hpp"
#include "cli/topology_tree.hpp"
#include "os/host_facts.hpp"
#include "os/topology.hpp"
#include "runtime/fit.hpp"
#include "runtime/options.hpp"
#include "runtime/variables.hpp"

namespace tiermem::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr unsigned kTreeWidth = 80;
constexpr double kMemorySeconds = 0.5;
constexpr double kDeviceSeconds = 1.8;  // For all devices together.

struct Arguments {
  std::string tiers;
  std::string toml;
  std::string json;
  std::string plot;
  std::string root;
  bool no_measure = false;
  bool options = false;
};

/// One device of the block tier, or why it cannot be used.
struct DeviceLine {
  BlockDevice device;
  FoundTuning tuning;
  Mount mount;
  DeviceRates rates;
  std::string error;
  unsigned tier = 0;  ///< Number of its block tier: 0 for `nvme`, the others for `slow`.
};

/// All that the command shows about this machine.
struct Report {
  HostFacts host;
  Topology topology;
  Config config;
  Status fits;  ///< Why a context would be refused.
  MemoryRates memory;
  std::string memory_error;
  std::vector<DeviceLine> devices;
  std::vector<Probe> probes;
};

Result<Report> gather(const Arguments& arguments) {
  Report all;
  all.host = probe_host_facts();
  all.topology = read_topology();
  const Spec named{arguments.tiers, "--tiers"};
  auto config = load_config({&named, 1}, arguments.toml.empty() ? nullptr : arguments.toml.c_str(),
                            process_environment(), all.host);
  if (!config.ok()) {
    return std::move(config).status();
  }
  all.config = std::move(*config);
  add_unknown_variables(all.config);
  all.fits = judge_numa(all.config, all.topology);
  if (all.fits.ok()) {
    all.fits = judge_pmem(all.config);
  }
  if (all.fits.ok()) {
    all.fits = judge_fit(all.config, all.host, look_at_path);
  }
  const bool measure = !arguments.no_measure;
  std::vector<BlockDevice> devices = all.config.block;
  devices.insert(devices.end(), all.config.slow.begin(), all.config.slow.end());
  Progress progress("measuring memory", devices.size() + 1, "");
  if (measure) {
    auto rates = measure_memory(all.config.dram.budget, kMemorySeconds);
    if (rates.ok()) {
      all.memory = *rates;
    } else {
      all.memory_error = rates.message();
    }
  }
  for (const BlockDevice& device : devices) {
    progress.step("measuring " + device.path, all.devices.size() + 1);
    // Nothing is created: for a missing directory of tiermem's own, its existing parent is
    // measured.
    const std::string there = existing_part(device.path);
    const std::size_t number = all.devices.size();
    const std::size_t fast = all.config.block.size();
    DeviceLine line;
    line.device = device;
    line.tuning =
        number < fast ? all.config.tuning[number] : FoundTuning{std::nullopt, "a tier of `slow`"};
    line.mount = mount_of(there);
    line.tier = number < fast ? 0 : static_cast<unsigned>(number - fast + 1);
    const double seconds = measure ? kDeviceSeconds / static_cast<double>(devices.size()) : 0;
    const bool is_made = all.config.block_is_made;
    auto rates = measure_device({is_made ? there : device.path, device.bytes}, all.config, seconds);
    if (rates.ok()) {
      line.rates = std::move(*rates);
    } else {
      line.error = rates.message();
    }
    all.devices.push_back(std::move(line));
  }
  all.probes = probe_machine(all.config, all.host);
  return all;
}

// ---- tables -----------------------------------------------------------------------------------

std::string shown(const Fact& fact) {
  return fact.available ? fact.value : "unknown: " + fact.reason;
}

std::string shown_bytes(const Fact& fact) {
  const auto number = fact.number();
  return number ? human_bytes(*number) : shown(fact);
}

void print_host(const HostFacts& host) {
  print_title("Host");
  Table table({{""}, {""}});
  table.add({"kernel", shown(host.kernel)});
  table.add({"processors",
             shown(host.cores) + " allowed" +
                 (host.cpu_time_is_limited()
                      ? fmt::format(", for {} % of one's time by cgroup", host.cpu_limit.value)
                      : "")});
  table.add({"memory", fmt::format("{}, {} available", shown_bytes(host.memory_total),
                                   shown_bytes(host.memory_available))});
  if (host.cgroup_limit.available) {
    table.add(
        {"cgroup limit", fmt::format("{}, {} in use, says {}", shown_bytes(host.cgroup_limit),
                                     shown_bytes(host.cgroup_usage), shown(host.cgroup_file))});
  } else {
    table.add({"cgroup limit", "none: " + host.cgroup_limit.reason});
  }
  if (host.numa_nodes.empty()) {
    table.add({"NUMA nodes", shown(host.numa)});
  }
  for (const NumaNode& node : host.numa_nodes) {
    table.add({fmt::format("NUMA node {}", node.id),
               fmt::format("{}, {}", human_bytes(node.bytes),
                           node.cpus.empty() ? "no processors" : "processors " + node.cpus)});
  }
  for (const BlockDeviceFacts& device : host.block_devices) {
    table.add({"disk " + device.name,
               fmt::format("{}, {} byte blocks{}{}{}", human_bytes(device.bytes),
                           device.block_bytes, device.rotational ? ", rotating" : "",
                           device.model.empty() ? "" : ", ", device.model)});
  }
  table.print();
}

/// Without a terminal, the lines are ASCII.
void print_topology(const Topology& topology) {
  print_title("Topology");
  const unsigned width = stdout_is_terminal() ? std::min(terminal_width(), kTreeWidth) : kTreeWidth;
  fmt::print("{}",
             tree_text(topology_tree(topology), stdout_is_terminal() && is_utf8_locale(), width));
  if (const std::string distances = distances_text(topology); !distances.empty()) {
    fmt::print("\n{}", distances);
  }
  for (const std::string& note : topology_notes(topology)) {
    print_text("  " + note);
  }
}

std::string measured(bool known, const std::string& text) {
  return known ? text : "-";
}

std::string tier_name(const DeviceLine& line) {
  return line.tier == 0 ? "nvme" : fmt::format("slow {}", line.tier);
}

void print_tiers(const Report& all) {
  print_title("Tiers");
  const Config& config = all.config;
  const MemoryRates& memory = all.memory;
  Table table({{"TIER"},
               {"BUDGET", Table::Align::right},
               {"", Table::Align::left},
               {"READ", Table::Align::right},
               {"WRITE", Table::Align::right},
               {"LATENCY", Table::Align::right},
               {"WHERE"}});
  const auto limit_word = [](bool hard) { return hard ? "hard" : "guessed"; };
  table.add({"dram", human_bytes(config.dram.budget), limit_word(config.dram.hard),
             measured(memory.copy > 0, human_rate(memory.copy)),
             measured(memory.copy > 0, human_rate(memory.copy)),
             measured(memory.copy > 0, human_time(memory.latency)),
             !all.memory_error.empty() ? all.memory_error
             : memory.copy > 0         ? "host memory (rates of a copy, one thread)"
                                       : "host memory"});
  if (config.compressed != 0) {
    table.add({"compressed", human_bytes(config.compressed), "hard", "-", "-", "-",
               "compressed pages, a part of dram"});
  }
  for (const NodeMemory& node : config.numa) {
    table.add({fmt::format("numa {}", node.index), human_bytes(node.bytes), "hard", "-", "-", "-",
               "memory of a node, see below"});
  }
  for (std::size_t number = 0; number < config.pmem.size(); ++number) {
    const BlockDevice& place = config.pmem[number];
    table.add({fmt::format("pmem {}", number), place.bytes != 0 ? human_bytes(place.bytes) : "all",
               "hard", "-", "-", "-", fmt::format("{} (persistent memory)", place.path)});
  }
  for (const GpuDevice& gpu : config.gpus) {
    table.add({fmt::format("gpu {}", gpu.index), gpu.bytes != 0 ? human_bytes(gpu.bytes) : "free",
               limit_word(gpu.bytes != 0), "-", "-", "-", "device memory, see below"});
  }
  for (const DeviceLine& line : all.devices) {
    const DeviceRates& rates = line.rates;
    const bool own_cap = line.device.bytes != 0;
    table.add({tier_name(line), human_bytes(own_cap ? line.device.bytes : config.block_budget),
               own_cap ? "hard" : "guessed", measured(rates.measured, human_rate(rates.read)),
               measured(rates.measured && !rates.raw, human_rate(rates.write)),
               measured(rates.measured, human_time(rates.latency)),
               line.error.empty()
                   ? fmt::format("{} ({})", line.device.path, line.mount.text())
                   : fmt::format("{}: cannot be used: {}", line.device.path, line.error)});
  }
  if (all.devices.empty()) {
    table.add({"nvme", "none"});
  }
  table.print();
  for (const std::string& note : config.notes) {
    print_text("  " + note);
  }
}

/// The time and the result of a tuning.
std::string shown(const Tuning& tuning) {
  const std::time_t when = tuning.when;
  std::tm day{};
  (void)localtime_r(&when, &day);
  return fmt::format("{:04}-{:02}-{:02}: depth {}, piece {}, gap {}", day.tm_year + 1900,
                     day.tm_mon + 1, day.tm_mday, tuning.depth, format_size(tuning.piece),
                     human_bytes(tuning.gap));
}

std::vector<Probe> all_probes(const Report& all) {
  std::vector<Probe> probes = all.probes;
  for (const DeviceLine& line : all.devices) {
    probes.push_back({"tuned " + line.device.path, line.tuning.tuning.has_value(),
                      line.tuning.tuning ? shown(*line.tuning.tuning) : line.tuning.reason});
    if (!line.error.empty()) {
      continue;
    }
    const DeviceFacts& facts = line.rates.facts;
    probes.push_back(
        {"O_DIRECT in " + line.device.path, facts.direct,
         facts.direct ? fmt::format("{} byte blocks, by {}", facts.block_bytes, line.rates.engine)
                      : facts.reason});
  }
  return probes;
}

void print_probes(const Report& all) {
  print_title("Probed");
  Table table({{""}, {""}, {""}});
  for (const Probe& probe : all_probes(all)) {
    table.add({probe.name, probe.on ? "yes" : "no", probe.detail});
  }
  table.print();
}

/// Five columns for programs; a terminal is too narrow for them.
int print_options() {
  const bool terminal = stdout_is_terminal();
  Table table = terminal
                    ? Table({{"OPTION"}, {"MEANING"}})
                    : Table({{"OPTION"}, {"DEFAULT"}, {"ACCEPTED"}, {"VARIABLE"}, {"MEANING"}});
  for (const Option& option : option_table()) {
    std::string meaning(option.meaning);
    std::erase(meaning, '`');
    const std::string accepted = accepted_values(option);
    if (terminal) {
      table.add({option.name, fmt::format("{} Default: {}. Accepted: {}. Variable: {}.", meaning,
                                          option.fallback, accepted, option.env)});
    } else {
      table.add({option.name, option.fallback, accepted, option.env, meaning});
    }
  }
  table.print();
  return kDone;
}

// ---- JSON -------------------------------------------------------------------------------------

Json to_json(const Fact& fact) {
  if (!fact.available) {
    return {{"value", nullptr}, {"reason", fact.reason}};
  }
  const auto number = fact.number();
  return number ? Json{{"value", *number}} : Json{{"value", fact.value}};
}

Json host_json(const HostFacts& host) {
  Json out = Json::object();
  for (const auto& [name, fact] : host.named()) {
    out[std::string(name)] = to_json(*fact);
  }
  out["numa_nodes"] = Json::array();
  for (const NumaNode& node : host.numa_nodes) {
    out["numa_nodes"].push_back({{"id", node.id},
                                 {"bytes", node.bytes},
                                 {"free_bytes", node.free_bytes},
                                 {"cpus", node.cpus}});
  }
  out["block_devices"] = Json::array();
  for (const BlockDeviceFacts& device : host.block_devices) {
    out["block_devices"].push_back({{"name", device.name},
                                    {"bytes", device.bytes},
                                    {"block_bytes", device.block_bytes},
                                    {"rotational", device.rotational},
                                    {"model", device.model}});
  }
  return out;
}

Json rate_or_null(bool known, double value) {
  return known ? Json(value) : Json(nullptr);
}

Json tuning_json(const FoundTuning& found) {
  if (!found.tuning) {
    return {{"when", nullptr}, {"reason", found.reason}};
  }
  const Tuning& tuning = *found.tuning;
  return {{"when", tuning.when},
          {"device", tuning.device},
          {"depth", tuning.depth},
          {"piece_bytes", tuning.piece},
          {"gap_bytes", tuning.gap},
          {"read_bytes_per_s", tuning.read_rate},
          {"write_bytes_per_s", tuning.write_rate}};
}

Json tiers_json(const Report& all) {
  Json out = Json::array();
  const bool known = all.memory.copy > 0;
  out.push_back({{"kind", "dram"},
                 {"budget_bytes", all.config.dram.budget},
                 {"hard", all.config.dram.hard},
                 {"read_bytes_per_s", rate_or_null(known, all.memory.copy)},
                 {"write_bytes_per_s", rate_or_null(known, all.memory.copy)},
                 {"latency_s", rate_or_null(known, all.memory.latency)},
                 {"error", all.memory_error.empty() ? Json(nullptr) : Json(all.memory_error)}});
  if (all.config.compressed != 0) {
    out.push_back(
        {{"kind", "compressed"}, {"budget_bytes", all.config.compressed}, {"hard", true}});
  }
  for (const NodeMemory& node : all.config.numa) {
    out.push_back(
        {{"kind", "numa"}, {"index", node.index}, {"budget_bytes", node.bytes}, {"hard", true}});
  }
  for (std::size_t number = 0; number < all.config.pmem.size(); ++number) {
    const BlockDevice& memory = all.config.pmem[number];
    out.push_back({{"kind", "pmem"},
                   {"index", number},
                   {"path", memory.path},
                   {"budget_bytes", memory.bytes != 0 ? Json(memory.bytes) : Json(nullptr)},
                   {"hard", true}});
  }
  for (const GpuDevice& gpu : all.config.gpus) {
    out.push_back({{"kind", "gpu"},
                   {"index", gpu.index},
                   {"budget_bytes", gpu.bytes != 0 ? Json(gpu.bytes) : Json(nullptr)},
                   {"hard", gpu.bytes != 0}});
  }
  for (const DeviceLine& line : all.devices) {
    const DeviceRates& rates = line.rates;
    out.push_back(
        {{"kind", line.tier == 0 ? "nvme" : "slow"},
         {"tier", line.tier},
         {"path", line.device.path},
         {"file_system", line.mount.type},
         {"source", line.mount.source},
         {"budget_bytes", line.device.bytes != 0 ? line.device.bytes : all.config.block_budget},
         {"hard", line.device.bytes != 0},
         {"read_bytes_per_s", rate_or_null(rates.measured, rates.read)},
         {"write_bytes_per_s", rate_or_null(rates.measured && !rates.raw, rates.write)},
         {"latency_s", rate_or_null(rates.measured, rates.latency)},
         {"direct", rates.facts.direct},
         {"block_bytes", rates.facts.block_bytes},
         {"engine", rates.engine},
         {"tuned", tuning_json(line.tuning)},
         {"error", line.error.empty() ? Json(nullptr) : Json(line.error)}});
  }
  return out;
}

Json report_json(const Report& all) {
  Json probes = Json::array();
  for (const Probe& probe : all_probes(all)) {
    probes.push_back({{"name", probe.name}, {"on", probe.on}, {"detail", probe.detail}});
  }
  return {{"host", host_json(all.host)},
          {"topology", topology_json(all.topology)},
          {"tiers", tiers_json(all)},
          {"probes", std::move(probes)},
          {"notes", all.config.notes},
          {"warnings", all.config.warnings},
          {"refused", all.fits.ok() ? Json() : Json(all.fits.message())}};
}

Json options_json() {
  Json out = Json::array();
  for (const Option& option : option_table()) {
    out.push_back({{"name", option.name},
                   {"default", option.fallback},
                   {"accepted", accepted_values(option)},
                   {"variable", option.env},
                   {"meaning", option.meaning}});
  }
  return {{"options", std::move(out)}};
}

/// Writes the JSON and the picture, where they were asked for.
Status write_outputs(const Arguments& arguments, const Json& report, const Topology& topology) {
  Status written = arguments.json.empty() ? Status() : write_json(arguments.json, report);
  return !written.ok() || arguments.plot.empty()
             ? std::move(written)
             : write_picture(arguments.plot, draw_topology(topology));
}

/// Whether standard output is free for text.
bool prints(const Arguments& arguments) {
  return arguments.json != "-" && arguments.plot != "-";
}

/// Shows the topology of another machine, from a copy of its files.
int run_root(const Arguments& arguments) {
  if (::access((arguments.root + "/sys").c_str(), R_OK | X_OK) != 0) {
    return complain(fail(Code::invalid_argument,
                         "topo: --root {:.120}: it has no folder sys; name a folder with copies of "
                         "/sys and /proc",
                         arguments.root));
  }
  const Topology topology = read_topology({.root = arguments.root});
  if (const Status written =
          write_outputs(arguments, {{"topology", topology_json(topology)}}, topology);
      !written.ok()) {
    return complain(written);
  }
  if (prints(arguments)) {
    print_topology(topology);
  }
  return kDone;
}

int run(const Arguments& arguments) {
  if (const Status can = check_outputs("topo", arguments.json, arguments.plot); !can.ok()) {
    return complain(can);
  }
  if (arguments.options) {
    Status written = arguments.json.empty() ? Status() : write_json(arguments.json, options_json());
    return !written.ok() ? complain(written) : arguments.json == "-" ? kDone : print_options();
  }
  if (!arguments.root.empty()) {
    return run_root(arguments);
  }
  const auto all = gather(arguments);
  if (!all.ok()) {
    return complain(all.status());
  }
  if (const Status written = write_outputs(arguments, report_json(*all), all->topology);
      !written.ok()) {
    return complain(written);
  }
  if (prints(arguments)) {
    print_host(all->host);
    fmt::print("\n");
    print_topology(all->topology);
    fmt::print("\n");
    print_tiers(*all);
    fmt::print("\n");
    print_probes(*all);
  }
  // The command fails only if a requested tier is unusable.
  const bool usable = std::all_of(all->devices.begin(), all->devices.end(),
                                  [](const DeviceLine& line) { return line.error.empty(); });
  tell(LogLevel::warn, all->config.warnings);
  if (!all->fits.ok()) {
    return complain(kCannot, all->fits.message());
  }
  return usable ? kDone : kCannot;
}

}  // namespace

void add_topo(CLI::App& program, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  Command* command = add_command(
      program, "topo", "Show the memories of this machine, their speed, and why something is off");
  CLI::Option* const tiers =
      command
          ->add_option("--tiers", arguments->tiers,
                       "Tiers and options as a spec string, such as \"dram=4G; nvme=/data:100G\".")
          ->type_name("SPEC")
          ->default_str("the environment, then what the machine offers");
  CLI::Option* const config =
      command->add_option("--config", arguments->toml, "A TOML file with tiers and options.")
          ->type_name(kFile);
  command->add_flag("--no-measure", arguments->no_measure,
                    "Do not measure rates, which takes up to 3 seconds.");
  CLI::Option* const options = command->add_flag(
      "--options", arguments->options, "Print the table of all options of the library instead.");
  command
      ->add_option("--root", arguments->root,
                   "Show only the topology of another machine, of which DIR has copies of /sys and "
                   "/proc.")
      ->type_name(kFolder)
      ->default_str("this machine")
      ->excludes(tiers)
      ->excludes(config)
      ->excludes(options);
  add_json(*command, arguments->json);
  command
      ->add_option(
          "--plot", arguments->plot,
          "Draw the topology into FILE, as SVG or PNG by its ending; - for SVG to standard "
          "output.")
      ->type_name(kFile)
      ->excludes(options);
  command->manual.description = {
      "Shows the processors, memory, NUMA nodes and disks of the machine, the tiers that a context "
      "would use with their budgets and measured rates, and the result of each probe with its "
      "reason. The exit status is 3 where a tier that was named cannot be used.",
      "The topology is a tree. A node without processors, such as CXL memory, is below the "
      "nearest node with processors, and a drive, GPU or NIC is below its node. Speeds are those "
      "that the firmware reports; nothing in the tree is measured.",
      "No file is left behind, and no directory is created."};
  command->manual.variables = {"TIERMEM_TIERS", "TIERMEM_CONFIG", "TIERMEM_DIR", "NO_COLOR"};
  command->manual.examples = {
      {"tiermem topo --tiers \"dram=4G; nvme=/data:100G\"",
       "Show how fast /data is, and whether it can be used."},
      {"tiermem topo --root machine", "Show the topology in a copy of another machine's files."},
      {"tiermem topo --options", "List all options with their defaults."}};
  command->manual.see_also = {"numactl(8)", "lsblk(8)"};
  command->callback([arguments, &exit] { exit = run(*arguments); });
}

}  // namespace tiermem::cli
