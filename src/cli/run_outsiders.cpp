#include "cli/run_outsiders.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/results.hpp"

namespace tiermem::cli {
namespace {

/// Returns the whole file, or nothing and errno if it cannot be read.
std::optional<std::string> text_of(pid_t pid, const char* name) {
  const int fd = open(fmt::format("/proc/{}/{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return std::nullopt;
  }
  std::string text;
  char some[16384];
  ssize_t got = 0;
  while ((got = read(fd, some, sizeof some)) > 0) {
    text.append(some, static_cast<std::size_t>(got));
  }
  const int error = errno;
  best_effort(close(fd), "the descriptor is gone in any case");
  errno = error;
  return got < 0 ? std::nullopt : std::optional(std::move(text));
}

struct Facts {
  std::string name;
  pid_t parent = 0;
  std::uint64_t begun = 0;
};

std::optional<Facts> facts_of(pid_t pid) {
  const auto text = text_of(pid, "stat");
  const std::size_t open = text ? text->find('(') : std::string::npos;
  const std::size_t close = text ? text->rfind(')') : std::string::npos;
  if (open == std::string::npos || close == std::string::npos) {
    return std::nullopt;
  }
  Facts facts{.name = text->substr(open + 1, close - open - 1)};
  // Fields 3 (state), 4 (parent), ..., 22 (start time) of proc(5).
  const char* at = text->c_str() + close + 1;
  for (int field = 3; field <= 22; ++field) {
    at += std::strspn(at, " ");
    if (field == 4) {
      facts.parent = static_cast<pid_t>(std::strtol(at, nullptr, 10));
    } else if (field == 22) {
      facts.begun = std::strtoull(at, nullptr, 10);
    }
    at += std::strcspn(at, " ");
  }
  return facts;
}

std::uint64_t anonymous_bytes(pid_t pid) {
  const auto text = text_of(pid, "status");
  const std::size_t at = text ? text->find("RssAnon:") : std::string::npos;
  return at == std::string::npos ? 0 : std::strtoull(text->c_str() + at + 8, nullptr, 10) << 10;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> all;
  DIR* const directory = opendir("/proc");
  if (directory == nullptr) {
    return all;
  }
  while (const dirent* const entry = readdir(directory)) {
    if (const long pid = std::strtol(entry->d_name, nullptr, 10); pid > 0) {
      all.push_back(static_cast<pid_t>(pid));
    }
  }
  best_effort(closedir(directory), "the directory is gone in any case");
  return all;
}

}  // namespace

void Outsiders::look(pid_t root, const std::unordered_set<pid_t>& told) {
  std::unordered_map<pid_t, Facts> now;
  for (const pid_t pid : all_processes()) {
    if (auto facts = facts_of(pid)) {
      now.emplace(pid, std::move(*facts));
    }
  }
  std::erase_if(known_, [&](const auto& one) {
    const auto at = now.find(one.first);
    return at == now.end() || at->second.begun != one.second;
  });
  if (const auto at = now.find(root); at != now.end()) {
    known_.emplace(root, at->second.begun);
  }
  for (bool more = true; more;) {  // A child may be listed before its parent.
    more = false;
    for (const auto& [pid, facts] : now) {
      if (known_.contains(facts.parent) && known_.emplace(pid, facts.begun).second) {
        more = true;
      }
    }
  }
  for (const auto& [pid, begun] : known_) {
    judge(pid, told.contains(pid));
  }
}

void Outsiders::judge(pid_t pid, bool told) {
  const std::uint64_t bytes = told ? 0 : anonymous_bytes(pid);
  if (bytes <= least_) {
    return;
  }
  const auto found = std::find_if(found_.begin(), found_.end(), [&](const Outsider& one) {
    return one.pid == static_cast<std::uint32_t>(pid);
  });
  if (found != found_.end()) {
    found->memory_peak = std::max(found->memory_peak, bytes);
    return;
  }
  const auto maps = text_of(pid, "maps");
  std::string why;
  if (!maps) {
    if (errno != EACCES && errno != EPERM) {
      return;  // The process has ended.
    }
    why =
        "it runs with rights of its own (another user, set-user-ID, capabilities), so the loader "
        "ignores LD_PRELOAD";
  } else if (maps->empty()) {
    return;  // The process has ended.
  } else if (maps->find(library_) != std::string::npos) {
    struct stat status {};
    if (stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0 || status.st_uid == geteuid()) {
      return;  // The process is joining the run now.
    }
    why = fmt::format(
        "it belongs to another user ({}) than tiermem run: start tiermem run as that user",
        status.st_uid);
  } else {
    const auto variables = text_of(pid, "environ");
    const bool named = variables && variables->find("LD_PRELOAD=") != std::string::npos &&
                       variables->find(library_) != std::string::npos;
    why = !variables || named
              ? "the loader did not load tiermem's library: the program is static, or sees other "
                "files (chroot)"
              : "its environment has no LD_PRELOAD (env -i, sudo, a service manager)";
  }
  const auto facts = facts_of(pid);
  found_.push_back({.pid = static_cast<std::uint32_t>(pid),
                    .name = facts ? facts->name : std::string(),
                    .why = std::move(why),
                    .memory_peak = bytes});
}

}  // namespace tiermem::cli
