// example_llm: a real language model (Gemma 3) writes text with weights that do not fit its memory.
// The same arithmetic runs over three sources of weights: all in memory, mmap, and tiermem under a
// DRAM budget. Greedy decoding, so the text and every logit must be equal for all three.
// Exit status: 0 done; 2 usage; 3 files; 4 the source of weights failed (failure.hpp).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include <CLI/CLI.hpp>

#include "failure.hpp"
#include "model.hpp"
#include "process.hpp"
#include "prompt.hpp"
#include "report.hpp"
#include "vocabulary.hpp"

namespace llm {
namespace {

struct Options {
  std::string folder = "build/demo";
  std::string prompt = "capital";
  std::vector<std::uint32_t> ids;
  std::size_t tokens = 24;
  std::uint64_t dram_bytes = 0;
  // A shallow queue: parts come one after the other in the order of their use, not all at once.
  std::string more_tiers = "depth=16";
  WeightsOptions weights;
  std::uint64_t chunk_bytes = 4ull * 1024 * 1024;
  unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 2u);
  std::string kernel = "auto";
  std::string json, logits;
};

void add_options(CLI::App& app, Options& o) {
  const auto bytes = CLI::AsSizeValue(false);
  app.add_option("--model", o.folder, "folder that examples/llm/prepare filled")
      ->capture_default_str();
  app.add_option("--weights", o.weights.source, "where the weights are")
      ->check(CLI::IsMember({"memory", "mmap", "tiermem"}))
      ->capture_default_str();
  app.add_option("--prompt", o.prompt, "name of a prompt in prompts.json")->capture_default_str();
  app.add_option("--ids", o.ids, "the prompt as token ids instead, with commas")->delimiter(',');
  app.add_option("--tokens", o.tokens, "tokens to write at most")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--dram", o.dram_bytes, "tiermem: DRAM budget, as 128M [a quarter of the model]")
      ->transform(bytes);
  app.add_option("--tiers", o.more_tiers,
                 "tiermem: more of its spec string, as \"depth=16; checksum=off\"")
      ->capture_default_str();
  app.add_option("--ahead", o.weights.ahead, "bytes to ask for in advance")
      ->transform(bytes)
      ->capture_default_str();
  app.add_option("--keep", o.weights.keep,
                 "tiermem: bytes that stay resident [what the parts in use and ahead leave]")
      ->transform(bytes);
  app.add_option("--extent", o.weights.extent, "tiermem: bytes that move as one [its own choice]")
      ->transform(bytes);
  app.add_option("--madvise", o.weights.madvise, "mmap: hint to the kernel")
      ->check(CLI::IsMember({"normal", "sequential", "random", "willneed"}))
      ->capture_default_str();
  app.add_option("--chunk", o.chunk_bytes, "bytes of the output matrix held at once")
      ->transform(bytes)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", o.threads, "threads that compute")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--kernel", o.kernel, "auto, avx512, avx2 or portable")->capture_default_str();
  app.add_option("--json", o.json, "write the report to this file");
  app.add_option("--logits", o.logits, "write every step's logits to this file, raw f32");
}

