// Starts the child and reads its answer.
#include "os/cufile.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

constexpr const char* kProgram = "tiermem-cufile-probe";

// The path from the installed library or program to the directory of helper programs.
#ifndef TIERMEM_LIBDIR_TO_LIBEXECDIR
#define TIERMEM_LIBDIR_TO_LIBEXECDIR "../libexec"
#endif
#ifndef TIERMEM_BINDIR_TO_LIBEXECDIR
#define TIERMEM_BINDIR_TO_LIBEXECDIR "../libexec"
#endif

// Finds the helper program beside this library or program, as in a build, or where it is installed.
// Returns an empty string if there is none.
std::string find_program() {
  if (const char* const named = secure_getenv("TIERMEM_CUFILE_PROBE"); named != nullptr) {
    return named;
  }
  Dl_info here;
  std::string folder;
  if (dladdr(reinterpret_cast<void*>(&find_program), &here) != 0 && here.dli_fname != nullptr) {
    folder = here.dli_fname;
  }
  if (!folder.starts_with('/')) {
    // For a program this is the word by which it was called; it must never be looked up in the
    // current directory.
    std::array<char, 4096> self;
    const ssize_t length = readlink("/proc/self/exe", self.data(), self.size());
    if (length <= 0) {
      return {};
    }
    folder.assign(self.data(), static_cast<std::size_t>(length));
  }
  folder.resize(folder.rfind('/') + 1);
  for (const char* const way : {"", "../", TIERMEM_LIBDIR_TO_LIBEXECDIR "/tiermem/",
                                TIERMEM_BINDIR_TO_LIBEXECDIR "/tiermem/"}) {
    std::string path = folder + way + kProgram;
    if (access(path.c_str(), X_OK) == 0) {
      return path;
    }
  }
  return {};
}

// This process's environment, so that cuFile behaves as it would here. It excludes tiermem's own
// preload library, which is only for the program with the tiered memory.
class Environment {
 public:
  Environment() {
    constexpr std::string_view kPreload = "LD_PRELOAD=";
    for (char** each = environ; *each != nullptr; ++each) {
      const std::string_view word(*each);
      if (!word.starts_with(kPreload)) {
        words_.push_back(*each);
        continue;
      }
      preload_ = kPreload;
      for (std::string_view left = word.substr(kPreload.size()); !left.empty();) {
        const std::size_t end = std::min(left.find_first_of(": "), left.size());
        if (left.substr(0, end).find("libtiermem_preload") == std::string_view::npos) {
          preload_ += left.substr(0, end);
          preload_ += ':';
        }
        left.remove_prefix(std::min(end + 1, left.size()));
      }
      words_.push_back(preload_.data());
    }
    words_.push_back(nullptr);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  char** words() { return words_.data(); }

 private:
  std::string preload_;
  std::vector<char*> words_;
};

class Pipe {
 public:
  Pipe() { works_ = pipe2(ends_.data(), O_CLOEXEC) == 0; }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  bool works() const { return works_; }
  int end(int which) const { return ends_[static_cast<std::size_t>(which)]; }
  void close_end(int which) {
    int& fd = ends_[static_cast<std::size_t>(which)];
    if (fd >= 0) {
      best_effort(close(fd), "the descriptor is gone in any case");
      fd = -1;
    }
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
  bool works_ = false;
};

// Starts the child with no descriptor of ours except the end of the pipe, and with no signal
// blocked or ignored.
int start(const std::string& program, const CuFileProbe& probe, int answer, pid_t& child) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigset_t all;
  must(sigemptyset(&none));
  must(sigfillset(&all));
  must(posix_spawn_file_actions_init(&files));
  must(posix_spawnattr_init(&attributes));
  must(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  must(posix_spawnattr_setsigmask(&attributes, &none));
  must(posix_spawnattr_setsigdefault(&attributes, &all));
  int error = 0;  // The first error: each of these calls allocates.
  const auto note = [&error](int result) { error = error != 0 ? error : result; };
  note(posix_spawn_file_actions_adddup2(&files, answer, cufile::kAnswerDescriptor));
  note(posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0));
  // The program prints a lot.
  note(posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0));
  note(posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0));
  note(posix_spawn_file_actions_addclosefrom_np(&files, cufile::kAnswerDescriptor + 1));
  std::string name(kProgram);
  std::string library = probe.library;
  std::string driver = probe.driver;
  char* const arguments[] = {name.data(), library.data(), driver.data(), nullptr};
  Environment environment;
  if (error == 0) {
    error =
        posix_spawn(&child, program.c_str(), &files, &attributes, arguments, environment.words());
  }
  must(posix_spawnattr_destroy(&attributes));
  must(posix_spawn_file_actions_destroy(&files));
  return error;
}

enum class Outcome : std::uint8_t { answered, ended, late };

