// Small blocks under the preload library, beside jemalloc alone: a mix of malloc and free, and
// redis-server if it is installed. All blocks fit into the budget, so this measures the path
// through malloc, and tiered memory.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/mapped.hpp"
#include "bench/process.hpp"

namespace tiermem::bench {
namespace {

using Words = std::vector<std::string>;
constexpr const char* kJemalloc = "libjemalloc.so.2";

std::string self() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

Words mix_of(unsigned threads) {
  return {self(), "bench-malloc", std::to_string(threads)};
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words under_tiermem(const std::string& directory, const Words& program) {
  return with({self(), "run", "--dram", "1G", "--nvme", directory + ":2G", "--"}, program);
}
Words under_jemalloc(const Words& program) {
  return with({"env", fmt::format("LD_PRELOAD={}", kJemalloc)}, program);
}

double number_in(std::string_view text) {
  double number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// The output is "RATE FILE"; the file is the library of malloc. The dynamic linker ignores a
/// missing library without a message.
Result<Sample> mix(const Words& words, const char* library) {
  const Output output = run_program(words);
  const double rate = number_in(output.text);
  if (output.exit_code != 0 || !(rate > 0)) {
    return fail(Code::unavailable, "'{}' ended with {}", fmt::join(words, " "), output.exit_code);
  }
  if (output.text.find(library) == std::string::npos) {
    return fail(Code::unavailable, "{} is not installed: malloc was that of {:.100}", library,
                output.text.substr(output.text.find(' ') + 1));
  }
  return Sample{rate};
}

Result<Sample> mix_here(const std::string& directory, const Words& program) {
  return mix(under_tiermem(directory, program), "libtiermem_preload.so");
}
Result<Sample> mix_there(const Words& program) {
  return mix(under_jemalloc(program), kJemalloc);
}

Status compare_mix(Session& session, unsigned threads) {
  const Words program = mix_of(threads);
  return session.compare(
      fmt::format("preload_small_{}_thread{}", threads, threads == 1 ? "" : "s"), "Mpairs/s",
      Better::higher, bars::kPreloadSmall,
      [&] { return mix_here(session.settings().directory, program); },
      {"jemalloc", fmt::format("LD_PRELOAD={} tiermem bench-malloc {}", kJemalloc, threads),
       [&] { return mix_there(program); }});
}

/// A redis-server on its own socket, with 100,000 values of 512 bytes.
class Redis {
 public:
  Redis(std::string socket, const Words& under) : socket_(std::move(socket)) {
    server_ = Running::start(with(under, {"redis-server", "--port", "0", "--unixsocket", socket_,
                                          "--save", "", "--appendonly", "no"}));
  }
  Status wait() const {
    for (int i = 0; i < 500; ++i) {
      if (run_program({"redis-cli", "-s", socket_, "ping"}).text.starts_with("PONG")) {
        return {};
      }
      ::usleep(20'000);
    }
    return fail(Code::unavailable, "redis-server does not answer on {}", socket_);
  }
  /// The harmonic mean of the rates of equal numbers of requests of each kind.
  Result<Sample> run() const {
    double seconds = 0;
    for (const auto& [test, label] :
         {std::pair<std::string, std::string>{"set", "\"SET\",\""}, {"get", "\"GET\",\""}}) {
      const Output output =
          run_program({"redis-benchmark", "-s", socket_, "-t", test, "-n", "300000", "-c", "16",
                       "-P", "16", "-d", "512", "-r", "100000", "--csv"});
      const std::size_t row = output.text.find(label);  // "SET","123456.78",…
      const double rate = row == std::string::npos
                              ? 0
                              : number_in(std::string_view(output.text).substr(row + label.size()));
      if (output.exit_code != 0 || !(rate > 0)) {
        return fail(Code::unavailable, "redis-benchmark -t {} ended with {}", test,
                    output.exit_code);
      }
      seconds += 1 / rate;
    }
    return Sample{2 / seconds};
  }

 private:
  const std::string socket_;
  std::unique_ptr<Running> server_;
};

Status compare_redis(Session& session) {
  constexpr const char* kName = "preload_small_redis";
  for (const char* const tool : {"redis-server", "redis-benchmark", "redis-cli"}) {
    if (run_program({tool, "--version"}).exit_code == 127) {
      session.skip(kName, fmt::format("{} is not installed", tool));
      return {};
    }
  }
  // A socket's path must be short.
  const std::string socket = fmt::format("/tmp/tiermem-bench-{}", ::getpid());
  const Redis ours(socket + "-a", under_tiermem(session.settings().directory, {}));
  const Redis theirs(socket + "-b", under_jemalloc({}));
  for (const Redis* const server : {&ours, &theirs}) {
    if (Status up = server->wait(); !up.ok()) {
      return up;
    }
  }
  return session.compare(
      kName, "requests/s", Better::higher, bars::kPreloadSmall, [&] { return ours.run(); },
      {"jemalloc",
       fmt::format(
           "redis-server under LD_PRELOAD={}; redis-benchmark -t set,get -c 16 -P 16 -d 512",
           kJemalloc),
       [&] { return theirs.run(); }});
}

}  // namespace

Status preload_small(Session& session) {
  const auto here = mix_here(session.settings().directory, mix_of(1));
  const auto there = mix_there(mix_of(1));
  if (!here.ok() || !there.ok()) {
    session.skip("preload_small", (here.ok() ? there : here).status().message());
    return {};
  }
  for (const unsigned threads : {1U, 2U}) {
    if (Status compared = compare_mix(session, threads); !compared.ok()) {
      return compared;
    }
  }
  return compare_redis(session);
}

}  // namespace tiermem::bench
