// The file system behind a path, from /proc/self/mountinfo. Any thread.
#pragma once

#include <string>

namespace tiermem::cli {

struct Mount {
  std::string type;    ///< "ext4"; empty if the kernel does not report it.
  std::string source;  ///< "/dev/nvme0n1p2"
  /// "ext4 on /dev/nvme0n1p2", or "an unknown file system".
  std::string text() const;
};

Mount mount_of(const std::string& path);

}  // namespace tiermem::cli