Outcome read_answer(int fd, std::chrono::milliseconds limit, cufile::Answer& answer) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::size_t have = 0;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    if (ready <= 0) {
      return Outcome::late;
    }
    const ssize_t got = read(fd, reinterpret_cast<char*>(&answer) + have, sizeof(answer) - have);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return Outcome::ended;
    }
    have += static_cast<std::size_t>(got);
    if (have == sizeof(answer)) {
      return Outcome::answered;
    }
  }
}

// Returns the exit status of the child. Returns 0 if the program collected the status itself, or if
// the child does not end: a child in a driver call that never returns cannot be killed, and
// remains.
int reap(pid_t child) {
  constexpr std::chrono::milliseconds kPatience{2000};
  constexpr timespec kNap{0, 1'000'000};
  int status = 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) {
      return status;
    }
    if ((ended < 0 && errno != EINTR) || std::chrono::steady_clock::now() > end) {
      return 0;
    }
    best_effort(nanosleep(&kNap, nullptr), "a shorter nap will do");
  }
}

std::string version_words(const CuFileProbe& probe, int version) {
  return version == 0 ? probe.library
                      : fmt::format("{} {}.{}", probe.library, version / 1000, version % 1000 / 10);
}

CuFileFacts read(const CuFileProbe& probe, const cufile::Answer& answer) {
  using Step = cufile::Answer::Step;
  using Path = CuFileFacts::Path;
  const std::string who = version_words(probe, answer.version);
  const cufile::Properties& properties = answer.properties;
  switch (answer.failed) {
    case Step::load:
      return {Path::none, fmt::format("{}: {:.150}", probe.library, answer.text)};
    case Step::symbols:
      return {Path::none, fmt::format("{} has no {:.60}", probe.library, answer.text)};
    case Step::open:
    case Step::properties:
      return {Path::none, fmt::format("{}: {} gave {}{}", who,
                                      answer.failed == Step::open ? "cuFileDriverOpen"
                                                                  : "cuFileDriverGetProperties",
                                      answer.error.code,
                                      answer.error.driver == cuda::kSuccess
                                          ? ""
                                          : fmt::format(", the driver {}", answer.error.driver))};
    case Step::done:
      break;
  }
  constexpr unsigned kDisks = cufile::kNvme | cufile::kNvmeOverFabrics | cufile::kScsi;
  if ((properties.status & kDisks) == 0) {
    return {Path::compatible, who + ", in compatibility mode: it stages through the host itself"};
  }
  return {Path::direct, fmt::format("{}, direct for {} by {}", who,
                                    (properties.status & cufile::kNvme) != 0 ? "NVMe" : "disks",
                                    properties.driver_major == 0
                                        ? std::string("PCI P2PDMA")
                                        : fmt::format("nvidia-fs {}.{}", properties.driver_major,
                                                      properties.driver_minor))};
}

}  // namespace

namespace {

// On kernels without modules the known versions (1.14, 1.20) never return. A later version gets the
// time of a quick open, and the known ones get no more.
std::chrono::milliseconds patience(const CuFileProbe& probe, bool has_modules) {
  using std::chrono::milliseconds;
  return probe.limit != milliseconds{0} ? probe.limit : milliseconds{has_modules ? 5000 : 1000};
}

}  // namespace

CuFileFacts ask_cufile(const CuFileProbe& probe) {
  using Path = CuFileFacts::Path;
  const std::string program = probe.program.empty() ? find_program() : probe.program;
  if (program.empty()) {
    return {Path::none, fmt::format("not asked: {} is not installed", kProgram)};
  }
  Pipe pipe;
  pid_t child = 0;
  const int error = !pipe.works() ? errno : start(program, probe, pipe.end(1), child);
  if (error != 0) {
    return {Path::none, fmt::format("not asked: {}: {}", program, std::strerror(error))};
  }
  pipe.close_end(1);
  cufile::Answer answer;
  const bool has_modules = access("/proc/modules", R_OK) == 0;
  const std::chrono::milliseconds limit = patience(probe, has_modules);
  const Outcome outcome = read_answer(pipe.end(0), limit, answer);
  if (outcome != Outcome::ended) {
    best_effort(kill(child, SIGKILL), "it may have ended");  // Its exit may hang, too.
  }
  const int status = reap(child);
  if (outcome == Outcome::answered) {
    return read(probe, answer);
  }
  if (outcome == Outcome::late) {
    return {Path::none, fmt::format("{} did not come back within {} ms, and was ended{}",
                                    probe.library, limit.count(),
                                    has_modules ? "" : " (without /proc/modules it never does)")};
  }
  return {Path::none, WIFSIGNALED(status) ? fmt::format("{} ended its process by signal {}",
                                                        probe.library, WTERMSIG(status))
                                          : fmt::format("{} ended its process", probe.library)};
}

}  // namespace tiermem
