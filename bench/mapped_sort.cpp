// std::sort of 64-bit keys in a buffer of twice DRAM, beside swap: passes over smaller and smaller
// parts.
#include <algorithm>
#include <utility>

#include "bench/mapped.hpp"
#include "bench/random_bytes.hpp"
#include "bench/sides.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kDram = 256 * kMiB;

/// Millions of keys per second. Each run has different keys, and each key is counted before and
/// after.
class Sort : public Workload {
 public:
  std::uint64_t bytes() const override { return 2 * kDram; }
  void fill(std::byte* data) override {
    ++seed_;
    sum_ = 0;
    for (std::uint64_t at = 0; at < bytes(); at += kMiB) {
      fill_random(data + at, kMiB, seed_ * 1'000'003 + at);
      const auto* const keys = reinterpret_cast<const std::uint64_t*>(data + at);
      sum_ += sum(keys, keys + kMiB / sizeof(*keys));
    }
    fresh_ = true;
  }
  double run(std::byte* data) override {
    if (!fresh_) {
      fill(data);
    }
    fresh_ = false;
    auto* const keys = reinterpret_cast<std::uint64_t*>(data);
    const double start = now_seconds();
    std::sort(keys, keys + count());
    const double took = now_seconds() - start;
    return whole(data) ? static_cast<double>(count()) / took / 1e6 : 0;
  }
  bool whole(const std::byte* data) override {
    const auto* const keys = reinterpret_cast<const std::uint64_t*>(data);
    return std::is_sorted(keys, keys + count()) && sum(keys, keys + count()) == sum_;
  }

 private:
  std::uint64_t count() const { return bytes() / sizeof(std::uint64_t); }
  /// The same in any order; because of the product, a duplicate and a missing key change it.
  static std::uint64_t sum(const std::uint64_t* from, const std::uint64_t* to) {
    std::uint64_t total = 0;
    for (; from != to; ++from) {
      total += (*from ^ (*from >> 29)) * 0xbf58476d1ce4e5b9ULL;
    }
    return total;
  }

  std::uint64_t seed_ = 0, sum_ = 0;
  bool fresh_ = false;
};

}  // namespace

Status mapped_sort(Session& session) {
  const Contest sort{.name = "mapped_sort",
                     .unit = "Mkeys/s",
                     .bar = bars::kMappedSort,
                     .make = [] { return std::make_unique<Sort>(); },
                     .dram = kDram,
                     .rounds = 1};
  return beside_swap(session, sort, swap_sides(sort));
}

}  // namespace tiermem::bench
