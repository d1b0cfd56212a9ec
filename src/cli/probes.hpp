// What this machine allows, one line each, and why something is off: the part of `tiermem topo`
// that explains. One thread; probing takes milliseconds,
// and a second or more where cuFile is asked about a GPU.
#pragma once

#include <string>
#include <vector>

#include "os/host_facts.hpp"
#include "runtime/config.hpp"

namespace tiermem::cli {

struct Probe {
  std::string name;
  bool on = false;
  std::string detail;  ///< How, or why not.
};

/// The mechanisms of memory and of I/O, and the drivers. Devices have lines of their own.
std::vector<Probe> probe_machine(const Config& config, const HostFacts& facts);

}  // namespace tiermem::cli
