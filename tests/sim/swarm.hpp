// The properties that a seed draws: its machine, its mix of calls, its faults. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "tests/sim/fake_devices.hpp"
#include "tier/page_codec.hpp"

namespace tiermem::sim {

/// Each seed draws its own machine, its own mix of calls and its own faults.
struct Swarm {
  /// `memories`: the host may have several. `tiers`: there may be several slot tiers. They are
  /// drawn apart, so that all else in the world of a seed stays the same.
  Swarm(World& world, std::uint64_t seed, bool memories, bool tiers)
      : large(seed % 500 == 0),
        sparse(!large && seed % 6 == 4),
        host_frames(large ? 2000 + world.below(14'000) : 4 + world.below(28)),
        mapped(world.one_in(2)),
        parts(mapped && world.one_in(2)),
        device_frames(parts || world.one_in(2) ? 0 : 3 + world.below(13)),
        devices(device_frames == 0 ? 0 : 1 + static_cast<unsigned>(world.below(2))),
        extent_bytes(sparse            ? 32768
                     : parts           ? 16384
                     : world.one_in(3) ? 8192
                                       : 4096),
        disks(1 + static_cast<unsigned>(world.below(3))),
        checksums(!world.one_in(5)),
        block_tier(!world.one_in(10)),
        crowded(parts && world.one_in(2)),
        touches_write(world.one_in(2) ? 2 : 12),
        staging_frame(extent_bytes << world.below(3)),
        staging_bytes(device_frames == 0 ? 0 : std::max(2 * extent_bytes, staging_frame)),
        shuttles(devices == 2 && world.one_in(2)),
        direct(devices != 0 && !checksums && seed % 2 == 0),
        worn(seed % 8 == 3 || seed % 8 == 4),
        left(static_cast<std::uint32_t>(seed / 8 % 200)) {
    const bool rough = world.one_in(3);
    const auto rate = [&](std::uint64_t often) {
      return world.one_in(2) ? 0 : often + world.below(rough ? often : 200);
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
    weights[0] += 2;  // There is always some allocation
    weights[1] += 4;  // and some access.
    weights[13] = mapped ? weights[13] * 3 + (parts ? 20 : 0) : 0;
    if (crowded && !large) {
      host_frames = 10 + world.below(8);
      weights[0] += 10;
      weights[1] = weights[3] = weights[4] = weights[10] = 1;
      weights[7] += 25;
      weights[13] += 100;
    }
    weights[16] = block_tier ? weights[16] : 0;
    weights[16] *= 4;  // Most attempts find no two suitable buffers.
    weights[18] = device_frames != 0 ? weights[18] * 50 : 0;
    for (std::size_t i = 0; i < 17; ++i) {
      weights[i] *= 50;  // If devices may be lost, one of some hundred calls loses one.
    }
    weights[19] *= 100;
    weights[17] = device_frames != 0 && weights[17] % 2 == 1 ? 10 : 0;
    // Forks and ends of children need one space, because a context that follows forks has only one.
    weights[15] = block_tier && device_frames == 0 && !large ? (weights[15] + 3) / 4 : 0;
    repeats = world.one_in(4);
    block_budget = world.one_in(5) ? (1 + world.below(host_frames)) * extent_bytes : block_budget;
    if (sparse) {
      // Most pages stay zeros, and there is about enough room for the stored ones.
      block_budget = (1 + world.below(4 * host_frames)) * kSmallestExtent;
      touches_write = 2;
    }
    if (checksums && world.one_in(8)) {  // Many bytes are lost, and lost bytes are used.
      faults.flip = 2 + world.below(6);
      faults.lost_write = 2 + world.below(6);
    }
    troubles = world.one_in(2) ? 0 : 1 + world.below(30);
    inspects = world.below(30);
    if (tiers && block_tier) {
      draw_tiers(seed);
    }
    if (parts && checksums && block_tier && PageCodec::available()) {
      std::mt19937_64 own(seed * 0x9E3779B97F4A7C15u + 13);
      // Most pages shrink to a cell or two: only a few extents' room is ever full.
      const std::uint64_t extents = own() % 3 != 0 ? 1 + own() % 2 : 1 + own() % host_frames;
      compressed = own() % 2 == 0 ? extents * extent_bytes : 0;
    }
    maps_files = mapped && std::mt19937_64(seed * 0x9E3779B97F4A7C15u + 11)() % 2 == 0;
    if (memories) {
      std::mt19937_64 dice(seed + 0xC2B2AE3D27D4EB4Fu);
      for (std::uint64_t n = dice() % 4; n > 0; --n) {
        further_frames.push_back(1 + dice() % (dice() % 2 == 0 ? 6 : host_frames + 2));
      }
    }
    shares_chunks =
        !large && !sparse && std::mt19937_64(seed * 0x9E3779B97F4A7C15u + 17)() % 8 == 0;
    last_is_plain =
        !further_frames.empty() && std::mt19937_64(seed * 0x9E3779B97F4A7C15u + 13)() % 2 == 0;
  }

  /// Excludes one kind of call or fault. Returns false if the name is unknown.
  bool leave_out(std::string_view name) {
    for (std::size_t i = 0; i < kCalls.size(); ++i) {
      if (kCalls[i] == name) {
        weights[i] = 0;
        return true;
      }
    }
    for (const auto& [fault, rate] : kFaults) {
      if (fault == name) {
        faults.*rate = 0;
        return true;
      }
    }
    if (name == "tiers") {
      return true;  // The constructor has left them out.
    }
    compressed = name == "compressed" ? 0 : compressed;
    maps_files = maps_files && name != "mapped_files";
    troubles = name == "trouble" ? 0 : troubles;
    inspects = name == "inspect" ? 0 : inspects;
    confirms = confirms && name != "confirm";
    return name == "trouble" || name == "inspect" || name == "confirm" || name == "mapped_files" ||
           name == "compressed";
  }
  static constexpr std::array<std::string_view, 20> kCalls = {
      "alloc",   "acquire", "release",    "use",    "free",    "prefetch", "evict",
      "discard", "cancel",  "clean",      "budget", "adopt",   "change",   "touch",
      "advise",  "fork",    "move_slots", "lose",   "release", "gather"};
  static constexpr std::array<std::pair<std::string_view, std::uint64_t FaultRates::*>, 9> kFaults =
      {{{"io_error", &FaultRates::io_error},
        {"short_io", &FaultRates::short_io},
        {"again", &FaultRates::again},
        {"torn", &FaultRates::torn},
        {"flip", &FaultRates::flip},
        {"lost_write", &FaultRates::lost_write},
        {"no_space", &FaultRates::no_space},
        {"memory", &FaultRates::memory},
        {"slow", &FaultRates::slow}}};

  bool large;   ///< Some 100,000 extents; invariants are checked after every 256 events.
  bool sparse;  // Extents of eight pages; few pages are written.
  std::uint64_t host_frames;
  std::vector<std::uint64_t> further_frames;  // Frames of each memory of the host after the first.
  // The last of them takes no extent of a mapped or read-only window. A draw of its own.
  bool last_is_plain = false;
  // Small frames of one size share chunks in the first memory. A draw of its own.
  bool shares_chunks = false;
  bool mapped, parts;  // Parts: extents of several pages, and many touches.
  // Some adopted files are mapped, some of them private. A draw of its own: all else is the same.
  bool maps_files = false;
  std::uint64_t device_frames;  // Per device.
  unsigned devices;
  std::uint64_t extent_bytes;
  unsigned disks;
  bool checksums, block_tier;
  bool repeats = false;  // Most buffers have one shape: a freed one serves the next.
  std::uint64_t block_budget = ~std::uint64_t{0};
  std::vector<std::uint64_t> further;  // The budgets of further slot tiers, by rank.
  std::uint64_t compressed = 0;    // The budget of compressed memory; 0: none. A draw of its own.
  std::uint64_t ready_share = 16;  // One part in this many of a slot tier is kept ready.
  bool crowded;                    // Much mapped memory, little of which fits, and mostly touches.
  std::uint64_t touches_write;     // One in this many.
  std::uint64_t staging_frame, staging_bytes;
  bool shuttles;       // Nearly all acquires are on one of two devices.
  bool direct;         // Direct transfers between devices and disks.
  bool worn;           // Counters that may wrap or run out begin near their ends:
  std::uint32_t left;  // this far from them.
  FaultRates faults;
  std::array<std::uint64_t, 20> weights{};
  std::uint64_t troubles = 0, inspects = 0;  // Per thousand events.
  bool confirms = true;                      // Whether blocks of earlier gathers are confirmed.

 private:
  // A third of the seeds has two or three slot tiers. Mostly the first ones are small, so that
  // bytes go on to the next. A draw of its own: all else is as in a world of one tier.
  void draw_tiers(std::uint64_t seed) {
    std::mt19937_64 own(seed * 0x9E3779B97F4A7C15u + 5);
    const auto few = [&] {
      const std::uint64_t least = sparse ? kSmallestExtent : extent_bytes;
      return (1 + own() % host_frames) * least;
    };
    if (own() % 3 != 0) {
      return;
    }
    block_budget = own() % 4 != 0 ? few() : block_budget;
    for (std::uint64_t n = 1 + own() % 2; n > 0; --n) {
      further.push_back(own() % 3 != 0 ? ~std::uint64_t{0} : few());
    }
    ready_share = own() % 2 == 0 ? 2 : 16;
  }
};

struct Dice final : FaultDice {
  Dice(World& w, const FaultRates& r) : world(w), rates(r) {}
  World& world;
  const FaultRates& rates;
  bool strikes(const char*) override { return world.strikes(rates.memory); }
  void crossed(const char* what, std::uint64_t frame) override { world.crossed(what, frame); }
};

}  // namespace tiermem::sim
