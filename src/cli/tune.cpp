// tiermem tune: measures for some seconds what suits each device best, shows it, and keeps it for
// future contexts.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/heat_map.hpp"
#include "cli/json_file.hpp"
#include "cli/option_facts.hpp"
#include "cli/picture.hpp"
#include "cli/table.hpp"
#include "cli/terminal.hpp"
#include "cli/tune_sweep.hpp"
#include "cli/values.hpp"
#include "os/host_facts.hpp"
#include "runtime/fit.hpp"
#include "runtime/options.hpp"
#include "runtime/tuning.hpp"

namespace tiermem::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kGB = 1e9;

struct Arguments {
  std::vector<std::string> paths;
  double seconds = 20;
  std::string json;
  std::string plot;
  bool no_keep = false;
};

/// One device, measured or not.
struct Line {
  BlockDevice device;
  DeviceId id;
  TuneReport report;
  Tuning tuning;
  std::string error;
  std::string not_kept;  ///< Why the result is not in the cache.
};

/// `paths`, with the options of the environment; without paths: the devices that a context would
/// use.
Result<Config> configuration(const std::vector<std::string>& paths, const HostFacts& host) {
  auto config =
      load_fitting_config(paths.empty() ? "tuned=off" : "tuned=off; nvme=off", nullptr, host);
  if (config.ok()) {
    tell(LogLevel::warn, config->warnings);
    // The file system is measured, so no directory is created for it.
    for (BlockDevice& device : config->block) {
      device.path = existing_part(device.path);
    }
  }
  if (config.ok() && !paths.empty()) {
    config->block.clear();
    for (const std::string& path : paths) {
      config->block.push_back({path, 0});
    }
  }
  return config;
}

HeatMap map_of(const TuneReport& report, TuneEngine engine, bool write) {
  HeatMap map{fmt::format("{} with {}, GB/s", write ? "writing" : "reading", engine_name(engine)),
              engine == TuneEngine::io_uring ? "size \\ depth" : "size \\ threads",
              {},
              {}};
  for (const unsigned depth : kTuneDepths) {
    const bool measured = std::any_of(
        report.map.begin(), report.map.end(),
        [&](const TunePoint& point) { return point.engine == engine && point.depth == depth; });
    if (measured) {
      map.columns.push_back(std::to_string(depth));
    }
  }
  for (const std::uint64_t block : kTuneBlocks) {
    HeatMap::Row row{human_bytes(block), {}};
    for (std::size_t c = 0; c < map.columns.size(); ++c) {
      const TunePoint* point = find_point(report.map, engine, write, block, kTuneDepths[c]);
      row.values.push_back(point != nullptr ? point->rate : 0);
    }
    map.rows.push_back(std::move(row));
  }
  return map;
}

std::vector<HeatMap> all_maps(const TuneReport& report) {
  std::vector<HeatMap> maps;
  for (const TuneEngine engine : {TuneEngine::io_uring, TuneEngine::threads}) {
    for (const bool write : {false, true}) {
      HeatMap map = map_of(report, engine, write);
      if (!map.columns.empty() && (!write || !report.raw)) {
        maps.push_back(std::move(map));
      }
    }
  }
  return maps;
}

std::string pair_text(const TunePair& pair) {
  return fmt::format("depth {}, piece {}", pair.depth, format_size(pair.piece));
}

/// The result as a sentence.
std::string verdict(const TuneReport& report) {
  if (!report.no_ring.empty()) {
    return fmt::format("{} as without tuning: io_uring is unavailable ({})",
                       pair_text(report.chosen), report.no_ring);
  }
  if (report.chosen == report.best) {
    return report.duel.read[0].empty()
               ? fmt::format("{}, the same as without tuning", pair_text(report.chosen))
               : fmt::format("{}: faster than without tuning, when measured alternately",
                             pair_text(report.chosen));
  }
  return fmt::format(
      "{} as without tuning: {} was best in the map, but not faster when measured alternately",
      pair_text(report.chosen), pair_text(report.best));
}

