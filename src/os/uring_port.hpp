// The io_uring port: one ring for all devices of a tier, and nothing but the way to make one, so
// that the rest builds without liburing. Threads as in waitable_io_port.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "os/waitable_io_port.hpp"

namespace tiermem {

/// Moves `devices` in on success. nullptr, with `reason` set and `devices` untouched, where the
/// kernel or the build has no usable io_uring. Any thread may call it: the owner is whoever submits
/// first.
std::unique_ptr<WaitableIoPort> make_uring_port(std::vector<std::unique_ptr<BlockFile>>& devices,
                                                const PortOptions& options, std::string& reason);

}  // namespace tiermem
