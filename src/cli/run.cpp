// tiermem run: starts a program with the preload library, shares one budget among all processes of
// the run, and reports at the end what limited them. It checks everything it can before it starts
// anything. It never writes to standard output, which belongs to the program.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/shown.hpp"
#include "cli/command.hpp"
#include "cli/elf_program.hpp"
#include "cli/json_file.hpp"
#include "cli/option_facts.hpp"
#include "cli/run_child.hpp"
#include "cli/run_devices.hpp"
#include "cli/run_handing.hpp"
#include "cli/run_limits.hpp"
#include "cli/run_report.hpp"
#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "os/userfault.hpp"
#include "runtime/fit.hpp"
#include "runtime/options.hpp"
#include "runtime/settings.hpp"

namespace tiermem::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPreloadName = "libtiermem_preload.so";
constexpr int kLiveMs = 250;
constexpr std::uint64_t kLeastThreshold = 4096;  // As read_size() of the preload library.
constexpr int kMissing = 127;                    // As in shells, env and timeout.
constexpr int kNotExecutable = 126;

struct Arguments {
  std::vector<std::string> program;
  std::string tiers;
  std::string dram;
  std::string nvme;
  std::string gpu;
  DeviceArguments devices;
  std::string log;
  std::string threshold;
  std::string json;
  bool stats = false;
  bool live = false;
  bool user_mode_ok = false;
  bool wrap_syscalls = false;
  bool force = false;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// ---- arguments ---------------------------------------------------------------------------------

/// The options as spec strings, so that there is one parser and one set of messages.
std::vector<Spec> specs_of(const Arguments& arguments) {
  std::vector<Spec> specs = {{arguments.tiers, "--tiers"}};
  const auto add = [&](const char* name, std::string_view value, const char* origin) {
    if (!value.empty()) {
      specs.push_back({fmt::format("{}={}", name, value), origin});
    }
  };
  add("dram", arguments.dram, "--dram");
  add("nvme", arguments.nvme, "--nvme");
  add("gpu", arguments.gpu, "--gpu");
  const std::size_t colon = std::min(arguments.log.find(':'), arguments.log.size());
  add("log", std::string_view(arguments.log).substr(0, colon), "--log");
  if (colon < arguments.log.size()) {
    add("log_file", std::string_view(arguments.log).substr(colon + 1), "--log");
  }
  return specs;
}

/// Each setting as its own variable, because these override all other variables, as the command
/// line should. The budget is in bytes: a percentage would refer to the memory left later.
Result<Variables> variables_of(const std::vector<Spec>& specs, const Config& config) {
  const auto settings = settings_from_specs(specs);
  if (!settings.ok()) {
    return settings.status().clone();
  }
  Variables variables;
  for (const Setting& setting : *settings) {
    if (setting.option->type != OptionType::budget) {
      variables.emplace_back(setting.option->env, fmt::format("{}", fmt::join(setting.items, ",")));
    }
  }
  variables.emplace_back(find_option("dram")->env, format_size(config.dram.budget));
  return variables;
}

// ---- checks of this machine --------------------------------------------------------------------

constexpr const char* kHowToAllow =
    "set vm.unprivileged_userfaultfd=1 (sysctl), give access to /dev/userfaultfd or CAP_SYS_PTRACE";

Status check_userfault(const Userfault& userfault, std::optional<Mechanism> mechanism,
                       bool user_mode_will_do) {
  const UserfaultFacts& facts = userfault.facts();
  if (facts.source == UserfaultSource::none) {
    return fail(Code::unavailable, "run: no userfaultfd here ({:.120}); {}", facts.reason,
                kHowToAllow);
  }
  char why[224] = {};
  const bool moves = (!mechanism || *mechanism == Mechanism::uffd_move) && facts.move;
  // A few pages show whether the kernel can: a process that tiers probes with an extent.
  const bool copies = !moves && (!mechanism || *mechanism == Mechanism::copy) &&
                      userfault.probe_copy(16 * host::kPage, why, sizeof(why));
  if (!moves && !copies) {
    return fail(Code::unavailable,
                "run: no UFFDIO_MOVE (Linux 6.8) and no replacement: {:.120}; upgrade the kernel, "
                "or set mechanism=auto",
                why[0] != '\0' ? why : "another mechanism was asked for");
  }
  if (facts.source == UserfaultSource::user_mode && !user_mode_will_do) {
    return fail(Code::unavailable,
                "run: only user-mode userfaultfd, so system calls on absent pages fail with "
                "EFAULT; add --user-mode-ok, or {}",
                kHowToAllow);
  }
  return {};
}

Result<std::string> usable_library(const std::string& path) {
  std::error_code error;
  std::string full = std::filesystem::canonical(path, error);
  if (error || access(full.c_str(), R_OK) != 0) {
    return fail(Code::unavailable, "{:.200}: {}", path,
                error ? error.message() : std::strerror(errno));
  }
  if (full.find_first_of(" :\t\n") != std::string::npos) {
    return fail(Code::unavailable,
                "{:.140}: LD_PRELOAD cannot name a path with a blank or a colon; install tiermem "
                "elsewhere",
                full);
  }
  return full;
}

/// Beside this program in a build tree; in the library directory of an installation.
Result<std::string> find_preload() {
  if (const char* named = secure_getenv("TIERMEM_PRELOAD_LIB");
      named != nullptr && *named != '\0') {
    auto library = usable_library(named);
    return library.ok() ? std::move(library)
                        : fail(Code::unavailable, "TIERMEM_PRELOAD_LIB: {}", library.message());
  }
  std::error_code error;
  const std::filesystem::path directory =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string beside = directory / kPreloadName;
  const std::string installed =
      (directory / TIERMEM_BINDIR_TO_LIBDIR / kPreloadName).lexically_normal();
  for (const std::string& path : {beside, installed}) {
    if (std::filesystem::exists(path, error)) {
      return usable_library(path);
    }
  }
  return fail(Code::unavailable,
              "run: no preload library at {:.80} or {:.80}; install it, or set TIERMEM_PRELOAD_LIB",
              beside, installed);
}

/// Our library first, followed by the existing list.
std::string preload_list(const std::string& library) {
  const char* others = getenv("LD_PRELOAD");
  return others == nullptr || *others == '\0' ? library : fmt::format("{}:{}", library, others);
}

int complain_about(const Program& program) {
  switch (program.obstacle) {
    case Obstacle::missing:
      complain(kFailed, program.reason);
      return kMissing;
    case Obstacle::not_executable:
      complain(kFailed, program.reason);
      return kNotExecutable;
    default:
      return complain(kCannot, program.reason + "; --force starts it all the same");
  }
}

// ---- running -----------------------------------------------------------------------------------

std::vector<RunProcess> processes_of(const RunHost& host) {
  std::vector<RunProcess> processes(kRunRows);
  processes.resize(host.processes(processes));
  return processes;
}

std::vector<RunRefusal> refusals_of(const RunHost& host) {
  std::vector<RunRefusal> refusals(kRunRefusals);
  refusals.resize(host.refusals(refusals));
  return refusals;
}

RunSummary summary_of(const RunHost& host, const Config& config, std::uint64_t plain,
                      Clock::time_point start) {
  RunSummary run;
  run.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  run.dram = config.dram.budget;
  run.block = config.block_budget;
  run.start = plain;
  run.host = tiers_host(config);
  run.totals = host.totals();
  run.refusals = refusals_of(host);
  run.processes = processes_of(host);
  return run;
}

/// The processes that the page knows: they have a row, or have said why they have none.
std::unordered_set<pid_t> told_of(const RunHost& host) {
  std::unordered_set<pid_t> told;
  for (const RunProcess& process : processes_of(host)) {
    told.insert(static_cast<pid_t>(process.pid));
  }
  for (const RunRefusal& refusal : refusals_of(host)) {
    told.insert(static_cast<pid_t>(refusal.pid));
  }
  return told;
}

void draw(const std::string& line) {
  say(fmt::format("\r{}\033[K", line.substr(0, stderr_width() - 1)));
}

/// Plain memory that each process may have before it is tiered, as the preload library computes it.
std::uint64_t plain_bytes(std::uint64_t total) {
  const char* const named = getenv("TIERMEM_START");
  const auto size = parse_size(named != nullptr ? named : "");
  return size.ok() ? *size : run_start(total);
}

/// Starts the program after all checks, and reports when it has ended.
int start(const Arguments& arguments, const Config& config, const HostFacts& facts,
          const std::string& library, Variables variables) {
  RunHost host;
  if (const int error = host.open(config.dram.budget, config.block_budget); error != 0) {
    return complain(
        kFailed,
        fmt::format("run: cannot create the page that its processes share: {}; {}",
                    std::strerror(error),
                    error == EFBIG ? "raise the limit of file sizes (ulimit -f)"
                                   : "free memory, or raise the limit of open files (ulimit -n)"));
  }
  variables.emplace_back("TIERMEM_RUN", host.path());
  RunBroker broker([&](BrokerRequest::What what, const char* path, BrokerReply& reply) {
    hand_over(host, config, what, path, reply);
  });
  if (broker.listen() == 0) {
    variables.emplace_back("TIERMEM_RUN_BROKER", broker.variable());
  }
  const std::uint64_t plain = plain_bytes(config.dram.budget);
  Outsiders outsiders(library, 2 * plain);
  LimitWatch limits(facts, config.dram.budget);
  ChildOptions options{.arguments = arguments.program, .environment = std::move(variables)};
  options.broker = broker.fd();
  options.serve = [&] { broker.serve(); };
  if (tiers_host(config)) {
    options.look = [&](pid_t program) {
      outsiders.look(program, told_of(host));
      const std::uint64_t resident = host.totals().counters.resident;
      if (const auto total = limits.look(probe_memory_facts(), resident)) {
        host.set_total(*total);
      }
    };
  }
  const Clock::time_point begin = Clock::now();
  RunSummary shown;
  const bool live = arguments.live && stderr_is_terminal();
  if (live) {
    options.tick_ms = kLiveMs;
    options.tick = [&] {
      RunSummary now = summary_of(host, config, plain, begin);
      draw(live_line(now, shown, stderr_width() - 1));
      shown = std::move(now);
    };
  }
  const auto status = run_child(options, host);
  if (live) {
    draw("");
  }
  if (!status.ok()) {
    return complain(status.status());
  }
  RunSummary run = summary_of(host, config, plain, begin);
  run.outsiders.assign(outsiders.found().begin(), outsiders.found().end());
  run.limits = limits.sentence();
  if (arguments.stats) {
    say(report_text(run, stderr_is_terminal(), stderr_width()));
  } else {
    for (const std::string& line : troubles(run)) {
      say(fmt::format("tiermem: {}\n", line));
    }
  }
  if (!arguments.json.empty()) {
    const Status written = write_json(arguments.json, report_json(run, shell_status(*status)));
    if (!written.ok()) {
      const int failed = complain(written);
      if (*status == 0) {
        return failed;  // The requested file is missing, so the command fails.
      }
    }
  }
  return end_as(*status);
}

/// Checks whether host memory can be tiered here. Returns 0, or tiermem's exit code.
int judge_faults(const Arguments& arguments, const Config& config, Variables& variables) {
  if (config.userfault == UserfaultUse::off) {
    return complain(kUsage, "run: userfault=off tiers nothing under a program; remove it");
  }
  if (config.userfault == UserfaultUse::signal) {
    return complain(
        kUsage,
        "run: userfault=signal is for programs that are linked with tiermem: touches are "
        "signals, and system calls on absent pages fail; remove it");
  }
  const Userfault userfault = Userfault::open(config.userfault);
#if defined(__x86_64__)
  constexpr bool kCanWrap = true;
#else
  constexpr bool kCanWrap = false;
#endif
  const Status allowed =
      check_userfault(userfault, config.mechanism, arguments.user_mode_ok || kCanWrap);
  if (!allowed.ok()) {
    return complain(allowed);
  }
  if (userfault.facts().source != UserfaultSource::user_mode) {
    return 0;  // The kernel's faults are served, so the program need not pay for wrapping.
  }
  if (arguments.user_mode_ok) {
    variables.emplace_back(find_option("userfault")->env, "user_mode");
    return 0;
  }
  variables.emplace_back("TIERMEM_WRAP_SYSCALLS", "1");
  if (!arguments.wrap_syscalls) {
    say(fmt::format(
        "tiermem: run: only user-mode userfaultfd here: system calls on absent memory are made "
        "for the program, and sudo has no effect under it; {}\n",
        kHowToAllow));
  }
  return 0;
}

int run(const Arguments& arguments) {
  if (arguments.program.empty()) {
    return complain(kUsage,
                    "run: PROGRAM is missing: tiermem run [OPTION...] -- PROGRAM [ARGUMENT...]; "
                    "see tiermem run --help");
  }
  if (arguments.json == "-") {
    return complain(kUsage, "run: --json -: standard output is the program's; name a file");
  }
  if (const Status can = check_json_output("run: --json", arguments.json); !can.ok()) {
    return complain(can);
  }
  const std::vector<Spec> specs = specs_of(arguments);
  const HostFacts facts = probe_host_facts();
  auto config = load_fitting_config(specs, nullptr, facts);
  if (!config.ok()) {
    return complain(config.status());
  }
  if (!config->pmem.empty()) {
    config->warnings.emplace_back(
        "pmem: it takes no bytes of programs under `tiermem run`, because their memory is mapped; "
        "leave pmem out");
  }
  tell(LogLevel::warn, config->warnings);
  auto variables = variables_of(specs, *config);
  if (!variables.ok()) {
    return complain(variables.status());
  }
  if (!arguments.threshold.empty()) {
    const auto threshold = parse_size(arguments.threshold);
    if (!threshold.ok()) {
      return complain(kUsage, fmt::format("run: --threshold: {}", threshold.message()));
    }
    variables->emplace_back("TIERMEM_THRESHOLD", format_size(*threshold));
  }
  const Program program = look_at_program(arguments.program[0], getenv("PATH"));
  const bool unfound =
      program.obstacle == Obstacle::missing || program.obstacle == Obstacle::not_executable;
  if (program.obstacle != Obstacle::none && (unfound || !arguments.force)) {
    return complain_about(program);
  }
  const Status devices = add_device_variables(*config, arguments.devices, *variables);
  if (!devices.ok() && (devices.code() != Code::unavailable || !arguments.force)) {
    return complain(devices);
  }
  if (const int refused = tiers_host(*config) ? judge_faults(arguments, *config, *variables) : 0;
      refused != 0) {
    return refused;
  }
  const auto library = find_preload();
  if (!library.ok()) {
    return complain(library.status());
  }
  variables->emplace_back("LD_PRELOAD", preload_list(*library));
  return start(arguments, *config, facts, *library, std::move(*variables));
}

}  // namespace

