// A direct path between the fake machine's disks and the memory of its devices. A copy that fails
// has written half of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/sim/fake_memory.hpp"
#include "tier/block.hpp"
#include "tier/direct_path.hpp"

namespace tiermem::sim {

/// `Port` has peek(device, offset, bytes), poke(device, offset, bytes), and refuses(device, write),
/// which returns whether the disk currently refuses.
template <typename Port>
class FakeDirect final : public DirectPath {
 public:
  FakeDirect(const BlockTier& block, Port& port, FaultDice& dice, FakeCopies& copies)
      : block_(block), port_(port), dice_(dice), copies_(copies) {}

  bool reaches(const Memory& memory, SlotId) const override {
    return !memory.space().host_addressable();
  }
  void fetch(Memory& memory, FrameId to, SlotId from, std::uint64_t bytes,
             Completion& end) override {
    auto& device = static_cast<FakeMemory&>(memory);
    const std::uint16_t disk = block_.device_of(from);
    const std::uint64_t offset = block_.device_offset(from);
    const bool fails = device.lost() || dice_.strikes("fetch") || port_.refuses(disk, false);
    device.put(to, std::vector<std::byte>(bytes / 2));
    copies_.copy(
        lane(device), true, fails,
        [this, &device, to, disk, offset, bytes] {
          device.put(to, port_.peek(disk, offset, bytes));
        },
        end);
  }
  void store(SlotId to, Memory& memory, FrameId from, std::uint64_t bytes,
             Completion& end) override {
    auto& device = static_cast<FakeMemory&>(memory);
    const std::uint16_t disk = block_.device_of(to);
    const std::uint64_t offset = block_.device_offset(to);
    const bool fails = device.lost() || dice_.strikes("store") || port_.refuses(disk, true);
    port_.poke(disk, offset, std::vector<std::byte>(bytes / 2));
    copies_.copy(
        lane(device), false, fails,
        [this, &device, from, disk, offset, bytes] {
          port_.poke(disk, offset, device.get(from, bytes));
        },
        end);
  }

 private:
  // A separate lane: it is not ordered with the device's other copies.
  static unsigned lane(const FakeMemory& device) { return 2 + device.place().index; }

  const BlockTier& block_;
  Port& port_;
  FaultDice& dice_;
  FakeCopies& copies_;
};

}  // namespace tiermem::sim