std::uint32_t likeliest(std::span<const float> logits) {
  return static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Ends the line of text, even if a failure cuts it short.
struct LineEnd {
  ~LineEnd() {
    std::printf("\n");
    std::fflush(stdout);
  }
};

// The first pass takes the prompt; every other pass takes the previous token. Fills the report's
// tokens, text, time and bytes.
void generate(Model& model, Weights& weights, const Config& config, const Vocabulary& vocabulary,
              std::size_t most, std::ofstream& logits_file, Report& report) {
  const LineEnd line_end;
  std::vector<std::uint32_t> next = report.prompt_ids;
  auto begin = std::chrono::steady_clock::now();
  ProcessCounters before;
  Traffic traffic_before;
  double waiting_before = 0;
  for (;;) {
    const std::span<const float> logits = model.forward(next, weights);
    if (logits_file.is_open()) {
      logits_file.write(reinterpret_cast<const char*>(logits.data()),
                        static_cast<std::streamsize>(logits.size_bytes()));
    }
    next = {likeliest(logits)};
    report.tokens.push_back(next[0]);
    const bool ended = std::ranges::count(config.end_tokens, next[0]) > 0;
    if (!ended) {
      const std::string piece = vocabulary.text(next[0]);
      report.text += piece;
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    }
    if (report.tokens.size() == 1) {
      report.prompt_seconds = seconds_since(begin);
      before = ProcessCounters::now();
      traffic_before = weights.traffic().value_or(Traffic{});
      waiting_before = weights.waiting_seconds();
      begin = std::chrono::steady_clock::now();
    }
    if (ended || report.tokens.size() == most) {
      break;
    }
  }
  report.passes = report.tokens.size() - 1;
  report.seconds = seconds_since(begin);
  report.waiting_seconds = weights.waiting_seconds() - waiting_before;
  const ProcessCounters after = ProcessCounters::now();
  report.read_bytes = after.read_bytes - before.read_bytes;
  report.major_faults = after.major_faults - before.major_faults;
  if (const auto traffic = weights.traffic()) {
    report.traffic = Traffic{traffic->demanded - traffic_before.demanded,
                             traffic->prefetched - traffic_before.prefetched};
  }
}

void check_prompt(const Prompt& prompt, const Options& options, const Config& config) {
  const auto bad =
      std::ranges::find_if(prompt.ids, [&](std::uint32_t id) { return id >= config.vocabulary; });
  if (prompt.ids.empty() || bad != prompt.ids.end()) {
    throw Failure(Exit::usage, prompt.ids.empty()
                                   ? "the prompt has no tokens"
                                   : "token id " + std::to_string(*bad) + "; accepted: below " +
                                         std::to_string(config.vocabulary));
  }
  if (prompt.ids.size() + options.tokens > config.context) {
    throw Failure(Exit::usage, std::to_string(prompt.ids.size()) + " tokens of prompt and " +
                                   std::to_string(options.tokens) + " of answer; accepted: " +
                                   std::to_string(config.context) + " together");
  }
}

void run(Options options) {
  const Dot dot = dot_kernel(options.kernel);
  if (dot == nullptr) {
    throw Failure(Exit::usage, "kernel '" + options.kernel + "' is unknown, or not for this CPU");
  }
  const std::string& folder = options.folder;
  const Config config = read_config(folder + "/config.json");
  const Safetensors file(folder + "/model-f16.safetensors");
  const Layout layout(config, file, options.chunk_bytes);
  const Vocabulary vocabulary(folder + "/tokens.txt", config.vocabulary);
  const Prompt prompt = options.ids.empty() ? read_prompt(folder + "/prompts.json", options.prompt)
                                            : Prompt{"", options.ids};
  check_prompt(prompt, options, config);
  std::ofstream logits;
  if (!options.logits.empty()) {
    logits.open(options.logits, std::ios::binary);
    if (!logits) {
      throw Failure(Exit::files, options.logits + ": cannot be written");
    }
  }

  Team team(options.threads);
  Model model(config, layout, dot, team, prompt.ids.size() + options.tokens);

  if (options.dram_bytes == 0) {
    options.dram_bytes = file.data_bytes() / 4;
  }
  options.weights.tiers = "dram=" + std::to_string(options.dram_bytes);
  if (!options.more_tiers.empty()) {
    options.weights.tiers += "; " + options.more_tiers;
  }
  const PeakMemory peak;  // Everything except the weights is in memory now.
  const auto weights = open_weights(options.weights, file, layout.parts());

  Report report;
  report.source = options.weights.source;
  report.model = config.name;
  report.kernel = options.kernel == "auto" ? best_kernel() : options.kernel;
  report.threads = options.threads;
  report.model_bytes = file.data_bytes();
  report.budget_bytes = options.dram_bytes;
  report.prompt_ids = prompt.ids;
  std::printf("%s", prompt.text.size() > 200 ? "[…]" : prompt.text.c_str());
  generate(model, *weights, config, vocabulary, options.tokens, logits, report);
  report.peak_growth_bytes = peak.growth_bytes();

  std::printf("\n%s", report.table().c_str());
  if (logits.is_open() && !logits.flush()) {
    throw Failure(Exit::files, options.logits + ": could not be written to its end");
  }
  if (!options.json.empty()) {
    report.write_json(options.json);
  }
}

}  // namespace
}  // namespace llm

int main(int argc, char** argv) {
  llm::Options options;
  CLI::App app("Writes text with Gemma 3, its weights in memory, in mmap or in tiermem.");
  app.footer("Exit status: 0 done; 2 usage; 3 a file is missing or damaged; 4 the source failed.");
  llm::add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(llm::Exit::usage);
  }
  try {
    llm::run(options);
  } catch (const llm::Failure& failure) {
    std::fprintf(stderr, "example_llm: %s\n", failure.what());
    return failure.status();
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "example_llm: out of memory\n");
    return static_cast<int>(llm::Exit::memory);
  }
  return 0;
}
