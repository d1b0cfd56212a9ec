// 1 to 64 threads use one context at once: hits, each thread with its own buffer, and views of
// random extents in a set of four times DRAM. Most of these are read from disk.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/scaled_set.hpp"
#include "bench/scaling.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kDram = 128 * kMiB;
constexpr std::uint64_t kExtent = 64 << 10;
constexpr unsigned kMost = 64;

/// Calls of `once(thread)` per second, over all threads; `once` returns whether it succeeded.
template <typename Once>
Result<double> together(unsigned threads, const Once& once) {
  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> stop{false}, failed{false};
  const auto work = [&](unsigned thread) {
    std::uint64_t mine = 0;
    for (bool good = true; good && !stop.load(std::memory_order_relaxed); ++mine) {
      good = once(thread);
      failed = failed || !good;
    }
    done += mine;
  };
  const double start = now_seconds();
  std::vector<std::thread> workers;
  for (unsigned thread = 0; thread < threads; ++thread) {
    workers.emplace_back(work, thread);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(kScalingSeconds));
  stop = true;
  for (std::thread& worker : workers) {
    worker.join();
  }
  const double took = now_seconds() - start;
  return failed ? Result<double>(fail(Code::internal, "a view was refused, or had wrong bytes"))
                : static_cast<double>(done) / took;
}

}  // namespace

Status scaling_callers(Session& session) {
  session.tell("callers: writing the set");
  auto set = ScaledSet::create(session.settings().directory,
                               {.bytes = 4 * kDram, .dram = kDram, .extent = kExtent});
  if (!set.ok()) {
    return std::move(set).status();
  }
  auto hits = Context::create("dram=64M; nvme=off");
  if (!hits.ok()) {
    return std::move(hits).status();
  }
  std::vector<Buffer> buffers;
  std::vector<std::mt19937_64> dice;
  for (unsigned i = 0; i < kMost; ++i) {
    auto buffer = (*hits)->alloc(kExtent);
    if (!buffer.ok()) {
      return std::move(buffer).status();
    }
    const std::uint64_t number = i;
    if (Status written = buffer->write(0, &number, sizeof(number)); !written.ok()) {
      return written;
    }
    buffers.push_back(std::move(*buffer));
    dice.emplace_back(i);
  }
  for (const unsigned threads : {1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
    const auto hit = [&](unsigned thread) {
      for (int i = 0; i < 1000; ++i) {
        ViewRecord view;
        if (!(*hits)->hit(buffers[thread].range(), view) || !(*hits)->end_view(view)) {
          return false;
        }
      }
      return true;
    };
    Status status = add_points(
        session, "callers", threads, fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"),
        {{"hits, a buffer each", "/s",
          [&]() -> Result<double> {
            auto thousands = together(threads, hit);
            return thousands.ok() ? Result<double>(*thousands * 1000)
                                  : std::move(thousands).status();
          }},
         {"views of 64 KiB anywhere, a quarter resident", "/s", [&] {
            return together(threads, [&](unsigned thread) {
              return (*set)->read_one(dice[thread]() % (*set)->extents()).ok();
            });
          }}});
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace tiermem::bench
