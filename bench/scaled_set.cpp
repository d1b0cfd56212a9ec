// Fills, reads and writes the set.
#include "bench/scaled_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "bench/clock.hpp"
#include "bench/random_bytes.hpp"
#include "bench/scaling.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr double kSeconds = kScalingSeconds;
constexpr std::uint64_t kMoves = 1009;

double rate(std::uint64_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds / 1e9;
}

}  // namespace

Result<std::unique_ptr<ScaledSet>> ScaledSet::create(const std::string& directory,
                                                     const Shape& shape) {
  auto context = Context::create(
      fmt::format("dram={}; nvme={}:{}; tuned=off{}", shape.dram, directory, 2 * shape.bytes,
                  shape.depth == 0 ? "" : fmt::format("; depth={}", shape.depth)));
  if (!context.ok()) {
    return std::move(context).status();
  }
  auto buffer = (*context)->alloc(shape.bytes, {.extent_bytes = shape.extent, .label = "scaling"});
  if (!buffer.ok()) {
    return std::move(buffer).status();
  }
  std::unique_ptr<ScaledSet> set(new ScaledSet(shape, std::move(*context), std::move(*buffer)));
  set->source_.resize(shape.extent + kMoves * 64);
  fill_random(set->source_.data(), set->source_.size(), 5);
  Status filled = set->overwrite(0, set->extents());
  if (filled.ok()) {
    filled = set->buffer_.evict();
  }
  return filled.ok() ? Result<std::unique_ptr<ScaledSet>>(std::move(set)) : std::move(filled);
}

Status ScaledSet::overwrite(std::uint64_t first, std::uint64_t count) {
  const std::uint64_t at_once = std::max<std::uint64_t>(1, chunk() / shape_.extent);
  for (std::uint64_t i = 0; i < count; i += at_once) {
    const std::uint64_t n = std::min(at_once, count - i);
    auto view = buffer_.acquire(kDiscard, (first + i) * shape_.extent, n * shape_.extent);
    if (!view.ok()) {
      return std::move(view).status();
    }
    for (std::uint64_t extent = 0; extent < n; ++extent) {
      std::byte* const data = view->data() + extent * shape_.extent;
      const std::uint64_t number = first + i + extent;
      // Different bytes each time, in every block: an unchanged block is not written again.
      std::memcpy(data, source_.data() + ++fills_ * 12347 % kMoves * 64, shape_.extent);
      std::memcpy(data, &number, sizeof(number));
    }
  }
  return {};
}

Status ScaledSet::check(const std::byte* data, std::uint64_t extent) const {
  std::uint64_t number = 0;
  std::memcpy(&number, data, sizeof(number));
  return number == extent
             ? Status()
             : fail(Code::internal, "extent {} has the bytes of extent {}", extent, number);
}

std::uint64_t ScaledSet::chunk() const {
  return std::max(shape_.extent, kMiB);
}

Result<std::pair<double, double>> ScaledSet::stream(bool words) {
  const std::uint64_t chunk = this->chunk();
  // Enough to fill a device's queue, but no more than memory can hold beside the bytes in use.
  const auto ahead = static_cast<unsigned>(
      std::clamp<std::uint64_t>(std::min(64 * kMiB, shape_.dram / 4) / chunk, 1, 64));
  const double start = now_seconds();
  std::uint64_t bytes = 0;
  while (now_seconds() - start < kSeconds) {
    auto chunks = buffer_.stream(cursor_, shape_.bytes - cursor_, chunk, kRead, ahead);
    for (View& view : chunks) {
      for (std::uint64_t at = 0; at < view.size(); at += shape_.extent) {
        Status right = check(view.data() + at, (chunks.offset() + at) / shape_.extent);
        if (!right.ok()) {
          return right;
        }
      }
      for (std::size_t at = 0; words && at < view.size(); at += 64) {
        sum_ += *reinterpret_cast<const volatile std::uint64_t*>(view.data() + at);
      }
      bytes += view.size();
      cursor_ = (chunks.offset() + view.size()) % shape_.bytes;
      if (now_seconds() - start >= kSeconds) {
        break;
      }
    }
    if (!chunks.status().ok()) {
      return chunks.status().clone();
    }
  }
  return std::pair(static_cast<double>(bytes), now_seconds() - start);
}

Result<double> ScaledSet::read_in_order() {
  const std::uint64_t before = came_in();
  auto read = stream(false);
  return read.ok() ? Result<double>(rate(came_in() - before, read->second))
                   : std::move(read).status();
}

Result<double> ScaledSet::scan() {
  auto read = stream(true);
  return read.ok() ? Result<double>(read->first / read->second / 1e9) : std::move(read).status();
}

Status ScaledSet::read_one(std::uint64_t extent) {
  auto view = buffer_.acquire(kRead, extent * shape_.extent, shape_.extent);
  return view.ok() ? check(view->data(), extent) : std::move(view).status();
}

Result<double> ScaledSet::read_at_random() {
  const std::uint64_t before = came_in();
  const double start = now_seconds();
  double took = 0;
  for (; took < kSeconds; took = now_seconds() - start) {
    Status read = read_one(random_() % extents());
    if (!read.ok()) {
      return read;
    }
  }
  return rate(came_in() - before, took);
}

Result<double> ScaledSet::read_lists(std::size_t count) {
  std::vector<std::uint64_t> wanted(count);
  std::vector<Access> list(count);
  std::vector<ViewRecord> views(count);
  const std::uint64_t before = came_in();
  const double start = now_seconds();
  double took = 0;
  for (; took < kSeconds; took = now_seconds() - start) {
    for (std::size_t i = 0; i < count; ++i) {
      wanted[i] = random_() % extents();
      list[i] = buffer_.range(wanted[i] * shape_.extent, shape_.extent);
    }
    Status read = context_->acquire(list, Timeout::forever(), views);
    if (!read.ok()) {
      return read;
    }
    for (std::size_t i = 0; i < count && read.ok(); ++i) {
      read = check(static_cast<const std::byte*>(views[i].data), wanted[i]);
    }
    (void)context_->release(views);
    if (!read.ok()) {
      return read;
    }
  }
  return rate(came_in() - before, took);
}

Result<double> ScaledSet::write_down() {
  const std::uint64_t batch = std::clamp<std::uint64_t>(
      64 * kMiB / shape_.extent, 1, std::max<std::uint64_t>(1, shape_.dram / 2 / shape_.extent));
  const std::uint64_t before = context_->stats().host_bytes_out;
  double took = 0;
  while (took < kSeconds) {
    next_ = next_ + batch > extents() ? 0 : next_;
    Status status = overwrite(next_, batch);
    const double start = now_seconds();
    if (status.ok()) {
      status = buffer_.evict(next_ * shape_.extent, batch * shape_.extent);
    }
    took += now_seconds() - start;
    if (!status.ok()) {
      return status;
    }
    next_ += batch;
  }
  return rate(context_->stats().host_bytes_out - before, took);
}

Status ScaledSet::shrink(std::uint64_t dram) {
  Status status = context_->set_budget({Kind::dram, 0}, dram);
  shape_.dram = status.ok() ? dram : shape_.dram;
  return status;
}

}  // namespace tiermem::bench
