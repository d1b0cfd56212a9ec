// /proc/self/{io,status,clear_refs} and getrusage.
#include "process.hpp"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace llm {
namespace {

// Returns the number after "key:" in a file of lines "key: number ..."; 0 if it is missing.
std::uint64_t value_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(key + ":")) {
      return std::stoull(line.substr(key.size() + 1));
    }
  }
  return 0;
}

std::uint64_t status_bytes(const char* key) {
  return value_of("/proc/self/status", key) * 1024;
}

}  // namespace

ProcessCounters ProcessCounters::now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {value_of("/proc/self/io", "read_bytes"), static_cast<std::uint64_t>(usage.ru_majflt)};
}

PeakMemory::PeakMemory() {
  std::ofstream("/proc/self/clear_refs") << "5";  // Resets the peak to the resident memory.
  baseline_bytes_ = status_bytes("VmRSS");
}

std::uint64_t PeakMemory::growth_bytes() const {
  const std::uint64_t peak = status_bytes("VmHWM");
  return peak > baseline_bytes_ ? peak - baseline_bytes_ : 0;
}

}  // namespace llm
