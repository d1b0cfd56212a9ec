// Decides whether device memory of this process is tiered: on the devices that TIERMEM_GPU names,
// for allocations of at least the threshold, in a device's primary context. The first such
// allocation creates the context for it, the second of the process. If that fails, the log says
// why, once, and all memory is the driver's from then on. A child of a process with such a context
// has none, because CUDA does not work there.
//
// Threads: any. One thread creates the context while others that allocate wait up to five seconds.
#pragma once

#include <cstdint>

#include "preload/cuda_symbols.hpp"
#include "tiermem/context.hpp"

namespace tiermem {
class DeviceMemory;
}

namespace tiermem::preload {

/// Whether TIERMEM_GPU names a device. Constant.
bool device_tiering_asked();

struct DeviceTier {
  Context& context;
  DeviceMemory& memory;
};
/// Null until device memory of this process is tiered, and in a child. Otherwise it never changes.
const DeviceTier* device_tier();

/// Returns the tier for an allocation of the calling thread, or null if it goes to the driver.
const DeviceTier* tier_for(const cuda::Symbols& driver, std::uint64_t bytes, Place& gpu);
/// Whether TIERMEM_GPU names this device and tiering has not failed.
bool is_tiered(cuda::Device device);
/// Whether TIERMEM_GPU names exactly one device.
bool has_one_device();
/// The device of the thread's current context; -1 if it has none.
cuda::Device current_device(const cuda::Symbols& driver);

/// Waits until the devices have finished all work in their primary contexts. Returns the driver's
/// first failure.
cuda::Result synchronize_devices(const cuda::Symbols& driver);

/// Returns the reason, in words, why nothing is tiered. Null while tiering is on or may still
/// start.
const char* why_no_device_tier();
void follow_fork_with_devices();

}  // namespace tiermem::preload
