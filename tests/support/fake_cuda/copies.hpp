// Copies and sets, as streams execute them. Device addresses are looked up when the stream executes
// the copy, and again at its end: if the memory was unmapped in between, that is an illegal access.
#pragma once

#include <cstdint>
#include <vector>

#include "os/cuda_types.hpp"
#include "support/fake_cuda/call.hpp"

namespace tiermem::test {

/// The kind of an address, as declared by the call. For `any` the driver finds out.
enum class Side : std::uint8_t { host, device, any };

/// One copy, or a set.
struct Copy {
  cuda::DevicePointer to = 0;
  cuda::DevicePointer from = 0;
  std::uint64_t bytes = 0;
  Side to_side = Side::any;
  Side from_side = Side::any;
  bool sets = false;  ///< `from` is unused, and the bytes become `value`.
  unsigned char value = 0;
  bool pageable = false;  ///< The host's side is not page-locked; set by examine().
  /// The device that accesses a side; -1: the stream's device.
  int to_device = -1;
  int from_device = -1;
};

/// Refuses mistakes that the driver sees at the call: a device address for a host address, and a
/// range that leaves its registration. An unmapped device address is found by the device later.
cuda::Result examine(const World& world, Copy& copy);

/// Submits copies without an order among them to a stream. If `blocks`, returns when they are done,
/// with the context's failure.
cuda::Result start(Call& here, const StreamPointer& stream, std::vector<Copy> copies, bool blocks);

}  // namespace tiermem::test
