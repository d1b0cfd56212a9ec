// tiermem bench: runs a suite and shows each figure beside its peer and its bar. A missed bar is a
// finding, not a failure of the command.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "bench/core.hpp"
#include "bench/gpu.hpp"
#include "bench/gpu_device.hpp"
#include "bench/machine.hpp"
#include "bench/malloc_mix.hpp"
#include "bench/mapped.hpp"
#include "bench/scaling.hpp"
#include "bench/tiers.hpp"
#include "cli/command.hpp"
#include "cli/json_file.hpp"
#include "cli/option_facts.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "os/host_facts.hpp"
#include "runtime/fit.hpp"

namespace tiermem::cli {
namespace {

constexpr unsigned kFewestPairs = 9;

struct Arguments {
  std::string suite;
  std::string only;
  std::string directory;
  std::string json;
  unsigned pairs = kFewestPairs;
  std::uint64_t size_mib = 0;
  bool list = false;
};

std::span<const bench::Benchmark> suite_of(const std::string& name) {
  return name == "gpu"       ? bench::gpu_benchmarks()
         : name == "mapped"  ? bench::mapped_benchmarks()
         : name == "scaling" ? bench::scaling_benchmarks()
         : name == "tiers"   ? bench::tiers_benchmarks()
                             : bench::core_benchmarks();
}

/// The directory for files of a context without configuration.
Result<std::string> default_directory() {
  auto config = load_fitting_config("", nullptr, probe_host_facts());
  if (!config.ok()) {
    return std::move(config).status();
  }
  if (Status made = make_default_block(*config); !made.ok()) {
    return made;
  }
  if (config->block.empty()) {
    return fail(Code::unavailable,
                "bench: no directory for the block tier was found; name one with --dir");
  }
  return config->block.front().path;
}

/// The C library reads its settings when a program starts. The program therefore restarts itself
/// once, with huge pages for malloc, which is malloc's best, and with the thread-local room that
/// jemalloc needs.
void restart_with_best_malloc() {
  constexpr const char* kName = "GLIBC_TUNABLES";
  constexpr std::string_view kRoom = "glibc.rtld.optional_static_tls";
  const char* set = std::getenv(kName);
  std::string tunables = set == nullptr ? "" : set;
  if (tunables.find(kRoom) != std::string::npos) {
    return;
  }
  tunables += fmt::format("{}{}=16384:glibc.malloc.hugetlb=1", tunables.empty() ? "" : ":", kRoom);
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
  }
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  if (words.empty() || setenv(kName, tunables.c_str(), 1) != 0) {
    return;
  }
  // On failure the command continues with one peer fewer, and the notes say so.
  (void)execv("/proc/self/exe", pointers.data());
}

std::string figure(double value, const std::string& unit) {
  return fmt::format("{:.{}f} {}", value,
                     value >= 99.95   ? 0
                     : value >= 9.995 ? 1
                     : value >= 0.1   ? 2
                                      : 5,
                     unit);
}

std::string ratio_text(const bench::Row& row) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", row.ratio.middle, row.ratio.low, row.ratio.high);
}

void print_results(const bench::Session& session) {
  Table table({{"BENCHMARK"},
               {"TIERMEM", Table::Align::right},
               {"PEER", Table::Align::right},
               {"RATIO [95 %]", Table::Align::right},
               {"BAR", Table::Align::right},
               {"", Table::Align::left},
               {"BESIDE"}});
  for (const bench::Row& row : session.rows()) {
    const bool peer = row.has_peer();
    std::string bar = "-";
    if (row.has_bar()) {
      bar = peer ? fmt::format("{:.2f}", row.bar) : "<= " + figure(row.value_bar, row.unit);
    }
    table.add({row.name, figure(row.value, row.unit), peer ? figure(row.peer_value, row.unit) : "-",
               peer ? ratio_text(row) : "-", bar,
               !row.has_bar() ? "-"
               : row.met()    ? "met"
                              : "missed",
               peer ? row.peer : "-"});
  }
  table.print();

  Table cpu({{"PROCESSOR TIME"}, {"TIERMEM", Table::Align::right}, {"PEER", Table::Align::right}});
  for (const bench::Row& row : session.rows()) {
    const auto mine = row.extra.find("cpu_s_per_gib");
    const auto theirs = row.extra.find("peer_cpu_s_per_gib");
    if (mine != row.extra.end() && theirs != row.extra.end()) {
      cpu.add({row.name, figure(mine->second, "s/GiB"), figure(theirs->second, "s/GiB")});
    }
  }
  if (!cpu.empty()) {
    fmt::print("\n");
    cpu.print();
  }
  if (!session.notes().empty() || !session.skipped().empty()) {
    fmt::print("\n");
  }
  for (const std::string& sentence : session.skipped()) {
    print_text(sentence);
  }
  for (const std::string& note : session.notes()) {
    print_text(note);
  }
}