void print(const Line& line) {
  if (!line.error.empty()) {
    return;  // Already reported on stderr.
  }
  print_title(
      fmt::format("{}{}", line.device.path, line.id.model.empty() ? "" : ", " + line.id.model));
  const TuneReport& report = line.report;
  const TuneEngine engine = engine_of(report.map);
  for (const bool write : {false, true}) {
    if (!write || !report.raw) {
      fmt::print("{}", heat_map_text(map_of(report, engine, write), kGB, stdout_has_colours()));
    }
  }
  print_title(fmt::format("Other ways, {} at a time, {} at once", human_bytes(report.best.piece),
                          report.best.depth));
  Table table({{"ENGINE"},
               {"BUFFERS"},
               {"I/O"},
               {"READ", Table::Align::right},
               {"WRITE", Table::Align::right},
               {""}});
  for (const TunePoint& read : report.rest) {
    if (read.write) {
      continue;
    }
    const auto write =
        std::find_if(report.rest.begin(), report.rest.end(), [&](const TunePoint& other) {
          return other.write && other.engine == read.engine && other.memory == read.memory &&
                 other.direct == read.direct;
        });
    const auto shown = [](const TunePoint& point) {
      return point.rate > 0 ? human_rate(point.rate) : "-";
    };
    table.add({engine_name(read.engine), memory_name(read.memory),
               read.direct ? "direct" : "buffered", shown(read),
               write != report.rest.end() ? shown(*write) : "-", read.reason});
  }
  table.print();
  print_text(fmt::format("Chosen: {}.", verdict(report)));
  if (report.gap != 0) {
    print_text(fmt::format("Reading up to {} too much costs less than another request.",
                           human_bytes(report.gap)));
  }
  if (!line.not_kept.empty()) {
    print_text("Not kept: " + line.not_kept);
  }
}

Json to_json(const TunePoint& point) {
  return {{"block_bytes", point.block},
          {"depth", point.depth},
          {"engine", engine_name(point.engine)},
          {"buffers", memory_name(point.memory)},
          {"direct", point.direct},
          {"write", point.write},
          {"bytes_per_s", point.rate > 0 ? Json(point.rate) : Json(nullptr)},
          {"latency_s", point.rate > 0 ? Json(point.latency()) : Json(nullptr)},
          {"reason", point.reason.empty() ? Json(nullptr) : Json(point.reason)}};
}

Json to_json(const TunePair& pair) {
  return {{"depth", pair.depth}, {"piece_bytes", pair.piece}};
}

Json to_json(const Line& line) {
  Json out = {{"path", line.device.path},
              {"device", line.id.key},
              {"model", line.id.model},
              {"error", line.error.empty() ? Json(nullptr) : Json(line.error)}};
  if (!line.error.empty()) {
    return out;
  }
  const TuneReport& report = line.report;
  out["raw"] = report.raw;
  out["direct"] = report.facts.direct;
  out["slice_bytes"] = report.slice;
  out["seconds"] = report.seconds;
  out["no_io_uring"] = report.no_ring.empty() ? Json(nullptr) : Json(report.no_ring);
  out["chosen"] = to_json(report.chosen);
  out["best_of_map"] = to_json(report.best);
  out["verdict"] = verdict(report);
  out["gap_bytes"] = report.gap;
  out["duel"] = {{"read_usual", report.duel.read[0]},
                 {"read_best", report.duel.read[1]},
                 {"write_usual", report.duel.write[0]},
                 {"write_best", report.duel.write[1]}};
  out["kept"] = line.not_kept.empty();
  out["not_kept"] = line.not_kept.empty() ? Json(nullptr) : Json(line.not_kept);
  for (const auto& [name, points] : {std::pair{"map", &report.map}, {"rest", &report.rest}}) {
    out[name] = Json::array();
    for (const TunePoint& point : *points) {
      out[name].push_back(to_json(point));
    }
  }
  return out;
}

/// Bytes per second for the pair. If it was not measured, for lack of time or memory, the best rate
/// measured with fewer bytes at once. 0: not measured.
double rate_at(std::span<const TunePoint> map, const TunePair& pair, bool write) {
  const unsigned depth = std::min(pair.depth, kTuneDepths.back());
  const TunePoint* const point = find_point(map, engine_of(map), write, pair.piece, depth);
  double best = point != nullptr ? point->rate : 0;
  for (const TunePoint& other : map) {
    const bool less = other.engine == engine_of(map) && other.write == write &&
                      other.block <= pair.piece && other.depth <= depth;
    best = less && (point == nullptr || point->rate <= 0) ? std::max(best, other.rate) : best;
  }
  return best;
}

Line measure(const BlockDevice& device, const Config& config, const Arguments& arguments,
             const HostFacts& host) {
  Line line;
  line.device = device;
  const auto id = identify_device(device.path);
  if (!id.ok()) {
    line.error = id.message();
    return line;
  }
  line.id = *id;
  Progress progress("tuning " + device.path, 1000, "");
  auto report = tune_device(device, config, arguments.seconds,
                            [&](const std::string& what, std::uint64_t done) {
                              progress.step("tuning " + device.path + ": " + what, done);
                            });
  if (!report.ok()) {
    line.error = report.message();
    return line;
  }
  line.report = std::move(*report);
  const auto rate = [&](bool write) {
    return static_cast<std::uint64_t>(rate_at(line.report.map, line.report.chosen, write));
  };
  line.tuning = {line.id.key,
                 host.kernel.value,
                 std::time(nullptr),
                 line.report.chosen.depth,
                 line.report.chosen.piece,
                 line.report.gap,
                 rate(false),
                 rate(true)};
  const Status kept =
      arguments.no_keep ? Status()
      : look_at_path(device.path).in_memory
          ? fail(Code::unavailable,
                 "{} is in memory (tmpfs), not on a device; name a directory on a device",
                 device.path)
      : line.tuning.read_rate == 0 || (line.tuning.write_rate == 0 && !line.report.raw)
          ? fail(Code::unavailable,
                 "tune: no rate was measured for the choice; give it more --seconds")
          : keep_tuning(cache_directory(process_environment()), line.tuning);
  line.not_kept = arguments.no_keep ? "--no-keep" : kept.ok() ? "" : kept.message();
  return line;
}

