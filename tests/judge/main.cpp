// Runs random sequences of calls on memory twice, on plain memory and under the preload library,
// and compares everything that a program can see. The kernel's behaviour is the reference. A
// sequence with a difference is shortened as far as possible and printed: the difference, and a C
// program that makes the calls.
//
// usage: tiermem-judge --library FILE [--seeds N | --seconds S] [--first SEED] [--calls N]
//                      [--mode privileged|wrapped] [--dram SIZE] [--directory DIR]
//                      [--runtime FILE]   a sanitizer's, which is loaded before the library
// Exit status: 0 no difference; 1 a difference; 2 usage; 77 nothing can be tiered here.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "run.hpp"
#include "support/shrink.hpp"

namespace {

using judge::RunOptions;
using judge::Sequence;

struct Options {
  std::string library;
  std::string runtime;
  std::string mode = "privileged";
  std::string dram = "3M";
  std::string directory = ".";
  std::uint64_t first = 1;
  std::uint64_t seeds = 100;
  unsigned seconds = 0;
  unsigned calls = 100;
};

constexpr int kSkipped = 77;
// The longest time without output of a program, in milliseconds.
constexpr int kPatience = 120'000;

std::string log_of(const Options& options) {
  return fmt::format("{}/judge-log-{}", options.directory, getpid());
}

/// A started program, and its output so far.
class Program {
 public:
  Program(const Options& options, const RunOptions& run) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      std::perror("tiermem-judge: pipe2");
      std::exit(2);
    }
    std::fflush(stdout);
    log_ = log_of(options);
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      start(options, run);
    }
    close(ends[1]);
    end_ = ends[0];
  }
  ~Program() {
    stop();
    close(end_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Reads the next line. Returns false at the end, or if the program prints nothing for too long.
  bool line(std::string& line) {
    for (;;) {
      const std::size_t at = said_.find('\n');
      if (at != std::string::npos) {
        line = said_.substr(0, at);
        said_.erase(0, at + 1);
        return true;
      }
      pollfd ready{end_, POLLIN, 0};
      if (poll(&ready, 1, kPatience) <= 0) {
        hangs_ = true;
        return false;
      }
      char some[65536];
      const ssize_t got = read(end_, some, sizeof some);
      if (got <= 0) {
        line = std::exchange(said_, {});
        return !line.empty();
      }
      said_.append(some, static_cast<std::size_t>(got));
    }
  }
  /// Waits for the program. Returns how it ended, or an empty text if it ended normally. `status`
  /// gets the exit status.
  std::string end(int& status) {
    status = 0;
    if (hangs_) {
      stop();
      return "it hangs";
    }
    while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
    if (WIFSIGNALED(status)) {
      return fmt::format("it ended by signal {}", WTERMSIG(status));
    }
    status = WEXITSTATUS(status);
    return status == 0 ? "" : fmt::format("it ended with status {}", status);
  }

 private:
  void stop() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
      child_ = -1;
    }
  }

  [[noreturn]] void start(const Options& options, const RunOptions& run) {
    if (!options.runtime.empty()) {
      setenv(judge::kRuntimeVariable, "1", 1);
      // Nothing is freed at the end, so leaks are not detected. The thread sanitizer must not call
      // the library before it has started, so it does not handle signals. If it resolved symbols
      // itself, it would wait for itself.
      setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
      setenv("TSAN_OPTIONS",
             "use_sigaltstack=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:"
             "handle_abort=0:detect_deadlocks=0:die_after_fork=0:symbolize=0:halt_on_error=1",
             1);
    }
    if (!run.plain) {
      const auto set = [](const char* name, const std::string& value) {
        setenv(name, value.c_str(), 1);
      };
      set("LD_PRELOAD",
          options.runtime.empty() ? options.library : options.runtime + ":" + options.library);
      set("TIERMEM_START", "4K");
      set("TIERMEM_DRAM", options.dram);
      set("TIERMEM_NVME", options.directory + ":1G");
      set("TIERMEM_LOG", "error");
      set("TIERMEM_LOG_FILE", log_);
      if (options.mode == "wrapped") {
        set("TIERMEM_WRAP_SYSCALLS", "1");
        set("TIERMEM_USERFAULT", "user_mode");
      }
    }
    const std::string first = std::to_string(run.first), count = std::to_string(run.sequences),
                      calls = std::to_string(run.calls);
    const char* const arguments[] = {"tiermem-judge",
                                     "--run",
                                     run.plain ? "plain" : "tiered",
                                     run.verbose ? "verbose" : "quiet",
                                     first.c_str(),
                                     count.c_str(),
                                     calls.c_str(),
                                     options.directory.c_str(),
                                     run.left_out,
                                     nullptr};
    execv("/proc/self/exe", const_cast<char* const*>(arguments));
    _exit(5);
  }

  pid_t child_ = -1;
  int end_ = -1;
  bool hangs_ = false;
  std::string said_;
  std::string log_;
};

