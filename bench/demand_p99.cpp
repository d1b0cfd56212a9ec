// How long a thread waits for 2 MiB from disk while another thread writes more than fits into
// memory. The device always has writes, and each read needs room first. The peer is the device's
// own time for such a read under as many writes as keep it busy.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "bench/bare_io.hpp"
#include "bench/core.hpp"
#include "bench/random_bytes.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kExtent = std::uint64_t{2} << 20;
constexpr std::uint64_t kDram = std::uint64_t{512} << 20;
constexpr std::uint64_t kCold = 4 * kDram / kExtent;  // Extents that are read, round and round.
// Extents that are written, round and round.
constexpr std::uint64_t kWritten = 2 * kDram / kExtent;
constexpr std::uint64_t kMoves = 1009;  // Source positions for filling an extent.
constexpr unsigned kReads = 256;        // Per sample.
constexpr unsigned kDepth = 16;  // Writes in flight beside a bare read: the smallest depth that
                                 // reaches the full rate (docs/performance.md, the peers of
                                 // demote_2m).

double p99(std::vector<double> seconds) {
  const auto at = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() * 99 / 100);
  std::nth_element(seconds.begin(), at, seconds.end());
  return *at;
}

class Loaded {
 public:
  static Result<std::unique_ptr<Loaded>> create(const std::string& directory) {
    std::unique_ptr<Loaded> made(new Loaded);
    auto context = Context::create(fmt::format("dram={}; nvme={}:{}", kDram, directory, 8 * kDram));
    if (!context.ok()) {
      return std::move(context).status();
    }
    made->context_ = std::move(*context);
    made->source_.resize(kExtent + kMoves * 64);
    fill_random(made->source_.data(), made->source_.size(), 11);
    for (std::uint64_t i = 0; i < kCold + kWritten; ++i) {
      auto buffer = made->context_->alloc(kExtent, {.extent_bytes = kExtent});
      if (!buffer.ok()) {
        return std::move(buffer).status();
      }
      made->buffers_.push_back(std::move(*buffer));
      if (Status filled = made->fill(i); !filled.ok()) {
        return filled;
      }
    }
    return made;
  }

  /// The 99th percentile of kReads reads, in ms, and the bytes written during them.
  Result<Sample> read_beside_writes() {
    std::atomic<bool> stop{false};
    Status wrote;
    const Stats before = context_->stats();
    const double start = now_seconds();
    std::thread writer([&] {
      while (!stop && wrote.ok()) {
        wrote = fill(kCold + written_++ % kWritten);
      }
    });
    std::vector<double> waits;
    Status read;
    std::uint64_t came = before.promoted;
    while (waits.size() < kReads && read.ok()) {
      const double begun = now_seconds();
      auto view = buffers_[read_++ % kCold].acquire(kRead);
      const double took = now_seconds() - begun;
      read = std::move(view).status();
      // Some are resident: a policy that resists loops keeps a part of this one.
      if (const std::uint64_t now = context_->stats().promoted; now != came) {
        came = now;
        waits.push_back(took);
      }
    }
    stop = true;
    writer.join();
    if (!read.ok() || !wrote.ok()) {
      return read.ok() ? std::move(wrote) : std::move(read);
    }
    const Stats after = context_->stats();
    rates.push_back(static_cast<double>(after.demoted - before.demoted) / (now_seconds() - start) /
                    1e9);
    return Sample{p99(std::move(waits)) * 1e3};
  }

  std::vector<double> rates;  ///< GB/s written beside the reads, for each sample.

 private:
  Loaded() = default;
  Status fill(std::uint64_t index) {
    auto view = buffers_[index].acquire(kDiscard);
    if (!view.ok()) {
      return std::move(view).status();
    }
    // Different bytes each time, in every block: an unchanged block is not written again.
    std::memcpy(view->data(), source_.data() + ++fills_ * 12347 % kMoves * 64, kExtent);
    return {};
  }

  std::unique_ptr<Context> context_;
  std::vector<Buffer> buffers_;
  std::vector<std::byte> source_;
  std::uint64_t fills_ = 0;  // For the same reason as written_.
  std::uint64_t read_ = 0;
  std::uint64_t written_ = 0;  // Belongs to the writer while it runs.
};

}  // namespace

Status demand_p99(Session& session) {
  session.tell("demand_p99: writing the sets");
  auto bare = BareIo::create(session.settings().directory, 2 * kDram);
  if (!bare.ok()) {
    return std::move(bare).status();
  }
  auto loaded = Loaded::create(session.settings().directory);
  if (!loaded.ok()) {
    return std::move(loaded).status();
  }
  const BareIo::Setting setting{.fixed = true, .huge = true, .depth = kDepth};
  std::vector<double> rates;
  const Peer peer{setting.text(), fmt::format("{} writes of 2 MiB and one read", kDepth),
                  [&] { return (*bare)->read_beside_writes(setting, kReads, rates, p99); }};
  Status compared = session.compare(
      "demand_p99", "ms", Better::lower, bars::kDemandP99,
      [&] { return (*loaded)->read_beside_writes(); }, peer);
  if (compared.ok()) {
    session.note(fmt::format("demand_p99: {:.3g} GB/s written beside the reads, the peer {:.3g}",
                             median((*loaded)->rates), median(rates)));
  }
  return compared;
}

}  // namespace tiermem::bench