int list(const Arguments& arguments, std::span<const bench::Benchmark> all) {
  Table table({{"BENCHMARK"}, {"WHAT"}});
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const bench::Benchmark& benchmark : all) {
    table.add({benchmark.name, benchmark.about});
    rows.push_back({{"name", benchmark.name}, {"about", benchmark.about}});
  }
  if (!arguments.json.empty()) {
    const Status written =
        write_json(arguments.json, {{"suite", arguments.suite}, {"benchmarks", std::move(rows)}});
    if (!written.ok()) {
      return complain(written);
    }
  }
  if (arguments.json != "-") {
    table.print();
  }
  return kDone;
}

/// Returns the benchmarks with a name that begins with `only`. If there is none, `only` may be the
/// name of a result: then the benchmark that has the longest name with which it begins.
std::vector<bench::Benchmark> choose(std::span<const bench::Benchmark> all, std::string_view only) {
  std::vector<bench::Benchmark> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), [&](const auto& benchmark) {
    return std::string_view(benchmark.name).starts_with(only);
  });
  if (!chosen.empty()) {
    return chosen;
  }
  std::string_view longest;
  for (const bench::Benchmark& benchmark : all) {
    const std::string_view name = benchmark.name;
    if (name.size() > longest.size() && only.starts_with(name) && only[name.size()] == '_') {
      longest = name;
      chosen = {benchmark};
    }
  }
  return chosen;
}

int run(const Arguments& arguments) {
  const auto all = suite_of(arguments.suite);
  if (const Status can = check_json_output("bench: --json", arguments.json); !can.ok()) {
    return complain(can);
  }
  if (arguments.list) {
    return list(arguments, all);
  }
  const std::vector<bench::Benchmark> chosen = choose(all, arguments.only);
  if (chosen.empty()) {
    return complain(kUsage, fmt::format("bench: --only: no benchmark of {} has a name that begins "
                                        "with '{:.60}'; list them with --list",
                                        arguments.suite, arguments.only));
  }
  if (std::any_of(chosen.begin(), chosen.end(), [](const bench::Benchmark& benchmark) {
        return benchmark.run == bench::alloc_free || benchmark.run == bench::malloc_at ||
               benchmark.run == bench::malloc_at_memories;
      })) {
    restart_with_best_malloc();
  }
  bench::Settings settings{.directory = arguments.directory, .pairs = arguments.pairs};
  settings.bytes = arguments.size_mib << 20;
  if (arguments.suite == "gpu") {
    auto device = bench::describe_gpu();
    if (!device.ok()) {
      return complain(device.status());
    }
    settings.device = std::move(*device);
  }
  if (settings.directory.empty()) {
    auto found = default_directory();
    if (!found.ok()) {
      return complain(found.status());
    }
    settings.directory = std::move(*found);
  }
  struct stat status {};
  const int error = stat(settings.directory.c_str(), &status) == 0 ? 0 : errno;
  if (error != 0 || !S_ISDIR(status.st_mode)) {
    return complain(kUsage,
                    fmt::format("bench: --dir {:.160}: {}; name a directory", settings.directory,
                                error != 0 ? std::strerror(error) : "not a directory"));
  }
  // A context accepts only an absolute path.
  settings.directory = std::filesystem::absolute(settings.directory);

  Progress progress("bench", chosen.size(), "");
  std::size_t done = 0;
  bench::Session session(settings, [&](const std::string& what) { progress.step(what, done); });
  int exit = kDone;
  std::vector<std::string> failures;
  for (const bench::Benchmark& benchmark : chosen) {
    const Status ran = benchmark.run(session);
    if (!ran.ok()) {
      failures.push_back(fmt::format("{}: {}", benchmark.name, ran.message()));
      // A failure counts more than a missing requirement.
      const int code = exit_code(ran) == kCannot ? kCannot : kFailed;
      exit = exit == kDone || exit == code ? code : kFailed;
    }
    ++done;
  }
  progress.wipe();
  if (!arguments.json.empty()) {
    Status written = write_json(arguments.json, session.to_json(arguments.suite));
    if (!written.ok()) {
      return complain(written);
    }
  }
  if (arguments.json != "-") {
    print_text(fmt::format("{}; {}; {} pairs", bench::describe_machine(settings.directory),
                           bench::describe_commit(), settings.pairs));
    if (!settings.device.empty()) {
      print_text(settings.device);
    }
    print_results(session);
  }
  for (const std::string& failure : failures) {
    complain(kFailed, failure);
  }
  return exit;
}

}  // namespace

