// A slice of the device, the memory for its transfers, and the passes over it.
#include "cli/tune_sweep.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/results.hpp"
#include "cli/registered_ring.hpp"
#include "os/block_file.hpp"
#include "os/host_memory.hpp"
#include "os/waitable_io_port.hpp"

namespace tiermem::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSlice = 512 * kMiB;  // Usually more than a device's own memory.
constexpr std::uint64_t kLeastSlice = 16 * kMiB;
// Maximum bytes under way. Creating the pages takes time, so a short measurement gets less.
constexpr std::uint64_t kLeastMemory = 64 * kMiB, kMostMemory = 256 * kMiB;
constexpr std::uint64_t kTouched = 64 * kMiB;  // Small blocks rotate through this much memory.
constexpr unsigned kMostThreads = 16;
constexpr unsigned kMostDepth = 64;
constexpr unsigned kRounds = 5;  // Rounds of the duel.
// The division of the time: each is a fraction of the time left, in this order.
constexpr double kMeasuring = 0.75;  // Minimum fraction of the whole time.
constexpr double kPreparing = 0.10, kRingMap = 0.42, kThreadsMap = 0.45, kDuel = 0.45, kRest = 0.90;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<host::AddressRange> memory_of(bool huge, std::uint64_t bytes) {
  auto range = host::reserve({.bytes = bytes});
  if (range.ok()) {
    best_effort(
        host::advise(range->data(), bytes, huge ? host::Advise::huge : host::Advise::no_huge),
        "the kernel's default decides");
    if (const int error = host::populate(range->data(), bytes); error != 0) {
      return fail_native(Code::no_capacity, error, "allocation of {} for measuring failed: {}",
                         human_bytes(bytes), std::strerror(error));
    }
    host::write_pattern(range->data(), bytes);
  }
  return range;
}

/// The pair that a context uses without tuning.
TunePair usual_pair() {
  const Config config;
  return {config.depth, config.piece};
}

/// Divides a span of time among the remaining steps.
class Share {
 public:
  Share(double seconds, std::size_t parts) : seconds_(seconds), parts_(parts) {}
  double next() {
    const double left = std::max(0.0, seconds_ - seconds_since(start_));
    return left / static_cast<double>(std::max<std::size_t>(parts_--, 1));
  }

 private:
  const Clock::time_point start_ = Clock::now();
  const double seconds_;
  std::size_t parts_;
};

class Sweep {
 public:
  Sweep(const TuneProgress& progress, double seconds)
      : progress_(progress),
        seconds_(seconds),
        memory_(std::bit_floor(std::clamp(static_cast<std::uint64_t>(seconds * 14) * kMiB,
                                          kLeastMemory, kMostMemory))) {}

  Status open(const BlockDevice& device, const Config& config);
  Status measure_all();
  TuneReport report;

 private:
  Status prepare(double seconds);
  Status measure_map(TuneEngine engine, double seconds);
  Status measure_rest(double seconds);
  Status fight(double seconds);
  /// Sets the rate or the reason.
  Status measure(TunePoint& point, double seconds);
  template <typename Port>
  Status pass(Port& port, TunePoint& point, double seconds);
  /// Whether the point goes through the page cache.
  bool cached(const TunePoint& point) const { return !point.direct || !report.facts.direct; }
  void drop_cached() const;
  double left(double part) const { return std::max(0.0, seconds_ - seconds_since(start_)) * part; }
  void say(const std::string& what) {
    progress_(what,
              static_cast<std::uint64_t>(std::min(1.0, seconds_since(start_) / seconds_) * 1000));
  }

  const TuneProgress& progress_;
  double seconds_;
  const std::uint64_t memory_;  // Bytes of each of the two ranges.
  const Clock::time_point start_ = Clock::now();
  std::unique_ptr<BlockFile> file_;
  host::AddressRange huge_, small_;
  std::unique_ptr<WaitableIoPort> ring_;
  double best_[2] = {0, 0};  // Best rates so far, by direction.
};

