// The two forms of a report.
#include "report.hpp"

#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "failure.hpp"

namespace llm {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

template <typename... Values>
std::string line(const char* label, const char* format, Values... values) {
  char text[200];
  const int used = std::snprintf(text, sizeof(text), "  %-18s", label);
  std::snprintf(text + used, sizeof(text) - static_cast<std::size_t>(used), format, values...);
  return std::string(text) + "\n";
}

}  // namespace

double Report::model_share() const noexcept {
  if (passes == 0 || model_bytes == 0) {
    return 0;
  }
  const auto bytes = static_cast<double>((traffic ? traffic->bytes() : read_bytes));
  return bytes / static_cast<double>(passes) / static_cast<double>(model_bytes);
}

std::string Report::table() const {
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / kMiB; };
  std::string table;
  table +=
      line("weights", "%s; %s, %.1f MiB of f16", source.c_str(), model.c_str(), mib(model_bytes));
  table += line("compute", "%u threads, %s", threads, kernel.c_str());
  table +=
      line("prompt", "%zu tokens, first answer after %.2f s", prompt_ids.size(), prompt_seconds);
  table += line("speed", "%.2f tokens/s (%llu tokens in %.2f s)", tokens_per_second(),
                static_cast<unsigned long long>(passes), seconds);
  table += line("bytes per token", "%.2f of the model: %s", model_share(), verdict().data());
  table += line("waiting", "%.2f s in calls for bytes (%.0f %%); %llu major faults",
                waiting_seconds, seconds > 0 ? 100 * waiting_seconds / seconds : 0.0,
                static_cast<unsigned long long>(major_faults));
  if (traffic) {
    table += line("of these bytes", "%.1f MiB waited for, %.1f prefetched", mib(traffic->demanded),
                  mib(traffic->prefetched));
  }
  table += line("read from storage", "%.1f MiB by the kernel's count", mib(read_bytes));
  if (source == "tiermem") {
    table += line("peak memory", "%.1f MiB for weights; budget %.1f MiB", mib(peak_growth_bytes),
                  mib(budget_bytes));
  } else {
    table +=
        line("peak memory", "%.1f MiB for weights; no budget of its own", mib(peak_growth_bytes));
  }
  return table;
}

void Report::write_json(const std::string& path) const {
  nlohmann::ordered_json json = {
      {"source", source},
      {"model", model},
      {"kernel", kernel},
      {"threads", threads},
      {"model_bytes", model_bytes},
      {"budget_bytes", budget_bytes},
      {"prompt_ids", prompt_ids},
      {"tokens", tokens},
      {"text", text},
      {"prompt_seconds", prompt_seconds},
      {"passes", passes},
      {"seconds", seconds},
      {"tokens_per_second", tokens_per_second()},
      {"waiting_seconds", waiting_seconds},
      {"traffic", nullptr},
      {"read_bytes", read_bytes},
      {"model_share", model_share()},
      {"verdict", verdict()},
      {"major_faults", major_faults},
      {"peak_growth_bytes", peak_growth_bytes},
  };
  if (traffic) {
    json["traffic"] = {{"demanded", traffic->demanded}, {"prefetched", traffic->prefetched}};
  }
  std::ofstream file(path);
  // Text cut inside a character becomes U+FFFD instead of an error.
  file << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  if (!file.flush()) {
    throw Failure(Exit::files, path + ": the report could not be written");
  }
}

}  // namespace llm
