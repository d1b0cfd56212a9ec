// posix_spawn with a pipe; fork if the child must end with its parent.
#include "bench/process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

extern char** environ;

namespace tiermem::bench {
namespace {

/// As exec and spawn need them; valid as long as `arguments` is.
std::vector<char*> words_of(const std::vector<std::string>& arguments) {
  std::vector<char*> words;
  for (const std::string& argument : arguments) {
    words.push_back(const_cast<char*>(argument.c_str()));  // Their old signature.
  }
  words.push_back(nullptr);
  return words;
}

}  // namespace

Output run_program(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return {};
  }
  const std::vector<char*> words = words_of(arguments);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Output output;
  if (error != 0) {
    close(ends[0]);
    output.exit_code = error == ENOENT ? 127 : -1;
    return output;
  }
  char part[4096];
  for (ssize_t n = 0; (n = read(ends[0], part, sizeof(part))) != 0;) {
    if (n > 0) {
      output.text.append(part, static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      break;
    }
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

std::unique_ptr<Running> Running::start(const std::vector<std::string>& arguments) {
  const std::vector<char*> words = words_of(arguments);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    // Only system calls are safe from here on: another thread may have held a lock.
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      (void)dup2(nowhere, fd);
    }
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent) {
      (void)execvp(words[0], words.data());
    }
    _exit(127);
  }
  return child < 0 ? nullptr : std::unique_ptr<Running>(new Running(child));
}

Running::~Running() {
  (void)kill(child_, SIGTERM);
  for (int i = 0; i < 1000; ++i) {
    if (waitpid(child_, nullptr, WNOHANG) != 0) {
      return;
    }
    usleep(10'000);
  }
  (void)kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace tiermem::bench
