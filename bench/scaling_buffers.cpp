// 100 to 10 million live buffers of 4 KiB: the cost of one more allocation, of a hit, and of a
// free.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/scaling.hpp"
#include "os/host_facts.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kBytes = 4096;
constexpr std::uint64_t kMostUsed = 50'000;    // Buffers with bytes; the others have none.
constexpr std::uint64_t kOperations = 50'000;  // Minimum operations per sample.
constexpr std::uint64_t kMostFreed = 100'000;  // Per sample; the others are freed with the context.
constexpr std::uint64_t kBooks = 1024;         // Maximum bytes of memory for each.

struct Costs {
  double alloc = 0, hit = 0, free = 0;  // Nanoseconds per operation.
};

double each(double seconds, std::uint64_t count) {
  return seconds * 1e9 / static_cast<double>(count);
}

/// Writes a byte of every n-th buffer.
Status use_some(Context& context, const std::vector<Handle>& buffers, std::vector<Handle>& used) {
  const std::uint64_t step = (buffers.size() + kMostUsed - 1) / kMostUsed;
  for (std::size_t i = 0; i < buffers.size(); i += step) {
    const Access access{buffers[i], 0, 0, kWrite, {}, 0};
    ViewRecord view;
    Status status = context.acquire({&access, 1}, Timeout::forever(), {&view, 1});
    if (!status.ok()) {
      return status;
    }
    *static_cast<std::byte*>(view.data) = std::byte{1};
    (void)context.release({&view, 1});
    used.push_back(buffers[i]);
  }
  return {};
}

Result<Costs> costs_of(Context& context, std::uint64_t count) {
  const std::uint64_t rounds = std::max<std::uint64_t>(1, kOperations / count);
  Costs sum;
  std::vector<Handle> buffers(count), used;
  std::mt19937_64 random(count);
  const std::uint64_t apart = (count + kMostFreed - 1) / kMostFreed;  // 1 if there are rounds.
  for (std::uint64_t round = 0; round < rounds; ++round) {
    double start = now_seconds();
    for (Handle& buffer : buffers) {
      auto made = context.alloc(kBytes);
      if (!made.ok()) {
        return std::move(made).status();
      }
      buffer = made->detach();
    }
    sum.alloc += now_seconds() - start;
    used.clear();
    Status status = use_some(context, buffers, used);
    if (!status.ok()) {
      return status;
    }
    std::shuffle(used.begin(), used.end(), random);
    const std::uint64_t passes = std::max<std::uint64_t>(1, kOperations / rounds / used.size());
    start = now_seconds();
    for (std::uint64_t pass = 0; pass < passes; ++pass) {
      for (const Handle buffer : used) {
        ViewRecord view;
        if (!context.hit({buffer, 0, 0, kRead, {}, 0}, view) || !context.end_view(view)) {
          return fail(Code::internal, "a buffer that was written is not resident");
        }
      }
    }
    sum.hit += (now_seconds() - start) / static_cast<double>(passes * used.size());
    start = now_seconds();
    for (std::size_t i = 0; i < buffers.size(); i += apart) {
      (void)context.free(buffers[i]);
    }
    (void)context.stats();  // After this, all frees have ended.
    sum.free += now_seconds() - start;
  }
  return Costs{each(sum.alloc, rounds * count), each(sum.hit, rounds),
               each(sum.free, rounds * ((count + apart - 1) / apart))};
}

}  // namespace

Status scaling_buffers(Session& session) {
  for (const std::uint64_t count :
       {100ULL, 1'000ULL, 10'000ULL, 100'000ULL, 1'000'000ULL, 10'000'000ULL}) {
    const std::string place = fmt::format("{} buffers", count);
    const std::uint64_t left = probe_host_facts().memory_left().value_or(0);
    if (count * kBooks > left / 2) {
      session.skip("buffers: " + place,
                   fmt::format("their books may take {}, and {} are left",
                               human_bytes(count * kBooks), human_bytes(left)));
      continue;
    }
    std::vector<double> alloc, hit, free;
    for (unsigned i = 0; i < kScalingSamples; ++i) {
      session.tell("buffers: " + place);
      auto context = Context::create("dram=512M; nvme=off");
      if (!context.ok()) {
        return std::move(context).status();
      }
      const auto costs = costs_of(**context, count);
      if (!costs.ok()) {
        return costs.status().clone();
      }
      alloc.push_back(costs->alloc);
      hit.push_back(costs->hit);
      free.push_back(costs->free);
    }
    const auto at = static_cast<double>(count);
    add_point(session, {"buffers", "allocate", at}, place, "ns", alloc);
    add_point(session, {"buffers", "acquire and release, resident", at}, place, "ns", hit);
    add_point(session, {"buffers", "free", at}, place, "ns", free);
  }
  return {};
}

}  // namespace tiermem::bench
