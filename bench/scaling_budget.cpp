// DRAM of 100 to 1 % of the bytes that one thread uses: views of 64 KiB at random places, uniform
// or by Zipf's law, and scans in a loop.
#include <fmt/format.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/scaled_set.hpp"
#include "bench/scaling.hpp"
#include "bench/zipf.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kExtent = 64 << 10;
// For the records of partial frames, and bytes in flight: without it, 100 % would not hold all
// bytes.
constexpr std::uint64_t kSlack = std::uint64_t{8} << 20;

/// Views per second of the extents that `next` returns.
template <typename Next>
Result<double> views(ScaledSet& set, const Next& next) {
  const double start = now_seconds();
  double took = 0;
  std::uint64_t count = 0;
  for (; took < kScalingSeconds; took = now_seconds() - start) {
    for (int i = 0; i < 16; ++i, ++count) {
      if (Status read = set.read_one(next()); !read.ok()) {
        return read;
      }
    }
  }
  return static_cast<double>(count) / took;
}

}  // namespace

Status scaling_budget(Session& session) {
  session.tell("budget: writing the set");
  auto made = ScaledSet::create(session.settings().directory,
                                {.bytes = kBytes, .dram = kBytes + kSlack, .extent = kExtent});
  if (!made.ok()) {
    return std::move(made).status();
  }
  ScaledSet& set = **made;
  std::mt19937_64 random(11);
  const Zipf zipf(set.extents());
  for (const std::uint64_t percent : {100, 95, 90, 75, 50, 25, 10, 5, 2, 1}) {
    session.tell(fmt::format("budget: {} %", percent));
    Status status = set.shrink(kBytes / 100 * percent + (percent == 100 ? kSlack : 0));
    for (std::uint64_t i = 0; percent == 100 && i < set.extents() && status.ok(); ++i) {
      status = set.read_one(i);  // All bytes fit, and are resident from the beginning.
    }
    const std::vector<Curve> curves = {
        {"views anywhere", "/s",
         [&] { return views(set, [&] { return random() % set.extents(); }); }},
        {"views by Zipf's law", "/s", [&] { return views(set, [&] { return zipf(random); }); }},
        {"scans", "GB/s", [&] { return set.scan(); }}};
    // One curve after the other: each finds the memory as it left it.
    for (std::size_t i = 0; i < curves.size() && status.ok(); ++i) {
      status = add_points(session, "budget", static_cast<double>(percent),
                          fmt::format("{} %", percent), {curves[i]});
    }
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace tiermem::bench