Status Sweep::open(const BlockDevice& device, const Config& config) {
  struct stat status {};
  report.raw = ::stat(device.path.c_str(), &status) == 0 && S_ISBLK(status.st_mode);
  auto file = BlockFile::open({.path = device.path,
                               .limit = report.raw          ? 0
                                        : device.bytes != 0 ? std::min(device.bytes, kSlice)
                                                            : kSlice,
                               .reserve_free_bytes = config.reserve_free,
                               .require_direct = config.direct == DirectIo::require});
  if (!file.ok()) {
    return std::move(file).status();
  }
  file_ = std::move(*file);
  report.raw = file_->raw();  // The opened file decides, because the path may have changed.
  report.facts = file_->facts();
  for (const bool huge : {true, false}) {
    auto range = memory_of(huge, memory_);
    if (!range.ok()) {
      return std::move(range).status();
    }
    (huge ? huge_ : small_) = std::move(*range);
  }
  if (config.io_engine != Engine::threads) {
    ring_ = make_io_port({}, {.depth = kMostDepth, .engine = Engine::io_uring, .require = true},
                         report.no_ring);
  } else {
    report.no_ring = "io_engine=threads";
  }
  return {};
}

// Preallocated blocks read as zeros, without access to the device, until they are written. A slow
// device gets a smaller slice.
Status Sweep::prepare(double seconds) {
  constexpr std::uint64_t kStep = kLeastSlice;
  const std::uint64_t limit = std::min(report.facts.limit, kSlice) / kStep * kStep;
  if (limit == 0) {
    return fail(Code::no_capacity,
                "{}: {} are too little to measure, {} are needed; raise its size, or free space",
                report.facts.name, human_bytes(report.facts.limit), human_bytes(kStep));
  }
  if (report.raw) {
    report.slice = limit;
    return file_->grow(limit);
  }
  const auto start = Clock::now();
  do {
    Status grown = file_->grow(report.slice + kStep);
    if (!grown.ok()) {
      // The file system is nearly full; this much must do.
      return report.slice != 0 ? Status() : std::move(grown);
    }
    for (std::uint64_t at = 0; at < kStep;) {
      const ssize_t n = ::pwrite(file_->fd(false), huge_.data() + report.slice % memory_ + at,
                                 kStep - at, static_cast<off_t>(report.slice + at));
      if (n <= 0) {
        const int error = n < 0 ? errno : ENOSPC;
        return fail_native(Code::io_error, error, "{}: {}", report.facts.name,
                           std::strerror(error));
      }
      at += static_cast<std::uint64_t>(n);
    }
    report.slice += kStep;
    say("preparing");
  } while (report.slice < limit && seconds_since(start) < seconds);
  return {};
}

/// The blocks of the slice in an order without neighbours, as extents leave and return. Each block
/// occurs once before any repeats.
class Order {
 public:
  explicit Order(std::uint64_t count) : count_(count), step_(count * 618 / 1000 | 1) {
    while (std::gcd(step_, count_) != 1) {
      step_ += 2;
    }
  }
  std::uint64_t next() { return at_ = (at_ + step_) % count_; }

 private:
  const std::uint64_t count_;
  std::uint64_t step_, at_ = 0;
};

