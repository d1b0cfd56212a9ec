// The mappings of this process, as the kernel lists them in /proc/self/smaps.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tiermem::test {

struct Mappings {
  std::uint64_t dumped = 0;    ///< Bytes that may be touched and are in a core dump.
  std::uint64_t writable = 0;  ///< Bytes of private mappings that may be written.
  std::uint64_t count = 0;
};

/// Reads the list; all values are 0 if the kernel does not report flags.
inline Mappings mappings() {
  Mappings found;
  std::ifstream list("/proc/self/smaps");
  std::string line;
  std::uint64_t bytes = 0;
  std::string access;
  while (std::getline(list, line)) {
    if (const auto dash = line.find('-');
        dash != std::string::npos && dash < 17 && line.find(": ") == std::string::npos) {
      const auto space = line.find(' ');
      bytes = std::strtoull(line.c_str() + dash + 1, nullptr, 16) -
              std::strtoull(line.c_str(), nullptr, 16);
      access = line.substr(space + 1, 4);
      ++found.count;
      found.writable += access[1] == 'w' && access[3] == 'p' ? bytes : 0;
    } else if (line.rfind("VmFlags:", 0) == 0 && access[0] == 'r') {
      found.dumped += line.find(" dd") == std::string::npos ? bytes : 0;
    }
  }
  return found;
}

/// The value of a line of /proc/self/status in bytes, such as "VmRSS:" or "VmData:".
inline std::uint64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name, 0) == 0) {
      return std::strtoull(line.c_str() + name.size(), nullptr, 10) * 1024;
    }
  }
  return 0;
}

}  // namespace tiermem::test
