// The mechanisms that this machine allows, one line each, with the reason if one is off. `tiermem
// topo` shows them. One thread; probing takes milliseconds, and a second or more if cuFile is asked
// about a GPU.
#pragma once

#include <string>
#include <vector>

#include "os/host_facts.hpp"
#include "runtime/config.hpp"

namespace tiermem::cli {

struct Probe {
  std::string name;
  bool on = false;
  std::string detail;  ///< How it works, or why it does not.
};

/// The mechanisms of memory and of I/O, and the drivers. Devices have separate lines.
std::vector<Probe> probe_machine(const Config& config, const HostFacts& facts);

}  // namespace tiermem::cli