void add_run(CLI::App& program, const std::vector<std::string>& after_dashes, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  Command* command =
      add_command(program, "run", "Run an unmodified program in less memory than it needs");
  command->prefix_command();  // The first word that is not an option begins the program.
  const auto add = [&](const char* name, std::string& value, const char* kind, const char* text) {
    return command->add_option(name, value, text)->type_name(kind);
  };
  add("--dram", arguments->dram, "SIZE",
      "DRAM for all processes of the program together, such as 4G or 50%.")
      ->default_str("80 % of what the cgroup and the machine leave");
  add("--nvme", arguments->nvme, kPath,
      "Directories or raw devices of the block tier, with their caps: /data:100G,/more:100G.")
      ->default_str("a directory in the cache of the user, capped");
  add("--gpu", arguments->gpu, "GPUS",
      "GPUs with memory to tier, such as 0 or 0:40G. Without --dram nothing else is tiered.")
      ->default_str("none");
  add("--gpu-dram", arguments->devices.dram, "SIZE",
      "DRAM that the paused device memory of a process may take, such as 32G or 50%.")
      ->default_str("50%");
  add("--gpu-threshold", arguments->devices.threshold, "SIZE",
      "Tier allocations of device memory from this size on.")
      ->default_str("2M")
      ->check(size_in_bytes(kLeastThreshold));
  add("--tiers", arguments->tiers, "SPEC",
      "Tiers and options as a spec string, such as \"dram=4G; nvme=/data:100G\".");
  add("--threshold", arguments->threshold, "SIZE",
      "Give allocations from this size on a buffer of their own.")
      ->default_str("32M")
      ->check(size_in_bytes(kLeastThreshold));
  command->add_flag("--stats", arguments->stats,
                    "At the end, print to standard error what moved and what limited the program.");
  command->add_flag("--live", arguments->live,
                    "While the program runs, show its figures in a line of the terminal.");
  add("--json", arguments->json, kFile, "At the end, write the figures as JSON to FILE.");
  add("--log", arguments->log, "LEVEL",
      "Log of the processes: off, error, warn, info or debug, to standard error. With a file after "
      "a colon, as in info:FILE, to the file.")
      ->default_str("off");
  command->add_flag(
      "--wrap-syscalls", arguments->wrap_syscalls,
      "Print no warning where tiermem makes the system calls of the program on absent "
      "pages, since only user-mode userfaultfd is allowed.");
  command->add_flag("--user-mode-ok", arguments->user_mode_ok,
                    "Continue even if system calls on absent pages fail with EFAULT.");
  command->add_flag("--force", arguments->force,
                    "Start the program even if none of its memory can be tiered.");
  command->manual.operands = "[--] PROGRAM [ARGUMENT...]";
  command->manual.description = {
      "The program runs with the preload library: its heap, its anonymous mappings and, with "
      "--gpu, its device memory are tiered. All processes that it starts share one budget. At the "
      "end, tiermem prints to standard error what kept a process from being tiered.",
      "Everything after -- belongs to the program. Standard input and output are the program's "
      "own."};
  command->manual.statuses = {
      {"126", "the program cannot be executed"},
      {"127", "the program was not found"},
      {"128+N", "signal N ended the program, and tiermem ends by the same signal"},
      {"other", "the exit status of the program"}};
  command->manual.variables = {"TIERMEM_TIERS",
                               "TIERMEM_CONFIG",
                               "TIERMEM_DIR",
                               "TIERMEM_START",
                               "TIERMEM_PRELOAD_LIB",
                               "TIERMEM_RUN",
                               "TIERMEM_THRESHOLD",
                               "TIERMEM_WRAP_SYSCALLS",
                               "TIERMEM_GPU_DRAM",
                               "TIERMEM_GPU_THRESHOLD",
                               "LD_PRELOAD",
                               "PATH",
                               "NO_COLOR"};
  command->manual.examples = {
      {"tiermem run --dram 4G --nvme /data:100G --stats -- sort -S 16G big.txt",
       "Sort with 16 GiB of memory in 4 GiB of DRAM."},
      {"tiermem run --dram 50% --live -- python3 train.py",
       "Use half of the memory that is left, and watch the figures."}};
  command->manual.see_also = {"cgroups(7)", "ld.so(8)", "userfaultfd(2)"};
  command->callback([arguments, command, after_dashes, &exit] {
    arguments->program = command->remaining();
    if (!arguments->program.empty() && !after_dashes.empty()) {
      arguments->program.emplace_back("--");  // It belongs to the program.
    }
    arguments->program.insert(arguments->program.end(), after_dashes.begin(), after_dashes.end());
    exit = run(*arguments);
  });
}

}  // namespace tiermem::cli
