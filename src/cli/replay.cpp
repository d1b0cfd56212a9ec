// tiermem replay: runs a recorded trace through a real context, and shows what other policies would
// have done with the same memory.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/json_file.hpp"
#include "cli/option_facts.hpp"
#include "cli/policy_table.hpp"
#include "cli/replay_offline.hpp"
#include "cli/replay_run.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "policy/trace.hpp"
#include "runtime/config.hpp"
#include "runtime/options.hpp"
#include "tier/frame.hpp"

namespace tiermem::cli {
namespace {

constexpr std::uint64_t kDefaultBlock = 64 << 10;

struct Arguments {
  std::vector<std::string> traces;
  std::string dram;
  std::string nvme;
  std::vector<std::string> options;
  std::string block_bytes;
  std::string most = "4G";
  std::vector<std::string> policies = {"all"};
  std::string json;
  std::uint64_t limit = 0;
  unsigned writes = 0;
  unsigned ahead = 0;
  bool offline = false;
  std::vector<double> shares = {5, 10, 20, 50};
  unsigned repeat = 0;
  std::string session_end;
  std::string plot;
};

/// The hits of a policy that is only computed.
struct Column {
  std::string name;
  std::uint64_t hits = 0;
};

/// All values that the arguments and the trace determine before the run.
struct Prepared {
  Trace trace;
  std::uint64_t dram = 0;
  std::uint64_t block_bytes = 0;
  std::string spec;
  std::uint32_t capacity() const {
    return static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(dram / block_bytes, 1, std::max(trace.blocks, 1U)));
  }
};

Result<std::uint64_t> size_argument(const char* name, const std::string& text) {
  auto size = parse_size(text);
  if (!size.ok()) {
    return fail(Code::invalid_argument, "replay: {}: {}", name, size.message());
  }
  return size;
}

/// The largest block size with which all blocks fit into `most` bytes; 0: none.
std::uint64_t fitting_block(std::uint64_t blocks, std::uint64_t most) {
  const std::uint64_t size = std::bit_floor(most / blocks);
  return size >= kSmallestExtent ? size : 0;
}

Status check_total(const Prepared& prepared, std::uint64_t most) {
  const std::uint64_t blocks = prepared.trace.blocks;
  if (blocks <= most / prepared.block_bytes) {
    return {};
  }
  const std::uint64_t fits = fitting_block(blocks, most);
  return fail(
      Code::invalid_argument,
      "replay: {} blocks of {} are {}, more than --most {}; {}lower --limit, or raise --most",
      blocks, format_size(prepared.block_bytes), human_bytes(blocks * prepared.block_bytes),
      format_size(most),
      fits == 0 ? "" : fmt::format("use --block-bytes {}, or ", format_size(fits)));
}

Result<Prepared> prepare(const Arguments& arguments) {
  Prepared out;
  const auto dram = size_argument("--dram", arguments.dram);
  const auto most = size_argument("--most", arguments.most);
  if (!dram.ok() || !most.ok()) {
    return (dram.ok() ? most : dram).status().clone();
  }
  out.dram = *dram;
  auto trace = load_trace(arguments.traces.front(), arguments.limit);
  if (!trace.ok()) {
    return std::move(trace).status();
  }
  out.trace = std::move(*trace);
  out.block_bytes = out.trace.block_bytes_hint != 0 ? out.trace.block_bytes_hint : kDefaultBlock;
  if (!arguments.block_bytes.empty()) {
    const auto block = size_argument("--block-bytes", arguments.block_bytes);
    if (!block.ok()) {
      return block.status().clone();
    }
    out.block_bytes = *block;
  }
  if (!std::has_single_bit(out.block_bytes) || out.block_bytes < kSmallestExtent ||
      out.block_bytes > kLargestExtent) {
    return fail(Code::invalid_argument,
                "replay: --block-bytes {}; accepted are powers of two from {} to {}",
                format_size(out.block_bytes), format_size(kSmallestExtent),
                format_size(kLargestExtent));
  }
  Status total = check_total(out, *most);
  if (!total.ok()) {
    return total;
  }
  std::vector<Spec> specs = {{fmt::format("dram={}", out.dram), "--dram"}};
  if (!arguments.nvme.empty()) {
    specs.push_back({"nvme=" + arguments.nvme, "--nvme"});
  }
  for (const std::string& option : arguments.options) {
    specs.push_back({option, "--set"});
  }
  out.spec = fmt::format("dram={}", out.dram);
  for (std::size_t i = 1; i < specs.size(); ++i) {
    out.spec += "; " + specs[i].text;
  }
  // The context reads one text. Checking here lets the error name the option that was typed.
  const auto config = load_config(specs, nullptr, process_environment(), probe_host_facts());
  return config.ok() ? Result<Prepared>(std::move(out)) : config.status().clone();
}

std::vector<std::string> wanted_policies(const Arguments& arguments) {
  std::vector<std::string> names = policy_names();
  const auto& asked = arguments.policies;
  if (std::find(asked.begin(), asked.end(), "all") == asked.end()) {
    std::erase_if(names, [&](const std::string& name) {
      return std::find(asked.begin(), asked.end(), name) == asked.end();
    });
  }
  return names;
}

std::vector<Column> computed(const Prepared& prepared, const std::vector<std::string>& policies) {
  std::vector<Column> columns;
  for (const std::string& policy : policies) {
    columns.push_back({policy, policy_hits(policy, prepared.trace.references, prepared.trace.blocks,
                                           {.capacity = prepared.capacity()})});
  }
  return columns;
}

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double seconds(std::uint64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

void print_outcome(const Prepared& prepared, const ReplayOutcome& run,
                   const std::vector<Column>& columns) {
  const Trace& trace = prepared.trace;
  print_text(fmt::format(
      "{}: {} references to {} blocks of {}, {} in all; DRAM holds {} ({:.1f} %)", trace.name,
      run.counts.references(), trace.blocks, format_size(prepared.block_bytes),
      human_bytes(trace.blocks * prepared.block_bytes), prepared.capacity(),
      100 * ratio(prepared.capacity(), trace.blocks)));
  fmt::print("\n");
  Table hits({{"POLICY"}, {"HIT RATIO", Table::Align::right}, {""}});
  hits.add({"tiermem", fmt::format("{:.2f} %", 100 * run.hit_ratio()), "this run"});
  for (const Column& column : columns) {
    hits.add({column.name,
              fmt::format("{:.2f} %", 100 * ratio(column.hits, run.counts.references())),
              column.name == "min"       ? "computed; knows the future: no policy hits more"
              : column.name == "recency" ? "computed; tiermem's policy by itself"
              : column.name == kHidden   ? "computed; the same, if it sees only misses"
                                         : "computed"});
  }
  hits.print();
  fmt::print("\n");

  const ReplayCounts& counts = run.counts;
  const auto of_all = [&](std::uint64_t part) {
    return fmt::format("{:.2f} %", 100 * ratio(part, counts.references()));
  };
  Table parts({{"REFERENCES"}, {"", Table::Align::right}, {"OF ALL", Table::Align::right}, {""}});
  parts.add({"hits", std::to_string(counts.hits), of_all(counts.hits), "in memory since the last"});
  parts.add({"first uses", std::to_string(counts.first_uses), of_all(counts.first_uses),
             "a miss under every policy"});
  parts.add({"waited", std::to_string(counts.waited), of_all(counts.waited)});
  if (counts.prefetched != 0) {
    parts.add({"prefetched", std::to_string(counts.prefetched), of_all(counts.prefetched),
               "read again, but without a wait: no hits"});
  }
  parts.print();
  fmt::print("\n");

  const Stats& stats = run.stats;
  Table table({{""}, {"", Table::Align::right}, {""}});
  table.add({"time", human_time(run.seconds),
             fmt::format("{} references/s",
                         human_count(static_cast<double>(run.counts.references()) / run.seconds))});
  table.add({"stalled", human_time(seconds(run.acquire.sum())),
             fmt::format("in acquire, {:.1f} % of the time",
                         100 * seconds(run.acquire.sum()) / run.seconds)});
  table.add({"acquire p50", human_time(seconds(run.acquire.percentile(0.5)))});
  table.add({"acquire p99", human_time(seconds(run.acquire.percentile(0.99)))});
  table.add({"acquire p99.9", human_time(seconds(run.acquire.percentile(0.999))),
             fmt::format("worst {}", human_time(seconds(run.acquire.worst())))});
  table.add({"read", human_bytes(run.read_bytes()),
             human_rate(static_cast<double>(run.read_bytes()) / run.seconds)});
  table.add({"written", human_bytes(stats.demoted),
             human_rate(static_cast<double>(stats.demoted) / run.seconds)});
  table.add({"evicted clean", human_bytes(stats.evicted_clean)});
  table.add({"demanded", human_bytes(stats.demanded), "asked for and not there"});
  if (stats.prefetched != 0) {
    table.add({"prefetched", human_bytes(stats.prefetched),
               fmt::format("{:.1f} % of it dropped unused",
                           100 * ratio(stats.prefetched_unused, stats.prefetched))});
  }
  if (run.needed_bytes() != 0) {
    table.add({"moved", human_bytes(run.moved_bytes()),
               fmt::format("{:.2f} bytes, in and out, for each that was needed",
                           ratio(run.moved_bytes(), run.needed_bytes()))});
  }
  table.add({"mover p99", human_time(seconds(stats.step_ns_p99)),
             fmt::format("a step, of {}", human_count(static_cast<double>(stats.steps)))});
  table.add({"wrong blocks", std::to_string(run.wrong),
             fmt::format("of {} checked",
                         run.counts.references() -
                             std::min<std::uint64_t>(run.counts.references(), trace.blocks))});
  table.print();
}

nlohmann::ordered_json outcome_json(const Prepared& prepared, const ReplayOutcome& run,
                                    const std::vector<Column>& columns) {
  nlohmann::ordered_json ratios = {{"tiermem", run.hit_ratio()}};
  for (const Column& column : columns) {
    ratios[column.name] = ratio(column.hits, run.counts.references());
  }
  return {{"trace", prepared.trace.name},
          {"references", run.counts.references()},
          {"blocks", prepared.trace.blocks},
          {"block_bytes", prepared.block_bytes},
          {"dram_bytes", prepared.dram},
          {"capacity_blocks", prepared.capacity()},
          {"tiers", prepared.spec},
          {"hit_ratio", ratios},
          {"hits", run.counts.hits},
          {"first_uses", run.counts.first_uses},
          {"waited", run.counts.waited},
          {"prefetched", run.counts.prefetched},
          {"misses", run.counts.misses()},
          {"writes", run.writes},
          {"seconds", run.seconds},
          {"acquire_seconds", seconds(run.acquire.sum())},
          {"acquire_p50_s", seconds(run.acquire.percentile(0.5))},
          {"acquire_p99_s", seconds(run.acquire.percentile(0.99))},
          {"acquire_p999_s", seconds(run.acquire.percentile(0.999))},
          {"acquire_worst_s", seconds(run.acquire.worst())},
          {"read_bytes", run.read_bytes()},
          {"written_bytes", run.stats.demoted},
          {"evicted_clean_bytes", run.stats.evicted_clean},
          {"host_bytes_in", run.stats.host_bytes_in},
          {"host_bytes_out", run.stats.host_bytes_out},
          {"demanded_bytes", run.stats.demanded},
          {"prefetched_bytes", run.stats.prefetched},
          {"prefetched_unused_bytes", run.stats.prefetched_unused},
          {"moved_per_needed", ratio(run.moved_bytes(), run.needed_bytes())},
          {"steps", run.stats.steps},
          {"step_p99_s", seconds(run.stats.step_ns_p99)},
          {"io_errors", run.stats.io_errors},
          {"checksum_errors", run.stats.checksum_errors},
          {"wrong_blocks", run.wrong}};
}

int compute(const Arguments& arguments) {
  OfflineArguments offline{.traces = arguments.traces,
                           .limit = arguments.limit,
                           .table = {.shares = arguments.shares,
                                     .policies = wanted_policies(arguments),
                                     .repeat = arguments.repeat},
                           .json = arguments.json,
                           .plot = arguments.plot};
  if (!arguments.session_end.empty()) {
    offline.table.at_session_end =
        arguments.session_end == "cold" ? Advice::cold : Advice::dont_need;
  }
  return run_offline(offline);
}

int run(const Arguments& arguments) {
  if (arguments.offline) {
    return compute(arguments);
  }
  if (arguments.dram.empty() || arguments.traces.size() > 1) {
    return complain(
        kUsage,
        arguments.dram.empty()
            ? "replay: name the budget of memory, such as --dram 256M, or "
              "compute only, with --offline; see tiermem replay --help"
            : fmt::format("replay: '{:.60}' is a second trace; name one trace, or add --offline",
                          arguments.traces[1]));
  }
  if (const Status can = check_json_output("replay: --json", arguments.json); !can.ok()) {
    return complain(can);
  }
  auto prepared = prepare(arguments);
  if (!prepared.ok()) {
    return complain(prepared.status());
  }
  auto context = Context::create(prepared->spec);
  if (!context.ok()) {
    return complain(context.status());
  }
  const Trace& trace = prepared->trace;
  std::optional<Progress> progress(std::in_place, "replay " + trace.name, trace.references.size(),
                                   "references");
  const auto outcome = run_replay(**context,
                                  {.references = trace.references,
                                   .blocks = trace.blocks,
                                   .block_bytes = prepared->block_bytes,
                                   .write_percent = arguments.writes,
                                   .ahead = arguments.ahead},
                                  [&](std::uint64_t done) { progress->at(done); });
  progress->step("other policies", trace.references.size());
  const std::vector<Column> columns = computed(*prepared, wanted_policies(arguments));
  progress.reset();
  if (!outcome.ok()) {
    complain(outcome.status());
    return exit_code(outcome.status()) == kCannot ? kCannot : kFailed;
  }
  if (!arguments.json.empty()) {
    Status written = write_json(arguments.json, outcome_json(*prepared, *outcome, columns));
    if (!written.ok()) {
      return complain(written);
    }
  }
  if (arguments.json != "-") {
    print_outcome(*prepared, *outcome, columns);
  }
  if (outcome->wrong != 0) {
    return complain(
        kFailed,
        fmt::format(
            "replay: {} accesses found wrong bytes, first at reference {}, block {}; report it",
            outcome->wrong, outcome->first_wrong_reference, outcome->first_wrong_block));
  }
  return kDone;
}

}  // namespace

void add_replay(CLI::App& program, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  Command* command = add_command(
      program, "replay", "Run a recorded trace on real memory and disk, beside other policies");
  command
      ->add_option("trace", arguments->traces,
                   "A .lis, .trace, .jsonl or .ttrace file; .gz and .zst are unpacked. Several "
                   "with --offline.")
      ->type_name(kFile)
      ->required();
  CLI::Option* dram =
      command->add_option("--dram", arguments->dram, "Budget of DRAM, such as 256M.")
          ->type_name("SIZE")
          ->check(size_in_bytes());
  command
      ->add_option("--nvme", arguments->nvme,
                   "Directory or raw device of the block tier, with its cap: /data:10G.")
      ->type_name(kPath)
      ->default_str("what the environment or the machine offers");
  command
      ->add_option("--set", arguments->options,
                   "Another option of the library, such as depth=32. May be repeated. tiermem topo "
                   "--options lists them.")
      ->type_name("OPTION")
      ->allow_extra_args(false);
  command->add_option("--block-bytes", arguments->block_bytes, "Size of a block.")
      ->type_name("SIZE")
      ->check(size_in_bytes())
      ->default_str("that of the trace, or 64K");
  std::vector<std::string> names = policy_names();
  names.insert(names.begin(), "all");
  command->add_option("--policy", arguments->policies, "Policies to compute, separated by commas.")
      ->type_name("NAME")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of(names))
      ->capture_default_str();
  command
      ->add_option("--writes", arguments->writes,
                   "Percentage of the reads that also write. Most formats record no writes.")
      ->type_name("PERCENT")
      ->check(whole_number(0, 100))
      ->capture_default_str();
  command->add_option("--limit", arguments->limit, "Use only the first N references.")
      ->type_name("N")
      ->check(positive_number())
      ->default_str("all");
  command
      ->add_option("--most", arguments->most,
                   "Refuse a trace if its blocks have more bytes in total.")
      ->type_name("SIZE")
      ->check(size_in_bytes())
      ->capture_default_str();
  add_json(*command, arguments->json);
  CLI::Option* offline =
      command
          ->add_flag("--offline", arguments->offline,
                     "Compute only: the misses of each policy at several sizes of memory.")
          ->excludes(dram);
  command
      ->add_option("--ahead", arguments->ahead,
                   "Prefetch the block that is referenced N references later, as a program does if "
                   "it knows its next blocks. 0: do not prefetch.")
      ->type_name("N")
      ->check(whole_number(0, 100000))
      ->capture_default_str()
      ->excludes(offline);
  command
      ->add_option("--shares", arguments->shares,
                   "Sizes of memory in percent of the blocks of the trace, separated by commas.")
      ->type_name("PERCENT")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(real_number(0.001, 100))
      ->capture_default_str()
      ->needs(offline);
  command->add_option("--repeat", arguments->repeat, "Replay the trace N times.")
      ->type_name("N")
      ->check(whole_number(1, 1000))
      ->default_str("2 for a .ttrace, which is one step of many, else 1")
      ->needs(offline);
  command
      ->add_option("--session-end", arguments->session_end,
                   "For a .jsonl: the hint that tiermem gets about the blocks of a session that "
                   "has ended.")
      ->type_name("HINT")
      ->check(one_of({"cold", "dont_need"}))
      ->default_str("no hint")
      ->needs(offline);
  command
      ->add_option("--plot", arguments->plot,
                   "Draw the curves into FILE, as SVG or PNG by its ending; - for SVG to standard "
                   "output.")
      ->type_name(kFile)
      ->needs(offline);
  command->manual.description = {
      "Runs each reference of the trace through a context with the given budget, and checks every "
      "block that comes back. Shows the hit ratio beside those of other policies, computed for "
      "the same trace and memory, and of MIN, which knows the future.",
      "With --offline nothing is run. The misses of all policies are computed for several sizes of "
      "memory, for one trace or for many."};
  command->manual.variables = {"TIERMEM_TIERS", "TIERMEM_CONFIG", "TIERMEM_DIR", "NO_COLOR"};
  command->manual.examples = {
      {"tiermem replay loop.trace.gz --dram 32M --nvme /data:1G", "Run a trace in 32 MiB of DRAM."},
      {"tiermem replay *.trace.gz --offline --plot curves.svg",
       "Compare the policies on several traces."}};
  command->callback([arguments, &exit] { exit = run(*arguments); });
}

}  // namespace tiermem::cli
