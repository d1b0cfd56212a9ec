// The loop over the references.
#include "cli/replay_run.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cli/block_pattern.hpp"

namespace tiermem::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// The state of a block after its last write.
struct BlockState {
  Buffer buffer;
  std::uint64_t checksum = 0;
  std::uint32_t version = 0;  // 0: never written.
  bool comes_back = false;    // A prefetch has brought it in since the last reference.
};

std::uint64_t ns_between(Clock::time_point from, Clock::time_point to) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

Stats difference(const Stats& before, Stats after) {
  for (const auto field : {&Stats::misses, &Stats::promoted, &Stats::demoted, &Stats::evicted_clean,
                           &Stats::prefetched, &Stats::prefetched_unused, &Stats::io_errors,
                           &Stats::io_retries, &Stats::checksum_errors, &Stats::steps,
                           &Stats::host_bytes_in, &Stats::host_bytes_out, &Stats::demanded}) {
    after.*field -= before.*field;
  }
  return after;
}

/// Prefetches a block that is not resident, and notes that. A resident block is left alone: if it
/// left between the query and the prefetch, the prefetch would bring it in unnoticed.
Status bring_back(BlockState& block) {
  const auto info = block.buffer.info();
  if (!info.ok()) {
    return info.status().clone();
  }
  if (info->resident != 0) {
    return {};
  }
  block.comes_back = true;
  return block.buffer.prefetch();
}

}  // namespace

Result<ReplayOutcome> run_replay(Context& context, const ReplayPlan& plan,
                                 const std::function<void(std::uint64_t done)>& progress) {
  std::vector<BlockState> blocks(plan.blocks);
  ReplayOutcome out;
  std::minstd_rand random(1);  // The same references become writes in every run.
  const Stats before = context.stats();
  const Clock::time_point start = Clock::now();
  std::uint64_t done = 0;
  for (const Reference& reference : plan.references) {
    BlockState& block = blocks[reference.block];
    const bool first = block.version == 0;
    const bool writes = first || reference.write || random() % 100 < plan.write_percent;
    if (first) {
      auto buffer =
          context.alloc(plan.block_bytes, {.extent_bytes = plan.block_bytes, .label = "replay"});
      if (!buffer.ok()) {
        return std::move(buffer).status();
      }
      block.buffer = std::move(*buffer);
    }
    if (plan.ahead != 0 && plan.references.size() - done > plan.ahead) {
      BlockState& next = blocks[plan.references[done + plan.ahead].block];
      if (next.version != 0) {
        Status told = bring_back(next);
        if (!told.ok()) {
          return told;
        }
      }
    }
    const std::uint32_t access = first ? kDiscard : writes ? kWrite : kRead;
    const Clock::time_point asked = Clock::now();
    auto view = block.buffer.acquire(access, 0, 0, first ? Timeout::forever() : Timeout::none());
    const bool there = view.ok();
    if (view.code() == Code::busy) {
      view = block.buffer.acquire(access);
    }
    const Clock::time_point given = Clock::now();
    if (!view.ok()) {
      return std::move(view).status();
    }
    out.acquire.add(ns_between(asked, given));
    ++(first              ? out.counts.first_uses
       : !there           ? out.counts.waited
       : block.comes_back ? out.counts.prefetched
                          : out.counts.hits);
    block.comes_back = false;
    if (!first && block_checksum(view->bytes()) != block.checksum) {
      if (out.wrong++ == 0) {
        out.first_wrong_block = reference.block;
        out.first_wrong_reference = done;
      }
    }
    if (writes) {
      block.checksum = write_block_pattern(view->bytes(), reference.block, ++block.version);
      ++out.writes;
    }
    view->release();
    progress(++done);
  }
  out.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  out.stats = difference(before, context.stats());
  return out;
}

}  // namespace tiermem::cli
