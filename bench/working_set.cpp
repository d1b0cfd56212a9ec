// Fills, promotes and demotes the working set.
#include "bench/working_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "base/error.hpp"
#include "bench/random_bytes.hpp"
#include "os/host_facts.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr std::uint64_t kBatch = 8;  // Extents per prefetch.
constexpr std::size_t kBatches =
    6;  // Prefetches in flight: three times the number that a device gets ahead of use.
constexpr std::uint64_t kRandom = 64 * kMiB;
constexpr std::uint64_t kBlock = 64 << 10;

/// Bytes that came in, by prefetch or on demand.
std::uint64_t came_in(const Stats& stats) {
  return stats.promoted + stats.prefetched;
}

}  // namespace

std::uint64_t benchmark_dram() {
  const std::uint64_t left = probe_host_facts().memory_left().value_or(2048 * kMiB);
  return std::clamp(left / 16 / (64 * kMiB) * (64 * kMiB), 64 * kMiB, 1024 * kMiB);
}

Result<std::unique_ptr<WorkingSet>> WorkingSet::create(const std::string& directory,
                                                       std::uint64_t dram, bool checksum) {
  std::unique_ptr<WorkingSet> set(new WorkingSet);
  set->dram_ = dram;
  set->random_.resize(kRandom);
  fill_random(set->random_.data(), kRandom, 3);
  // Room for a second copy of the bytes being rewritten.
  const std::uint64_t cap = dram * (kTimesDram + 2);
  auto context = Context::create(fmt::format("dram={}; nvme={}:{}; checksum={}", dram, directory,
                                             cap, checksum ? "on" : "off"));
  if (!context.ok()) {
    return std::move(context).status();
  }
  set->context_ = std::move(*context);
  const std::uint64_t count = dram * kTimesDram / kExtent;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto buffer = set->context_->alloc(kExtent, {.extent_bytes = kExtent, .label = "bench"});
    if (!buffer.ok()) {
      return std::move(buffer).status();
    }
    set->buffers_.push_back(std::move(*buffer));
    Status filled = set->fill(i);
    if (!filled.ok()) {
      return filled;
    }
  }
  Status evicted = set->evict_all();
  if (!evicted.ok()) {
    return evicted;
  }
  return set;
}

Status WorkingSet::fill(std::uint64_t index) {
  auto view = buffers_[index].acquire(kDiscard);
  if (!view.ok()) {
    return std::move(view).status();
  }
  // Different bytes for each fill: the source moves by an odd number of cache lines.
  const std::uint64_t from = ++fills_ * 64 * 12347 % (kRandom - kExtent);
  std::memcpy(view->data(), random_.data() + from, kExtent);
  std::memcpy(view->data(), &fills_, sizeof(fills_));
  return {};
}

Status WorkingSet::evict_all() {
  std::vector<Access> list;
  for (const Buffer& buffer : buffers_) {
    list.push_back(buffer.range());
  }
  return context_->evict(list);
}

Result<Op> WorkingSet::prefetch(std::uint64_t first, std::uint64_t count) {
  std::vector<Access> list;
  for (std::uint64_t i = 0; i < count; ++i) {
    list.push_back(buffers_[(first + i) % buffers_.size()].range());
  }
  Op op;
  Status status = context_->prefetch(list, 0, &op);
  if (!status.ok()) {
    return status;
  }
  return op;
}

Result<Stats> WorkingSet::stream(std::uint64_t bytes, std::uint32_t mode) {
  const Stats before = context_->stats();
  std::uint64_t used = cursor_;
  std::deque<Op> ops;
  // A policy that resists loops keeps a part of this one: continue until this many bytes have come
  // in.
  const std::uint64_t most = cursor_ + 2 * buffers_.size();
  while (true) {
    const bool enough = cursor_ >= most || came_in(context_->stats()) - came_in(before) >= bytes;
    while (!enough && ops.size() < kBatches) {
      auto op = prefetch(cursor_, kBatch);
      if (!op.ok()) {
        return std::move(op).status();
      }
      ops.push_back(std::move(*op));
      cursor_ += kBatch;
    }
    if (ops.empty()) {
      return before;
    }
    Status done = ops.front().wait();
    if (!done.ok()) {
      return done;
    }
    ops.pop_front();
    // Each is used by a view: the mover holds back prefetches that are never used.
    for (const std::uint64_t end = used + kBatch; used < end; ++used) {
      auto view = buffers_[used % buffers_.size()].acquire(mode);
      if (!view.ok()) {
        return std::move(view).status();
      }
      // In each block that has a checksum; otherwise only a part of the extent would be written.
      for (std::uint64_t at = 0; mode != kRead && at < kExtent; at += kBlock) {
        std::memcpy(view->data() + at, &used, sizeof(used));
      }
    }
  }
}

Result<Sample> WorkingSet::timed_stream(std::uint64_t bytes, std::uint32_t mode) {
  const double cpu = cpu_seconds();
  const double start = now_seconds();
  const auto before = stream(bytes, mode);
  const double took = now_seconds() - start;
  if (!before.ok()) {
    return before.status().clone();
  }
  const Stats after = context_->stats();
  const std::uint64_t in = came_in(after) - came_in(*before);
  if (in < bytes) {
    return fail(Code::internal, "only {} of {} came in: the working set does not exceed DRAM",
                human_bytes(in), human_bytes(bytes));
  }
  const auto moved = static_cast<double>(in + after.demoted - before->demoted);
  return Sample{moved / took / 1e9, (cpu_seconds() - cpu) / (moved / kGiB)};
}

Result<Sample> WorkingSet::demote(std::uint64_t bytes) {
  const std::uint64_t batch = std::min(dram_ / 2, bytes) / kExtent;
  double took = 0;
  double cpu = 0;
  std::uint64_t moved = 0;
  for (std::uint64_t done = 0; done < bytes / kExtent; done += batch) {
    std::vector<Access> list;
    for (std::uint64_t i = 0; i < batch; ++i) {
      const std::uint64_t index = next();
      Status filled = fill(index);
      if (!filled.ok()) {
        return filled;
      }
      list.push_back(buffers_[index].range());
    }
    const std::uint64_t before = context_->stats().demoted;
    const double cpu_before = cpu_seconds();
    const double start = now_seconds();
    Status evicted = context_->evict(list);
    took += now_seconds() - start;
    cpu += cpu_seconds() - cpu_before;
    if (!evicted.ok()) {
      return evicted;
    }
    moved += context_->stats().demoted - before;
  }
  if (moved < bytes / 10 * 9) {
    return fail(Code::internal, "only {} of {} were demoted while they were evicted",
                human_bytes(moved), human_bytes(bytes));
  }
  return Sample{static_cast<double>(moved) / took / 1e9, cpu / (static_cast<double>(moved) / kGiB)};
}

}  // namespace tiermem::bench