template <typename Port>
Status Sweep::pass(Port& port, TunePoint& point, double seconds) {
  const host::AddressRange& memory = point.memory == TuneMemory::small ? small_ : huge_;
  const std::uint64_t blocks = report.slice / point.block;
  const std::uint64_t touched = std::max(kTouched, point.block * point.depth);
  // A block that was read through the page cache stays in it, so it must not be read again. Bytes
  // written through the cache must also reach the device in the given time.
  const std::uint64_t most = !cached(point) ? ~std::uint64_t{0}
                             : point.write
                                 ? static_cast<std::uint64_t>(best_[1] * seconds) / point.block + 1
                                 : blocks;
  std::deque<std::uint64_t> free(touched / point.block);  // The memory rotates, as frames do.
  std::iota(free.begin(), free.end(), 0);
  Order order(blocks);
  std::uint64_t started = 0;
  std::uint64_t done = 0;
  const auto start = Clock::now();
  while (true) {
    const bool more = started < most && (started == 0 || seconds_since(start) < seconds);
    while (more && started - done < point.depth && started < most) {
      const std::uint64_t place = free.front();
      free.pop_front();
      if (!port.submit({.cookie = place,
                        .fd = file_->fd(cached(point)),
                        .write = point.write,
                        .buffered = cached(point),
                        .data = memory.data() + place * point.block,
                        .offset = order.next() * point.block,
                        .length = static_cast<std::uint32_t>(point.block)})) {
        return fail(Code::internal, "queue: refused a transfer below its depth");
      }
      ++started;
    }
    if (started == done) {
      break;
    }
    IoCompletion completions[kMostDepth];
    const std::size_t n = port.reap(completions);
    for (std::size_t i = 0; i < n; ++i) {
      if (completions[i].result != static_cast<std::int32_t>(point.block)) {
        const int error = completions[i].result < 0 ? -completions[i].result : 0;
        return fail_native(Code::io_error, error, "{}: {}; see the kernel's log (dmesg)",
                           report.facts.name,
                           error != 0 ? std::strerror(error) : "a transfer was cut short");
      }
      free.push_back(completions[i].cookie);
    }
    done += n;
    if (n == 0) {
      port.wait(-1);
    }
  }
  if (point.write && cached(point) && ::fdatasync(file_->fd(true)) != 0) {
    return fail_native(Code::io_error, errno, "{}: {}", report.facts.name, std::strerror(errno));
  }
  point.rate = static_cast<double>(done * point.block) / seconds_since(start);
  best_[point.write] = std::max(best_[point.write], point.rate);
  return {};
}

void Sweep::drop_cached() const {
  best_effort(::fdatasync(file_->fd(true)), "a file without it is measured all the same");
  best_effort(::posix_fadvise(file_->fd(true), 0, 0, POSIX_FADV_DONTNEED), "a hint");
}

Status Sweep::measure(TunePoint& point, double seconds) {
  if (point.write && report.raw) {
    point.reason = "a raw device is only read";
    return {};
  }
  if (seconds_since(start_) > seconds_) {
    point.reason = "no time was left";
    return {};
  }
  // Excludes the same block twice at once, and points that would take the time of many others.
  const std::uint64_t at_once = point.block * point.depth;
  const double rate = best_[point.write];
  if (at_once > memory_ || report.slice / point.block < point.depth ||
      (rate > 0 && static_cast<double>(at_once) / rate > 6 * seconds)) {
    point.reason = "too much at once";
    return {};
  }
  if (cached(point)) {
    drop_cached();
  }
  if (point.engine == TuneEngine::threads) {
    std::string reason;
    const auto port = make_io_port({},
                                   {.depth = point.depth,
                                    .engine = Engine::threads,
                                    .threads = std::min(point.depth, kMostThreads)},
                                   reason);
    if (port == nullptr) {
      point.reason = reason;
      return {};
    }
    return pass(*port, point, seconds);
  }
  if (ring_ == nullptr) {
    point.reason = report.no_ring;
    return {};
  }
  if (point.memory != TuneMemory::registered) {
    return pass(*ring_, point, seconds);
  }
  const auto ring = RegisteredRing::create(huge_, kMostDepth, point.reason);
  return ring != nullptr ? pass(*ring, point, seconds) : Status();
}

Status Sweep::measure_map(TuneEngine engine, double seconds) {
  std::vector<TunePoint> points;
  for (const bool write : {false, true}) {
    for (const std::uint64_t block : kTuneBlocks) {
      for (const unsigned depth : kTuneDepths) {
        if (engine == TuneEngine::io_uring || depth <= kMostThreads) {
          points.push_back({block, depth, engine, TuneMemory::huge, true, write, 0, {}});
        }
      }
    }
  }
  Share share(seconds, points.size());
  for (TunePoint& point : points) {
    say(fmt::format("{} with {}", point.write ? "writing" : "reading", engine_name(engine)));
    Status status = measure(point, share.next());
    if (!status.ok()) {
      return status;
    }
    report.map.push_back(std::move(point));
  }
  return {};
}