struct Difference {
  bool found = false;
  bool skipped = false;
  std::uint64_t seed = 0;  ///< The first sequence that differs.
  std::string text;
};

std::string words_that_differ(const std::string& plain, const std::string& tiered) {
  std::string text;
  std::size_t a = 0, b = 0, shown = 0, more = 0;
  while (a < plain.size() || b < tiered.size()) {
    const std::size_t a_end = std::min(plain.find(' ', a), plain.size());
    const std::size_t b_end = std::min(tiered.find(' ', b), tiered.size());
    const std::string one = a < plain.size() ? plain.substr(a, a_end - a) : "(nothing)";
    const std::string other = b < tiered.size() ? tiered.substr(b, b_end - b) : "(nothing)";
    if (one != other && shown < 12) {
      text += fmt::format("      plain {:24} tiered {}\n", one, other);
      ++shown;
    } else if (one != other) {
      ++more;
    }
    a = std::min(a_end + 1, plain.size());
    b = std::min(b_end + 1, tiered.size());
  }
  return more != 0 ? text + fmt::format("      and {} more\n", more) : text;
}

// An error in the library's log is a fault, because no resource is short and no device fails.
std::string logged(const Options& options) {
  const std::string path = log_of(options);
  std::string text;
  if (FILE* const log = std::fopen(path.c_str(), "re"); log != nullptr) {
    char line[512] = {};
    for (int i = 0; i < 3 && std::fgets(line, sizeof line, log) != nullptr;) {
      if (std::strstr(line, "(mlockall)") != nullptr) {
        continue;  // Some sequences lock all memory of a child, and the library says so.
      }
      text += fmt::format("    log: {}", line);
      ++i;
    }
    std::fclose(log);
  }
  unlink(path.c_str());
  return text;
}

/// Runs the sequences with both programs, and compares their output line by line.
Difference compare(const Options& options, RunOptions run) {
  Difference difference;
  run.plain = true;
  Program plain(options, run);
  run.plain = false;
  Program tiered(options, run);
  std::string one, other;
  for (;;) {
    const bool more = plain.line(one);
    const bool more_tiered = tiered.line(other);
    if (!more && !more_tiered) {
      break;
    }
    if (one != other || more != more_tiered) {
      difference.found = true;
      difference.text = fmt::format("    {}\n{}", one.substr(0, one.find(':')),
                                    words_that_differ(more ? one : "", more_tiered ? other : ""));
      break;
    }
    if (!run.verbose) {
      difference.seed = std::strtoull(one.c_str(), nullptr, 10) + 1;
    }
  }
  int status = 0;
  if (difference.found) {
    while (tiered.line(other)) {
    }
  }
  const std::string how = tiered.end(status);
  difference.skipped = status == 3;
  if (!how.empty()) {
    difference.found = true;
    difference.text += fmt::format("    the tiered program: {}\n", how);
  }
  if (const std::string errors = logged(options); !errors.empty()) {
    difference.found = true;
    difference.text += errors;
  }
  if (difference.seed == 0) {
    difference.seed = run.first;
  }
  return difference;
}

std::string list_of(const std::vector<bool>& out) {
  std::string text;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i]) {
      text += fmt::format("{}{}", text.empty() ? "" : ",", i);
    }
  }
  return text;
}

