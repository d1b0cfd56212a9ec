// Extents of 4 KiB to 64 MiB, and 1 to 256 transfers at once: rates of sequential reads, random
// reads and writes.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "bench/scaled_set.hpp"
#include "bench/scaling.hpp"
#include "bench/working_set.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kTimesDram = 4;
constexpr const char* kUnit = "GB/s";

}  // namespace

Status scaling_extents(Session& session) {
  const std::uint64_t most = 2 * benchmark_dram();
  for (const std::uint64_t kib : {4, 16, 64, 256, 1024, 2048, 4096, 16384, 65536}) {
    const std::uint64_t extent = kib * 1024;
    // Small extents get fewer bytes, because their cost is per extent.
    const std::uint64_t bytes = std::clamp<std::uint64_t>(extent * 16384, 256 * kMiB, most);
    session.tell(fmt::format("extents: writing those of {}", human_bytes(extent)));
    auto made = ScaledSet::create(session.settings().directory,
                                  {.bytes = bytes, .dram = bytes / kTimesDram, .extent = extent});
    if (!made.ok()) {
      return std::move(made).status();
    }
    ScaledSet& set = **made;
    Status status =
        add_points(session, "extents", static_cast<double>(extent), human_bytes(extent),
                   {{"read in order", kUnit, [&] { return set.read_in_order(); }},
                    {"read at random, one by one", kUnit, [&] { return set.read_at_random(); }},
                    {"written down", kUnit, [&] { return set.write_down(); }}});
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status scaling_depth(Session& session) {
  struct Way {
    std::uint64_t extent;
    const char* name;
    std::size_t list;  // 0: in order.
  };
  for (const Way& way :
       {Way{2 * kMiB, "2 MiB in order", 0}, Way{64 << 10, "64 KiB at random, 256 in a list", 256},
        Way{4 << 10, "4 KiB at random, 256 in a list", 256}}) {
    for (const unsigned depth : {1U, 2U, 4U, 8U, 16U, 32U, 64U, 128U, 256U}) {
      session.tell(fmt::format("depth: {}, {} at once", way.name, depth));
      const std::uint64_t bytes = way.extent < 64 << 10 ? 256 * kMiB : 512 * kMiB;
      auto made = ScaledSet::create(
          session.settings().directory,
          {.bytes = bytes, .dram = bytes / kTimesDram, .extent = way.extent, .depth = depth});
      if (!made.ok()) {
        return std::move(made).status();
      }
      ScaledSet& set = **made;
      Status status = add_points(
          session, "depth", depth, fmt::format("{} at once", depth),
          {{way.name, kUnit,
            [&] { return way.list == 0 ? set.read_in_order() : set.read_lists(way.list); }}});
      if (!status.ok()) {
        return status;
      }
    }
  }
  return {};
}

}  // namespace tiermem::bench
