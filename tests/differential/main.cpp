// The differential test of the C interface: random lists of calls on real contexts and on a model
// of plain bytes, compared call by call (world.hpp). One execution is one compared call. A list
// that differs, crashes or hangs is shortened, by running parts of it in child processes, and
// printed.
//
// usage: tiermem-differential [--seed N] [--calls N | --seconds N] [--leave-out aliases,handles]
//        tiermem-differential --replay FILE [--leave-out ...]
// Exit status: 0 no difference; 1 a difference, a crash or a hang; 2 usage.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "plan.hpp"
#include "support/shrink.hpp"
#include "world.hpp"

namespace {

using namespace tiermem::differential;
using tiermem::test::shrink;
using Clock = std::chrono::steady_clock;

constexpr unsigned kCallsOfASequence = 200;
constexpr unsigned kSequencesOfAWorld = 500;
constexpr std::uint64_t kMostMemory = std::uint64_t{2} << 30;
constexpr unsigned kPatience = 60;  // Seconds without a finished sequence that count as a hang.
constexpr unsigned kPatienceOfAPart = 10;

struct Arguments {
  std::uint64_t seed = 1;
  std::uint64_t calls = 200'000;
  std::uint64_t seconds = 0;
  std::string replay;
  std::string left_out;
  Options options;
};

int usage() {
  std::fprintf(stderr,
               "usage: tiermem-differential [--seed N] [--calls N | --seconds N]\n"
               "                            [--leave-out aliases,handles]\n"
               "       tiermem-differential --replay FILE [--leave-out aliases,handles]\n");
  return 2;
}

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* const value = argv[i + 1];
    if (name == "--seed") {
      arguments.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--calls") {
      arguments.calls = std::strtoull(value, nullptr, 10);
    } else if (name == "--seconds") {
      arguments.seconds = std::strtoull(value, nullptr, 10);
    } else if (name == "--replay") {
      arguments.replay = value;
    } else if (name == "--leave-out") {
      arguments.left_out = value;
      arguments.options.aliases = std::strstr(value, "aliases") == nullptr;
      arguments.options.other_handles = std::strstr(value, "handles") == nullptr;
    } else if (name == "--trace") {
      arguments.options.trace = std::strcmp(value, "1") == 0;
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

/// Resident memory of the process. RLIMIT_AS would not work as a limit, because a context reserves
/// far more addresses than memory.
std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t seed_of(std::uint64_t seed, std::uint64_t sequence) {
  return seed * 1'000'003 + sequence;
}

/// Runs lists in child processes. The result is 0, or how the child failed.
class Children {
 public:
  explicit Children(const Arguments& arguments) : arguments_(arguments) {
    const char* const base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr && *base != '\0' ? base : "/var/tmp") +
            "/tiermem-differential-calls-XXXXXX";
    const int fd = ::mkstemp(path_.data());
    if (fd >= 0) {
      ::close(fd);
    }
  }
  ~Children() { (void)::unlink(path_.c_str()); }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  bool fails(const Plan& plan) const {
    std::ofstream(path_) << text_of(plan);
    const pid_t child = ::fork();
    if (child == 0) {
      const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
      (void)::dup2(null, 1);
      (void)::dup2(null, 2);
      ::alarm(kPatienceOfAPart);
      std::vector<const char*> words = {"/proc/self/exe", "--replay", path_.c_str()};
      if (!arguments_.left_out.empty()) {
        words.insert(words.end(), {"--leave-out", arguments_.left_out.c_str()});
      }
      words.push_back(nullptr);
      ::execv(words[0], const_cast<char**>(words.data()));
      ::_exit(0);
    }
    int status = 0;
    return child > 0 && ::waitpid(child, &status, 0) == child && status != 0;
  }
  /// Some lists fail only with some timings, so this tries several times.
  bool fails_often(const Plan& plan) const {
    for (unsigned i = 0; i < 3; ++i) {
      if (fails(plan)) {
        return true;
      }
    }
    return false;
  }

 private:
  const Arguments& arguments_;
  std::string path_;
};

// Removes calls as long as the rest fails.
Plan shortened(Plan plan, const Children& children) {
  const auto end = Clock::now() + std::chrono::minutes(10);
  return shrink(std::move(plan),
                [&](const Plan& some) { return Clock::now() < end && children.fails_often(some); });
}

void report(const Arguments& arguments, std::uint64_t first, std::uint64_t last) {
  std::fprintf(stderr, "replay: --seed %llu, sequence %llu\n",
               static_cast<unsigned long long>(arguments.seed),
               static_cast<unsigned long long>(last));
  const Children children(arguments);
  Plan plan = draw(seed_of(arguments.seed, last), kCallsOfASequence);
  if (!children.fails_often(plan)) {
    plan.clear();
    for (std::uint64_t sequence = first; sequence <= last; ++sequence) {
      const Plan more = draw(seed_of(arguments.seed, sequence), kCallsOfASequence);
      plan.insert(plan.end(), more.begin(), more.end());
    }
    if (!children.fails_often(plan)) {
      std::fprintf(stderr, "It did not fail again in a new process.\n");
      return;
    }
  }
  std::fprintf(stderr, "The shortest list found, for --replay:\n%s",
               text_of(shortened(plan, children)).c_str());
}

int replay(const Arguments& arguments) {
  std::ifstream file(arguments.replay);
  std::stringstream text;
  text << file.rdbuf();
  Plan plan;
  if (!file || !read_plan(text.str(), plan)) {
    std::fprintf(stderr, "%s is not a list of calls\n", arguments.replay.c_str());
    return 2;
  }
  try {
    World world(arguments.options);
    world.run(plan);
    return 0;
  } catch (const Difference& difference) {
    std::fprintf(stderr, "%s\n", difference.text.c_str());
    return 1;
  }
}

/// Runs the sequences in a child process, so that a signal or a hang is visible from outside. It
/// writes the number of each sequence to `progress` before it runs it.
int run_sequences(const Arguments& arguments, int progress) {
  const auto begin = Clock::now();
  const auto took = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::uint64_t calls = 0, sequence = 0;
  const auto more = [&](std::uint64_t made) {
    return arguments.seconds != 0 ? took() < static_cast<double>(arguments.seconds)
                                  : made < arguments.calls;
  };
  try {
    while (more(calls)) {
      World world(arguments.options);
      for (unsigned i = 0; i < kSequencesOfAWorld && more(calls + world.calls()); ++i, ++sequence) {
        (void)!::write(progress, &sequence, sizeof(sequence));
        ::alarm(kPatience);
        world.run(draw(seed_of(arguments.seed, sequence), kCallsOfASequence));
        if (sequence % 64 == 0 && resident_bytes() > kMostMemory) {
          throw Difference{"the process has more than 2 GiB of memory: something is never freed"};
        }
      }
      ::alarm(0);
      calls += world.calls();
    }
  } catch (const Difference& difference) {
    std::fprintf(stderr, "%s\n", difference.text.c_str());
    ::_exit(1);
  }
  std::printf(
      "differential: %llu calls of %llu sequences from seed %llu in %.1f s (%.0f a second),"
      " no difference\n",
      static_cast<unsigned long long>(calls), static_cast<unsigned long long>(sequence),
      static_cast<unsigned long long>(arguments.seed), took(), static_cast<double>(calls) / took());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    return usage();
  }
  if (!arguments.replay.empty()) {
    return replay(arguments);
  }
  int progress[2];
  if (::pipe2(progress, O_CLOEXEC) != 0) {
    return 2;
  }
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(progress[0]);
    std::exit(run_sequences(arguments, progress[1]));
  }
  ::close(progress[1]);
  std::uint64_t sequence = 0, last = 0;
  while (::read(progress[0], &sequence, sizeof(sequence)) == sizeof(sequence)) {
    last = sequence;
  }
  int status = 0;
  (void)::waitpid(child, &status, 0);
  if (status == 0) {
    return 0;
  }
  if (WIFSIGNALED(status)) {
    std::fprintf(
        stderr, "ended by %s\n",
        WTERMSIG(status) == SIGALRM ? "the alarm: a call hangs" : ::strsignal(WTERMSIG(status)));
  }
  report(arguments, last / kSequencesOfAWorld * kSequencesOfAWorld, last);
  return 1;
}
