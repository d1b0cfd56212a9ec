// A line of mountinfo: id parent major:minor root point options [field…] - type source options.
#include "cli/mount.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <sstream>

namespace tiermem::cli {

std::string Mount::text() const {
  return type.empty() ? "an unknown file system" : fmt::format("{} on {}", type, source);
}

Mount mount_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    return {};
  }
  const std::string wanted = fmt::format("{}:{}", major(status.st_dev), minor(status.st_dev));
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string id, parent, device, word;
    words >> id >> parent >> device;
    if (device != wanted) {
      continue;
    }
    while (words >> word && word != "-") {
    }
    Mount mount;
    words >> mount.type >> mount.source;
    return mount;
  }
  return {};
}

}  // namespace tiermem::cli
