// Copies and sets, as streams run them. Device addresses are looked up when the stream comes to
// the copy, and once more when it is over: memory that was unmapped under it is an illegal access.
#pragma once

#include <cstdint>
#include <vector>

#include "os/cuda_types.hpp"
#include "support/fake_cuda/call.hpp"

namespace tiermem::test {

/// What an address is, by the call that has it. `any` is what the driver finds it to be.
enum class Side : std::uint8_t { host, device, any };

/// One copy, or a set.
struct Copy {
  cuda::DevicePointer to = 0;
  cuda::DevicePointer from = 0;
  std::uint64_t bytes = 0;
  Side to_side = Side::any;
  Side from_side = Side::any;
  bool sets = false;  ///< `from` is no address, and the bytes become `value`.
  unsigned char value = 0;
  bool pageable = false;  ///< Of the host's side, by examine().
  /// Whose access to a side's memory counts; -1: the stream's device's.
  int to_device = -1;
  int from_device = -1;
};

/// Refuses what the driver sees at the call: a device's address for a host's, and a range that
/// leaves its registration. That a device's address is not mapped, the device finds out later.
cuda::Result examine(const World& world, Copy& copy);

/// Gives copies that need no order among them to a stream. Returns when they are done if `blocks`,
/// with the failure that the context then has.
cuda::Result start(Call& here, const StreamPointer& stream, std::vector<Copy> copies, bool blocks);

}  // namespace tiermem::test