void add_bench(CLI::App& program, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  Command* command =
      add_command(program, "bench", "Measure tiermem beside the best alternative on this machine");
  command->add_option("suite", arguments->suite, "The suite of benchmarks.")
      ->type_name("SUITE")
      ->required()
      ->check(one_of({"core", "mapped", "gpu", "scaling", "tiers"}));
  command
      ->add_option("--only", arguments->only,
                   "Run only the benchmarks with a name that begins so, or that of a result.")
      ->type_name("NAME");
  command
      ->add_option("--pairs", arguments->pairs,
                   "How often tiermem and its peer are measured, alternately.")
      ->type_name("N")
      ->check(whole_number(kFewestPairs, 1001))
      ->capture_default_str();
  command->add_option("--dir", arguments->directory, "Directory for files, on the disk to measure.")
      ->type_name(kFolder)
      ->default_str("the directory of a context without configuration");
  add_json(*command, arguments->json);
  command->add_option("--size", arguments->size_mib, "MiB that the suite gpu moves at once.")
      ->type_name("MIB")
      ->check(whole_number(8, std::uint64_t{1} << 20))
      ->default_str("by the free memory");
  command->add_flag("--list", arguments->list, "List the benchmarks, and measure nothing.");
  command->manual.description = {
      "Prints a line for each benchmark: the figure of tiermem, that of its peer, and their ratio "
      "with its 95 % interval. A ratio above 1 means that tiermem is better. A bar is met when the "
      "low end of the interval reaches it. A missed bar is a finding, not a failure."};
  command->manual.variables = {"TIERMEM_TIERS", "TIERMEM_CONFIG", "TIERMEM_DIR", "NO_COLOR"};
  command->manual.examples = {
      {"tiermem bench core --list", "List the benchmarks of the suite core."},
      {"tiermem bench core --only promote --dir /data --json core.json",
       "Measure reads from /data, and keep the figures."}};
  command->callback([arguments, &exit] { exit = run(*arguments); });

  // preload_small starts it with a malloc under it. It is not for users, so it is hidden.
  auto threads = std::make_shared<unsigned>(1);
  Command* mix = add_command(program, "bench-malloc", "Run a mix of malloc and free");
  mix->group("");
  mix->add_option("threads", *threads, "Threads.")->type_name("N")->check(whole_number(1, 64));
  mix->callback([threads, &exit] {
    const double rate = bench::malloc_mix(*threads);
    Dl_info info{};
    const bool known = dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) != 0;
    fmt::print("{} {}\n", rate, known ? info.dli_fname : "?");
    exit = rate > 0 ? kDone : kFailed;
  });
}

}  // namespace tiermem::cli