Status Sweep::measure_rest(double seconds) {
  std::vector<TunePoint> points;
  const auto add = [&](bool direct, TuneEngine engine, TuneMemory memory) {
    const unsigned depth = engine == TuneEngine::io_uring
                               ? report.best.depth
                               : std::min(report.best.depth, kMostThreads);
    for (const bool write : {false, true}) {
      points.push_back({report.best.piece, depth, engine, memory, direct, write, 0, {}});
    }
  };
  for (const bool direct : {true, false}) {  // The slowest last, because the time may run out.
    if (direct && !report.facts.direct) {
      continue;
    }
    for (const TuneMemory memory : {TuneMemory::huge, TuneMemory::small}) {
      add(direct, TuneEngine::io_uring, memory);
      add(direct, TuneEngine::threads, memory);
    }
    add(direct, TuneEngine::io_uring, TuneMemory::registered);
  }
  Share share(seconds, points.size());
  for (TunePoint& point : points) {
    say(fmt::format("{}, {}, {}", engine_name(point.engine), memory_name(point.memory),
                    point.direct ? "direct" : "buffered"));
    Status status = measure(point, share.next());
    if (!status.ok()) {
      return status;
    }
    report.rest.push_back(std::move(point));
  }
  return {};
}

// Alternates, so that other load on the device affects both pairs.
Status Sweep::fight(double seconds) {
  const TunePair pairs[2] = {usual_pair(), report.best};
  Share share(seconds, std::size_t{2} * 2 * kRounds);
  for (unsigned round = 0; round < kRounds; ++round) {
    for (const bool write : {false, true}) {
      for (const unsigned which : {0U, 1U}) {
        say(fmt::format("depth {}, {} at a time", pairs[which].depth,
                        human_bytes(pairs[which].piece)));
        TunePoint point{.block = pairs[which].piece, .depth = pairs[which].depth, .write = write};
        Status status = measure(point, share.next());
        if (!status.ok()) {
          return status;
        }
        if (point.rate > 0) {
          (write ? report.duel.write : report.duel.read)[which].push_back(point.rate);
        }
      }
    }
  }
  return {};
}

Status Sweep::measure_all() {
  Status status = prepare(left(kPreparing));
  // On a busy machine preparation may take long; the measurement still gets its share.
  seconds_ = std::max(seconds_, seconds_since(start_) + kMeasuring * seconds_);
  const bool ring = ring_ != nullptr;
  if (status.ok() && ring) {
    status = measure_map(TuneEngine::io_uring, left(kRingMap));
  }
  if (status.ok()) {
    status = measure_map(TuneEngine::threads, left(kThreadsMap));
  }
  if (!status.ok()) {
    return status;
  }
  if (best_[0] == 0) {
    return fail(Code::timed_out, "{}: nothing could be measured in {:.0f} s; give it more time",
                report.facts.name, seconds_);
  }
  // Without io_uring a context uses a few threads, so the device's depth is not a choice.
  report.chosen = usual_pair();
  report.best = ring ? best_pair(report.map, usual_pair()) : usual_pair();
  if (report.best != usual_pair()) {
    status = fight(left(kDuel));
    report.chosen = challenger_wins(report.duel) ? report.best : usual_pair();
  }
  report.gap = coalescing_gap(report.map, report.chosen.depth);
  if (status.ok()) {
    status = measure_rest(left(kRest));
  }
  report.seconds = seconds_since(start_);
  return status;
}

}  // namespace

Result<TuneReport> tune_device(const BlockDevice& device, const Config& config, double seconds,
                               const TuneProgress& progress) {
  constexpr double kCleaningUp = 0.1;
  Sweep sweep(progress, std::max(seconds, 1.0) * (1 - kCleaningUp));
  Status status = sweep.open(device, config);
  if (status.ok()) {
    status = sweep.measure_all();
  }
  if (!status.ok()) {
    return status;
  }
  return std::move(sweep.report);
}

}  // namespace tiermem::cli
