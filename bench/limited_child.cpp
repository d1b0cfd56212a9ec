// Cgroups by their files: proc(5), cgroups(7).
#include "bench/limited_child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/error.hpp"

namespace tiermem::bench {
namespace {

bool write_text(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool ok =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) {
    ::close(fd);
  }
  return ok;
}

struct Group {
  std::string path;
  const char* limit = "";
};

/// Our own place in the hierarchy: of the memory controller, or of version 2 with "".
std::string own_path(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    std::stringstream names(line.substr(first + 1, second - first - 1));
    std::string name;
    bool ours = controller.empty() && second == first + 1;
    while (std::getline(names, name, ',')) {
      ours = ours || (!controller.empty() && name == controller);
    }
    if (ours) {
      const std::string path = line.substr(second + 1);
      return path == "/" ? "" : path;
    }
  }
  return "";
}

std::optional<Group> make_group() {
  const std::string name = fmt::format("/tiermem-bench-{}", ::getpid());
  const auto try_in = [&](const std::string& parent, const char* limit) -> std::optional<Group> {
    const std::string path = parent + name;
    if (::mkdir(path.c_str(), 0755) != 0) {
      return std::nullopt;
    }
    if (::access((path + "/" + limit).c_str(), W_OK) == 0) {
      return Group{path, limit};
    }
    ::rmdir(path.c_str());
    return std::nullopt;
  };
  // A container may hide its own path: the mount's root then.
  for (const std::string& own : {own_path("memory"), std::string()}) {
    if (auto group = try_in("/sys/fs/cgroup/memory" + own, "memory.limit_in_bytes")) {
      return group;
    }
  }
  for (const char* const root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    for (std::string own = own_path("");; own.resize(own.rfind('/'))) {
      if (auto group = try_in(root + own, "memory.max")) {
        return group;
      }
      if (own.empty()) {
        break;
      }
    }
  }
  return std::nullopt;
}

void remove_group(const std::string& path) {
  for (int i = 0; i < 200 && ::rmdir(path.c_str()) != 0 && errno == EBUSY; ++i) {
    ::usleep(10'000);  // The last process of it is being taken down.
  }
}

}  // namespace

Result<Sample> in_limited_child(std::uint64_t bytes, const std::function<double()>& part) {
  const std::optional<Group> group = make_group();
  if (!group || !write_text(group->path + "/" + group->limit, std::to_string(bytes))) {
    if (group) {
      remove_group(group->path);
    }
    return fail(Code::unavailable, "no memory cgroup can be made here (root may)");
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    remove_group(group->path);
    return fail_native(Code::internal, errno, "pipe: {}", std::strerror(errno));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    double value = 0;
    if (write_text(group->path + "/cgroup.procs", "0")) {
      value = part();
    }
    (void)!::write(ends[1], &value, sizeof(value));
    ::_exit(0);
  }
  ::close(ends[1]);
  double value = 0;
  const bool got = child > 0 && ::read(ends[0], &value, sizeof(value)) == sizeof(value);
  ::close(ends[0]);
  if (child > 0) {
    (void)::waitpid(child, nullptr, 0);
  }
  remove_group(group->path);
  if (!got || value <= 0) {
    return fail(Code::internal, "the limited child ended without a figure");
  }
  return Sample{value};
}

}  // namespace tiermem::bench
