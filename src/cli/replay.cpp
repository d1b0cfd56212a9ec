// tiermem replay: a recorded trace through a real context, beside what other policies would have
// done with the same memory.
#include "policy/replay.hpp"

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
#include "cli/read_file.hpp"
#include "cli/replay_run.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"
#include "policy/rivals/min.hpp"
#include "policy/rivals/rival.hpp"
#include "policy/trace.hpp"
#include "runtime/options.hpp"
#include "tier/tier.hpp"

namespace tiermem::cli {
namespace {

constexpr std::uint64_t kDefaultBlock = 64 << 10;

struct Arguments {
  std::string trace;
  std::string dram;
  std::string nvme;
  std::vector<std::string> options;
  std::string block_bytes;
  std::string most = "4G";
  std::string policy = "all";
  std::string json;
  std::uint64_t limit = 0;
  unsigned writes = 0;
};

/// What a policy without a memory would have hit.
struct Column {
  std::string name;
  std::uint64_t hits = 0;
};

/// Everything that the arguments and the trace settle before anything runs.
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
    return fail(Code::invalid_argument, "{}: '{:.60}' is no size; write 64K or 1.5G", name, text);
  }
  return size;
}

/// The first `limit` references, and the blocks they name.
void cut(Trace& trace, std::uint64_t limit) {
  if (limit == 0 || limit >= trace.references.size()) {
    return;
  }
  trace.references.resize(limit);
  std::uint32_t blocks = 0;  // Numbered in the order of first mention.
  for (const Reference& reference : trace.references) {
    blocks = std::max(blocks, reference.block + 1);
  }
  trace.blocks = blocks;
}

/// The largest size of blocks with which all of them fit into `most`; 0: none does.
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
  return fail(Code::invalid_argument,
              "{} blocks of {} are {}, more than --most {}; {}lower --limit, or raise --most",
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
  auto bytes = read_compressed(arguments.trace);
  if (!bytes.ok()) {
    return std::move(bytes).status();
  }
  auto trace = parse_trace(arguments.trace, *bytes);
  if (!trace.ok()) {
    return std::move(trace).status();
  }
  out.trace = std::move(*trace);
  cut(out.trace, arguments.limit);
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
    return fail(Code::invalid_argument, "--block-bytes: {} is not a power of two from {} to {}",
                format_size(out.block_bytes), format_size(kSmallestExtent),
                format_size(kLargestExtent));
  }
  Status total = check_total(out, *most);
  if (!total.ok()) {
    return total;
  }
  out.spec = fmt::format("dram={}", out.dram);
  if (!arguments.nvme.empty()) {
    out.spec += "; nvme=" + arguments.nvme;
  }
  for (const std::string& option : arguments.options) {
    out.spec += "; " + option;
  }
  return out;
}

std::vector<Column> offline(const Prepared& prepared, const std::string& policy) {
  const auto wanted = [&](const char* name) { return policy == "all" || policy == name; };
  const auto& references = prepared.trace.references;
  const std::uint32_t blocks = prepared.trace.blocks;
  const ReplayOptions options{.capacity = prepared.capacity()};
  std::vector<Column> columns;
  if (wanted("recency")) {
    columns.push_back({"recency", replay_recency(references, blocks, options).hits});
  }
  for (const RivalKind& kind : rival_kinds()) {
    if (wanted(kind.name)) {
      columns.push_back({kind.name, rival_hits(kind, references, blocks, options.capacity)});
    }
  }
  if (wanted("min")) {
    columns.push_back({"min", min_hits(references, blocks, options.capacity)});
  }
  return columns;
}

