// The io_uring port: one ring for all devices of a tier. This header only declares its creation, so
// the other code builds without liburing. Threads: see waitable_io_port.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "os/waitable_io_port.hpp"

namespace tiermem {

/// Creates the port and, on success, moves `devices` into it. Returns nullptr, with `reason` set
/// and `devices` unchanged, if the kernel or the build has no usable io_uring. Any thread may call
/// it; the first thread that submits becomes the owner.
std::unique_ptr<WaitableIoPort> make_uring_port(std::vector<std::unique_ptr<BlockFile>>& devices,
                                                const PortOptions& options, std::string& reason);

}  // namespace tiermem
