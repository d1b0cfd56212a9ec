// Whether device memory of this process is tiered: on the devices that TIERMEM_GPU names, in
// allocations that are large enough, made in a device's primary context. The context for it, the
// second of the process, is made by the first of these. If it cannot be, the log says why, once,
// and all memory is the driver's from then on. A child of a process that has it has none: CUDA does
// not work there.
//
// Threads: any. The context is made by one thread, while others that allocate wait a while.
#pragma once

#include <cstdint>

#include "preload/cuda_symbols.hpp"
#include "tiermem/context.hpp"

namespace tiermem {
class DeviceMemory;
}

namespace tiermem::preload {

/// TIERMEM_GPU names a device. Constant.
bool device_tiering_asked();

struct DeviceTier {
  Context& context;
  DeviceMemory& memory;
};
/// Null: nothing of this process was ever tiered, or it is a child. Once there, it stays.
const DeviceTier* device_tier();

/// Where the calling thread's allocation goes. Null: to the driver.
const DeviceTier* tier_for(const cuda::Symbols& driver, std::uint64_t bytes, Place& gpu);
/// TIERMEM_GPU names this device, and nothing has gone wrong.
bool is_tiered(cuda::Device device);
/// And no other.
bool has_one_device();
/// Of the thread's current context; -1: there is none.
cuda::Device current_device(const cuda::Symbols& driver);

/// Waits until the devices have done what they were given in their primary contexts. The driver's
/// first failure.
cuda::Result synchronize_devices(const cuda::Symbols& driver);

/// Why nothing is tiered, in words; null while that may yet be, or is.
const char* why_no_device_tier();
void follow_fork_with_devices();

}  // namespace tiermem::preload
