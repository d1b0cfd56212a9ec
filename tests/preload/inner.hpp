// A test program that starts itself again with another environment, to check how that process ends.
// Its cases are the disabled tests of the suite Inner.
#pragma once

#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

extern char** environ;

namespace tiermem::test {

struct End {
  int status = -1;
  std::string output;
};

/// Runs one of the inner cases. `settings` replace variables of the environment. The shell that
/// starts the program runs `first` before it.
inline End run_inner(const char* name, std::vector<std::string> settings, const char* first = ":") {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string variable = *at;
    const std::string prefix = variable.substr(0, variable.find('=') + 1);
    bool replaced = false;
    for (const std::string& setting : settings) {
      replaced = replaced || setting.starts_with(prefix);
    }
    if (!replaced) {
      variables.push_back(variable);
    }
  }
  variables.insert(variables.end(), settings.begin(), settings.end());
  std::vector<char*> environment;
  for (std::string& variable : variables) {
    environment.push_back(variable.data());
  }
  environment.push_back(nullptr);
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::string filter = std::string("--gtest_filter=Inner.DISABLED_") + name;
  std::string disabled = "--gtest_also_run_disabled_tests";
  std::string self(4096, '\0');
  self.resize(static_cast<std::size_t>(
      std::max<ssize_t>(0, readlink("/proc/self/exe", self.data(), self.size()))));
  std::string shell = "sh", option = "-c", script = std::string(first) + "; exec \"$0\" \"$@\"";
  char* arguments[] = {shell.data(),  option.data(),   script.data(), self.data(),
                       filter.data(), disabled.data(), nullptr};
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments, environment.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  End end;
  char text[4096];
  for (ssize_t got = 0; (got = read(ends[0], text, sizeof(text))) > 0;) {
    end.output.append(text, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  EXPECT_EQ(waitpid(child, &end.status, 0), child);
  return end;
}

inline bool passed(const End& end) {
  return WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0 &&
         end.output.find("[  PASSED  ] 1 test") != std::string::npos;
}

}  // namespace tiermem::test