// Leaves calls out while a difference remains. Returns the numbers of the calls that are out.
std::vector<bool> shortened(const Options& options, const RunOptions& run) {
  std::vector<std::size_t> calls(judge::make_sequence(run.first, run.calls).calls.size());
  std::iota(calls.begin(), calls.end(), 0);
  const auto all_but = [size = calls.size()](const std::vector<std::size_t>& kept) {
    std::vector<bool> out(size, true);
    for (const std::size_t call : kept) {
      out[call] = false;
    }
    return out;
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  const auto differs = [&](const std::vector<std::size_t>& kept) {
    const std::string list = list_of(all_but(kept));
    RunOptions some = run;
    some.left_out = list.c_str();
    // The difference may depend on the order of threads.
    for (int tries = 0; tries < 2 && std::chrono::steady_clock::now() < until; ++tries) {
      if (compare(options, some).found) {
        return true;
      }
    }
    return false;
  };
  return all_but(tiermem::test::shrink(std::move(calls), differs));
}

void explain(const Options& options, std::uint64_t seed, std::uint64_t first) {
  RunOptions run{.first = seed, .calls = options.calls, .folder = options.directory.c_str()};
  bool again = false;
  for (int tries = 0; tries < 3 && !again; ++tries) {
    again = compare(options, run).found;
  }
  if (!again) {
    std::printf("  seed %llu alone shows no difference: run --first %llu --seeds %llu\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(seed - first + 1));
    return;
  }
  const std::vector<bool> out = shortened(options, run);
  const std::string list = list_of(out);
  run.left_out = list.c_str();
  run.verbose = true;
  Difference shown;
  for (int tries = 0; tries < 3 && !shown.found; ++tries) {
    shown = compare(options, run);
  }
  const Sequence sequence = judge::sequence_of(run, seed);
  std::printf("  seed %llu, %zu calls:\n", static_cast<unsigned long long>(seed),
              sequence.calls.size());
  for (const judge::Call& call : sequence.calls) {
    std::printf("    %s\n", judge::text_of(call).c_str());
  }
  std::printf("  what differs:\n%s  as a program:\n%s", shown.text.c_str(),
              judge::program_of(sequence).c_str());
}

int compare_all(const Options& options) {
  using Clock = std::chrono::steady_clock;
  constexpr std::uint64_t kAtOnce = 50;  // Sequences per process.
  const auto until = Clock::now() + std::chrono::seconds(options.seconds);
  std::uint64_t done = 0, differences = 0;
  while (options.seconds != 0 ? Clock::now() < until : done < options.seeds) {
    RunOptions run{
        .first = options.first + done,
        .sequences = options.seconds != 0 ? kAtOnce : std::min(kAtOnce, options.seeds - done),
        .calls = options.calls,
        .folder = options.directory.c_str()};
    const Difference difference = compare(options, run);
    if (difference.skipped) {
      std::printf("tiermem-judge: skipped: nothing can be tiered here\n");
      return kSkipped;
    }
    if (difference.found) {
      ++differences;
      std::printf("DIFFERENCE at seed %llu (%s, calls %u)\n%s",
                  static_cast<unsigned long long>(difference.seed), options.mode.c_str(),
                  options.calls, difference.text.c_str());
      explain(options, difference.seed, run.first);
      std::fflush(stdout);
      if (differences == 5) {
        break;
      }
      done = difference.seed + 1 - options.first;
    } else {
      done += run.sequences;
    }
  }
  std::printf("tiermem-judge: %llu sequences of %u calls from seed %llu, %s: %llu differences\n",
              static_cast<unsigned long long>(done), options.calls,
              static_cast<unsigned long long>(options.first), options.mode.c_str(),
              static_cast<unsigned long long>(differences));
  return differences == 0 ? 0 : 1;
}

int usage() {
  std::fprintf(stderr,
               "usage: tiermem-judge --library FILE [--seeds N | --seconds S] [--first SEED] "
               "[--calls N] [--mode privileged|wrapped] [--dram SIZE] [--directory DIR] "
               "[--runtime FILE]\n");
  return 2;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 9 && std::strcmp(arguments[1], "--run") == 0) {
    return judge::run({.first = std::strtoull(arguments[4], nullptr, 10),
                       .sequences = std::strtoull(arguments[5], nullptr, 10),
                       .calls = static_cast<unsigned>(std::strtoul(arguments[6], nullptr, 10)),
                       .plain = std::strcmp(arguments[2], "plain") == 0,
                       .verbose = std::strcmp(arguments[3], "verbose") == 0,
                       .left_out = arguments[8],
                       .folder = arguments[7]});
  }
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i];
    if (i + 1 == count) {
      return usage();
    }
    const char* const value = arguments[i + 1];
    const auto number = [&] { return std::strtoull(value, nullptr, 10); };
    if (name == "--library") {
      options.library = value;
    } else if (name == "--runtime") {
      options.runtime = value;
    } else if (name == "--seeds") {
      options.seeds = number();
    } else if (name == "--seconds") {
      options.seconds = static_cast<unsigned>(number());
    } else if (name == "--first") {
      options.first = number();
    } else if (name == "--calls") {
      options.calls = static_cast<unsigned>(number());
    } else if (name == "--mode") {
      options.mode = value;
    } else if (name == "--dram") {
      options.dram = value;
    } else if (name == "--directory") {
      options.directory = value;
    } else {
      return usage();
    }
  }
  if (options.library.empty() || (options.mode != "privileged" && options.mode != "wrapped")) {
    return usage();
  }
  for (std::string* const path : {&options.library, &options.runtime, &options.directory}) {
    char whole[PATH_MAX];
    if (path->empty()) {
      continue;
    }
    if (realpath(path->c_str(), whole) == nullptr) {
      std::fprintf(stderr, "tiermem-judge: %s: %s\n", path->c_str(), std::strerror(errno));
      return 2;
    }
    *path = whole;
  }
  return compare_all(options);
}
