// The topology of a machine as JSON, for programs. A fact that is not told is null. One thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "os/topology.hpp"

namespace tiermem::cli {

nlohmann::ordered_json topology_json(const Topology& topology);

}  // namespace tiermem::cli
