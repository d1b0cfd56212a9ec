// What a seed draws: its machine, its mix of calls, its faults. One thread.
#pragma once

#include <array>
#include <cstdint>

#include "tests/sim/fake_devices.hpp"

namespace tiermem::sim {

/// Each seed draws its own machine, its own mix of calls and its own faults.
struct Swarm {
  explicit Swarm(World& world)
      : host_frames(4 + world.below(28)),
        mapped(world.one_in(2)),
        parts(mapped && world.one_in(2)),
        device_frames(parts || world.one_in(2) ? 0 : 3 + world.below(13)),
        devices(device_frames == 0 ? 0 : 1 + static_cast<unsigned>(world.below(2))),
        extent_bytes(parts             ? 16384
                     : world.one_in(3) ? 8192
                                       : 4096),
        disks(1 + static_cast<unsigned>(world.below(3))),
        checksums(!world.one_in(5)),
        block_tier(!world.one_in(10)),
        crowded(parts && world.one_in(2)),
        touches_write(world.one_in(2) ? 2 : 12),
        staging_frame(extent_bytes << world.below(3)),
        staging_bytes(device_frames == 0 ? 0 : std::max(2 * extent_bytes, staging_frame)),
        shuttles(devices == 2 && world.one_in(2)) {
    const auto rate = [&](std::uint64_t often) {
      return world.one_in(2) ? 0 : often + world.below(200);
    };
    if (!world.one_in(3)) {
      faults.io_error = rate(10);
      faults.short_io = rate(5);
      faults.again = rate(5);
      faults.torn = rate(10);
      faults.no_space = rate(3);
      faults.memory = rate(20);
      faults.slow = rate(20);
      if (checksums) {
        faults.flip = rate(30);
        faults.lost_write = rate(40);
      }
    }
    for (auto& weight : weights) {
      weight = world.one_in(4) ? 0 : 1 + world.below(10);
    }
    weights[0] += 2;  // Some allocation,
    weights[1] += 4;  // and some access, always.
    weights[13] = mapped ? weights[13] * 3 + (parts ? 20 : 0) : 0;
    if (crowded) {
      host_frames = 10 + world.below(8);
      weights[0] += 10;
      weights[1] = weights[3] = weights[4] = weights[10] = 1;
      weights[7] += 25;
      weights[13] += 100;
    }
    weights[16] = block_tier ? weights[16] : 0;
    weights[16] *= 4;  // Most find no two buffers for it.
    weights[18] = device_frames != 0 ? weights[18] * 50 : 0;
    for (std::size_t i = 0; i < 17; ++i) {
      weights[i] *= 50;  // Of some hundred calls one loses a device, where any does.
    }
    weights[19] *= 100;
    weights[17] = device_frames != 0 && weights[17] % 2 == 1 ? 10 : 0;
    // Forks, and children's ends: where there is one space, as a context has that follows forks.
    weights[15] = block_tier && device_frames == 0 ? (weights[15] + 3) / 4 : 0;
  }
  std::uint64_t host_frames;
  bool mapped, parts;           // Parts: extents of several pages, and many touches.
  std::uint64_t device_frames;  // Of each device.
  unsigned devices;
  std::uint64_t extent_bytes;
  unsigned disks;
  bool checksums, block_tier;
  bool crowded;  // Much mapped memory, of which little fits, and hardly any calls but touches.
  std::uint64_t touches_write;  // One in so many.
  std::uint64_t staging_frame, staging_bytes;
  bool shuttles;  // Nearly all is wanted on one of two devices.
  FaultRates faults;
  std::array<std::uint64_t, 20> weights{};
};

struct Dice final : FaultDice {
  Dice(World& w, const FaultRates& r) : world(w), rates(r) {}
  World& world;
  const FaultRates& rates;
  bool strikes(const char*) override { return world.one_in(rates.memory); }
};

}  // namespace tiermem::sim
