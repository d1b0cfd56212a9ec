// A touch that needs no I/O: the extent has left its window, but its frame still holds the bytes.
// The peer is a bare trip through userfaultfd: one thread touches an absent page, and another
// sleeps on the descriptor and answers. Medians of many touches, in microseconds.
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/bare_trip.hpp"
#include "bench/mapped.hpp"
#include "bench/mapped_set.hpp"
#include "os/host_memory.hpp"

namespace tiermem::bench {
namespace {

constexpr unsigned kMeetings = 30;  // Touches per sample of extents that are leaving.
constexpr unsigned kTries = 3000;   // Attempts to get them.
// After this many attempts without one, this build keeps no extent on its way out.
constexpr unsigned kInVain = 1000;
constexpr std::uint64_t kExtents = 32;

bool absent(std::byte* at) {
  unsigned char there = 1;
  return ::mincore(at, host::kPage, &there) == 0 && (there & 1) == 0;
}

/// A thread that evicts an extent on command.
class Evictor {
 public:
  Evictor(const Buffer& buffer, std::uint64_t extent)
      : buffer_(buffer), extent_(extent), thread_([this] { serve(); }) {}
  ~Evictor() {
    order_ = kStop;
    order_.notify_one();
    thread_.join();
  }
  Evictor(const Evictor&) = delete;
  Evictor& operator=(const Evictor&) = delete;

  void begin(std::uint64_t index) {
    order_ = index;
    order_.notify_one();
  }
  bool under_way() const { return order_ != kNothing; }
  void wait() const {
    for (std::uint64_t order = order_; order != kNothing; order = order_) {
      order_.wait(order);
    }
  }

 private:
  static constexpr std::uint64_t kNothing = ~std::uint64_t{0}, kStop = kNothing - 1;
  void serve() {
    while (true) {
      order_.wait(kNothing);
      const std::uint64_t order = order_;
      if (order == kStop) {
        return;
      }
      // Returns busy if a touch was faster, which is expected.
      (void)buffer_.evict(order * extent_, extent_);
      order_ = kNothing;
      order_.notify_one();
    }
  }

  const Buffer& buffer_;
  const std::uint64_t extent_;
  std::atomic<std::uint64_t> order_{kNothing};
  std::thread thread_;  // It uses all members above.
};

/// Extents of a buffer that fits. They are evicted one after the other, and each is touched as soon
/// as it has left its window.
class Standby {
 public:
  Status open(const std::string& directory, std::uint64_t extent) {
    extent_ = extent;
    auto set =
        MappedSet::create(directory, 2 * kExtents * host::kHugePage, kExtents * extent, extent);
    if (!set.ok()) {
      return std::move(set).status();
    }
    set_ = std::move(*set);
    for (std::uint64_t index = 0; index < kExtents; ++index) {
      first_.push_back(set_.data[index * extent]);
    }
    return set_.buffer.evict();  // All bytes are in slots: nothing is written from now on.
  }

  Result<Sample> run() {
    std::vector<double> took;
    Evictor evictor(set_.buffer, extent_);
    unsigned tries = 0;
    while (took.size() < kMeetings && tries < (took.empty() ? kInVain : kTries)) {
      // In an order that causes no read-ahead.
      const std::uint64_t index = ++tries * 13 % kExtents;
      std::byte* const at = set_.data + index * extent_;
      (void)touch_us(at);
      const Stats before = settled(index);
      evictor.begin(index);
      while (!absent(at) && evictor.under_way()) {
      }
      const double us = touch_us(at);
      if (*at != first_[index]) {
        return fail(Code::io_error, "a byte was read that is not the one written");
      }
      evictor.wait();
      const Stats after = settled(index);
      // It was absent, and came without a read.
      if (after.faults != before.faults && after.promoted == before.promoted &&
          after.prefetched == before.prefetched) {
        took.push_back(us);
      }
    }
    if (took.size() < kMeetings) {
      return fail(Code::unavailable, "{} of {} touches met an extent on its way out; {} are wanted",
                  took.size(), tries, kMeetings);
    }
    return Sample{median(std::move(took))};
  }

 private:
  /// The counters once nothing of this extent is in flight. A touch continues before the mover has
  /// recorded it; a view does not.
  Stats settled(std::uint64_t index) const {
    (void)set_.buffer.acquire(kRead, index * extent_, extent_);
    return set_.context->stats();
  }

  std::uint64_t extent_ = 0;
  MappedSet set_;
  std::vector<std::byte> first_;  // One for each extent.
};

/// First touches of extents that were never written, which also need no I/O. The extents are far
/// apart, so that none is read ahead. Uses a new buffer each time.
Result<Sample> first_touches(Context& context, std::uint64_t extent) {
  constexpr std::uint64_t kApart = 7;
  auto buffer = context.alloc(kTrips * kApart * extent, {.extent_bytes = extent, .flags = kMapped});
  if (!buffer.ok()) {
    return std::move(buffer).status();
  }
  std::byte* const data = *buffer->address();
  std::vector<double> took;
  for (std::uint64_t i = 0; i < kTrips; ++i) {
    // 37 and 100 have no common divisor: each extent once, none beside the previous one.
    std::byte* const at = data + i * 37 % kTrips * kApart * extent;
    took.push_back(touch_us(at));
    if (*at != std::byte{0}) {
      return fail(Code::io_error, "what was never written is not zero");
    }
  }
  return Sample{median(std::move(took))};
}

Status standby(Session& session, BareTrips& bare, const std::string& name, std::uint64_t extent) {
  auto peer = bare.best(session, name);
  if (!peer.ok()) {
    return std::move(peer).status();
  }
  Standby ours;
  if (Status ready = ours.open(session.settings().directory, extent); !ready.ok()) {
    return ready;
  }
  Status compared = session.compare(
      name, "us", Better::lower, bars::kMappedFault, [&] { return ours.run(); }, *peer);
  if (compared.code() == Code::unavailable) {
    session.skip(name, compared.message());
    return {};
  }
  return compared;
}

Status first_touch(Session& session, BareTrips& bare, const std::string& name,
                   std::uint64_t extent) {
  auto context = Context::create(fmt::format("dram={}; nvme=off", 1024 * host::kHugePage));
  if (!context.ok()) {
    return std::move(context).status();
  }
  auto peer = bare.best(session, name);
  return peer.ok() ? session.compare(
                         name, "us", Better::lower, 0,
                         [&] { return first_touches(**context, extent); }, *peer)
                   : std::move(peer).status();
}

}  // namespace

Status mapped_fault(Session& session) {
  for (const auto& [extent, size] : {std::pair{host::kPage, "4k"}, {host::kHugePage, "2m"}}) {
    const std::string name = fmt::format("mapped_fault_{}", size);
    BareTrips bare;
    if (Status opened = bare.open(extent); !opened.ok()) {
      session.skip(name, opened.message());
      continue;
    }
    const std::size_t rows = session.rows().size();
    Status status = standby(session, bare, name, extent);
    if (status.ok() && extent == host::kHugePage && session.rows().size() > rows) {
      Row row;
      row.name = name + "_absolute";
      row.unit = "us";
      row.value = session.rows().back().value;
      row.value_bar = bars::kMappedFault2mUs;
      session.add(std::move(row));
    }
    status = status.ok() ? first_touch(session, bare, name + "_first", extent) : std::move(status);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace tiermem::bench
