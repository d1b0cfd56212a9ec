// Names from sysfs, the best first. A device without a name gets its file system's identifier.
#include "os/device_id.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

constexpr std::size_t kLongestName = 120;

/// Returns the first line of a small file, made printable, or an empty string. Outer blanks are
/// removed, and inner blanks are single.
std::string first_line(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char text[256];
  const ssize_t n = file >= 0 ? ::read(file, text, sizeof(text)) : -1;
  if (file >= 0) {
    best_effort(::close(file), "the descriptor is gone in any case");
  }
  std::string line;
  for (ssize_t i = 0; i < n && text[i] != '\n' && line.size() < kLongestName; ++i) {
    const bool printable = text[i] > ' ' && text[i] < 0x7f;
    if (printable) {
      line += text[i];
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  if (line.ends_with(' ')) {
    line.pop_back();
  }
  return line;
}

}  // namespace

DeviceId identify_block_device(dev_t device, const std::string& root) {
  std::string disk = fmt::format("{}/sys/dev/block/{}:{}", root, major(device), minor(device));
  if (::access((disk + "/partition").c_str(), F_OK) == 0) {
    disk += "/..";  // The parent of the link's target: the disk that contains the partition.
  }
  static constexpr struct {
    const char* file;
    const char* word;
  } kNames[] = {{"wwid", "wwid"},  {"device/wwid", "wwid"}, {"dm/uuid", "dm"},
                {"md/uuid", "md"}, {"serial", "serial"},    {"device/serial", "serial"}};
  DeviceId id;
  id.model = first_line(disk + "/device/model");
  for (const auto& name : kNames) {
    const std::string text = first_line(disk + "/" + name.file);
    if (!text.empty()) {
      id.key = fmt::format("{} {}", name.word, text);
      break;
    }
  }
  return id;
}

Result<DeviceId> identify_device(const std::string& path) {
  struct stat status {};
  struct statfs system {};
  // Both facts come from the file that one lookup of the path found.
  const int file = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  const bool found = file >= 0 && ::fstat(file, &status) == 0 && ::fstatfs(file, &system) == 0;
  const int error = errno;
  if (file >= 0) {
    best_effort(::close(file), "the descriptor is gone in any case");
  }
  if (!found) {
    return fail_native(Code::io_error, error, "{:.160}: {}", path, std::strerror(error));
  }
  const bool raw = S_ISBLK(status.st_mode);
  DeviceId id = identify_block_device(raw ? status.st_rdev : status.st_dev);
  if (id.key.empty() && raw) {
    id.key = fmt::format("device {}:{}", major(status.st_rdev), minor(status.st_rdev));
  } else if (id.key.empty()) {
    int words[2];
    static_assert(sizeof(words) == sizeof(system.f_fsid));
    std::memcpy(words, &system.f_fsid, sizeof(words));
    id.key =
        fmt::format("volume {:08x}{:08x} on {}:{}", static_cast<unsigned>(words[0]),
                    static_cast<unsigned>(words[1]), major(status.st_dev), minor(status.st_dev));
  }
  if (!raw) {
    id.key += fmt::format(", file system {:x}", static_cast<unsigned long>(system.f_type));
  }
  return id;
}

}  // namespace tiermem