/// What --policy takes.
std::vector<std::string> policy_names() {
  std::vector<std::string> names = {"all", "recency"};
  for (const RivalKind& kind : rival_kinds()) {
    names.emplace_back(kind.name);
  }
  names.emplace_back("min");
  return names;
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
  print_text(
      fmt::format("{}: {} references to {} blocks of {}, {} in all; DRAM holds {} ({:.1f} %)",
                  trace.name, run.references, trace.blocks, format_size(prepared.block_bytes),
                  human_bytes(trace.blocks * prepared.block_bytes), prepared.capacity(),
                  100 * ratio(prepared.capacity(), trace.blocks)));
  fmt::print("\n");
  Table hits({{"POLICY"}, {"HIT RATIO", Table::Align::right}, {""}});
  hits.add({"tiermem", fmt::format("{:.2f} %", 100 * run.hit_ratio()), "this run"});
  for (const Column& column : columns) {
    hits.add({column.name, fmt::format("{:.2f} %", 100 * ratio(column.hits, run.references)),
              column.name == "min"       ? "computed; knows the future: no policy hits more"
              : column.name == "recency" ? "computed; tiermem's policy by itself"
                                         : "computed"});
  }
  hits.print();
  fmt::print("\n");

  const Stats& stats = run.stats;
  Table table({{""}, {"", Table::Align::right}, {""}});
  table.add({"time", human_time(run.seconds),
             fmt::format("{} references/s",
                         human_count(static_cast<double>(run.references) / run.seconds))});
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
  table.add({"mover p99", human_time(seconds(stats.step_ns_p99)),
             fmt::format("a step, of {}", human_count(static_cast<double>(stats.steps)))});
  table.add({"wrong blocks", std::to_string(run.wrong),
             fmt::format("of {} checked",
                         run.references - std::min<std::uint64_t>(run.references, trace.blocks))});
  table.print();
}

nlohmann::ordered_json outcome_json(const Prepared& prepared, const ReplayOutcome& run,
                                    const std::vector<Column>& columns) {
  nlohmann::ordered_json ratios = {{"tiermem", run.hit_ratio()}};
  for (const Column& column : columns) {
    ratios[column.name] = ratio(column.hits, run.references);
  }
  return {{"trace", prepared.trace.name},
          {"references", run.references},
          {"blocks", prepared.trace.blocks},
          {"block_bytes", prepared.block_bytes},
          {"dram_bytes", prepared.dram},
          {"capacity_blocks", prepared.capacity()},
          {"tiers", prepared.spec},
          {"hit_ratio", ratios},
          {"misses", run.stats.misses},
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
          {"steps", run.stats.steps},
          {"step_p99_s", seconds(run.stats.step_ns_p99)},
          {"io_errors", run.stats.io_errors},
          {"checksum_errors", run.stats.checksum_errors},
          {"wrong_blocks", run.wrong}};
}

int run(const Arguments& arguments) {
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
                                   .write_percent = arguments.writes},
                                  [&](std::uint64_t done) { progress->at(done); });
  progress->step("other policies", trace.references.size());
  const std::vector<Column> columns = offline(*prepared, arguments.policy);
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
    return complain(kFailed, fmt::format("{} accesses found wrong bytes, first at reference {}, "
                                         "block {}",
                                         outcome->wrong, outcome->first_wrong_reference,
                                         outcome->first_wrong_block));
  }
  return kDone;
}

}  // namespace

void add_replay(CLI::App& program, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand(
      "replay", "Run a recorded trace through tiermem, every byte checked, beside other policies");
  command
      ->add_option("trace", arguments->trace,
                   "A .lis, .trace, .jsonl or .ttrace file; .gz and .zst are unpacked")
      ->required();
  command->add_option("--dram", arguments->dram, "Budget of DRAM, as 256M")->required();
  command->add_option("--nvme", arguments->nvme,
                      "Block tier, as /data:10G; default: what the environment or the machine "
                      "offers");
  command->add_option("--set", arguments->options,
                      "Another option, as depth=32; may be repeated (tiermem topo --options)");
  command->add_option("--block-bytes", arguments->block_bytes,
                      "Size of a block; default: the trace's, else 64K");
  command->add_option("--policy", arguments->policy, "Offline policies to compute beside")
      ->check(CLI::IsMember(policy_names()))
      ->capture_default_str();
  command
      ->add_option("--writes", arguments->writes,
                   "Per cent of the trace's reads that also write; most formats tell no writes")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  command->add_option("--limit", arguments->limit, "Only the first so many references")
      ->check(CLI::PositiveNumber);
  command->add_option("--most", arguments->most, "Refuse traces whose blocks are more bytes in all")
      ->capture_default_str();
  command->add_option("--json", arguments->json, "Write JSON to this file; - for stdout, alone");
  command->footer(fmt::format(
      "Example:\n  tiermem replay loop.trace.gz --dram 32M --nvme /data:1G\n\n{}", kExitCodes));
  command->callback([arguments, &exit] { exit = run(*arguments); });
}

}  // namespace tiermem::cli