int run(const Arguments& arguments) {
  if (const Status can = check_outputs("tune", arguments.json, arguments.plot); !can.ok()) {
    return complain(can);
  }
  const HostFacts host = probe_host_facts();
  const auto config = configuration(arguments.paths, host);
  if (!config.ok()) {
    return complain(config.status());
  }
  if (config->block.empty()) {
    return complain(kCannot, "tune: there is no block tier here; name a directory or a device");
  }
  std::vector<Line> lines;
  for (const BlockDevice& device : config->block) {
    lines.push_back(measure(device, *config, arguments, host));
  }
  Status written;
  if (!arguments.json.empty()) {
    Json out = {{"kernel", host.kernel.value}, {"devices", Json::array()}};
    for (const Line& line : lines) {
      out["devices"].push_back(to_json(line));
    }
    written = write_json(arguments.json, out);
  }
  if (written.ok() && !arguments.plot.empty()) {
    std::vector<HeatMap> maps;
    for (const Line& line : lines) {
      for (HeatMap& map : all_maps(line.report)) {
        map.title = lines.size() > 1 ? line.device.path + ": " + map.title : map.title;
        maps.push_back(std::move(map));
      }
    }
    const std::string& model = lines.front().id.model;
    written = write_picture(arguments.plot,
                            draw_heat_maps(maps, kGB,
                                           lines.size() > 1 || model.empty()
                                               ? "Rates by size and depth, GB/s"
                                               : model + ": rates by size and depth, GB/s"));
  }
  if (!written.ok()) {
    return complain(written);
  }
  if (arguments.json != "-" && arguments.plot != "-") {
    for (const Line& line : lines) {
      print(line);
    }
  }
  int exit = kDone;
  for (const Line& line : lines) {
    if (!line.error.empty()) {
      const bool named = line.error.starts_with(line.device.path);
      exit = complain(kCannot, fmt::format("tune: cannot measure {}{}",
                                           named ? "" : line.device.path + ": ", line.error));
    }
  }
  return exit;
}

}  // namespace

void add_tune(CLI::App& program, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  Command* command =
      add_command(program, "tune", "Measure what each device does best, and keep it for programs");
  command
      ->add_option("path", arguments->paths,
                   "Directories, or block devices, from which tiermem only reads.")
      ->type_name(kPath)
      ->default_str("the devices that a program would use");
  command->add_option("--seconds", arguments->seconds, "Time for each device, in seconds.")
      ->type_name("SECONDS")
      ->check(real_number(1, 600))
      ->capture_default_str();
  add_json(*command, arguments->json);
  command
      ->add_option("--plot", arguments->plot,
                   "Draw the maps into FILE, as SVG or PNG by its ending; - for SVG to standard "
                   "output.")
      ->type_name(kFile);
  command->add_flag("--no-keep", arguments->no_keep,
                    "Only show the result, and change nothing for programs.");
  command->manual.description = {
      "Measures reads and writes of 4 KiB to 64 MiB at several depths, with io_uring and with "
      "threads. The best depth and size of a piece become the defaults of every program on that "
      "device, for 90 days and the same kernel.",
      "Writes to a temporary file without a name, at most 512 MiB. Nothing is kept for a device "
      "that is memory (tmpfs, ramfs), nor where no rate was measured."};
  command->manual.variables = {"TIERMEM_TIERS",  "TIERMEM_CONFIG", "TIERMEM_DIR", "TIERMEM_TUNED",
                               "XDG_CACHE_HOME", "HOME",           "NO_COLOR"};
  command->manual.files = {{"$XDG_CACHE_HOME/tiermem/tuned, ~/.cache/tiermem/tuned",
                            "The results, a file for each device and kind of file system."}};
  command->manual.examples = {{"tiermem tune /data/scratch --plot maps.svg",
                               "Measure the disk of a directory, and draw the maps."}};
  command->callback([arguments, &exit] { exit = run(*arguments); });
}

}  // namespace tiermem::cli
