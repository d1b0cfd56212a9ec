// C: creation and end of a context, and its budgets, ticks and counters.
#include "checks.hpp"
#include "runtime/context_impl.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

Status has_ended(const char* call) {
  return fail(Code::shut_down, "{}: the context has ended: it was destroyed", call);
}

enum class Given { none, one, last };

// Releases one reference, if there is one.
Given give_back(tm_context& context) {
  std::uint32_t count = context.references.load(std::memory_order_relaxed);
  do {
    if (count == 0) {
      return Given::none;
    }
    // Acquire and release: the actions of each owner precede the end of the context.
  } while (!context.references.compare_exchange_weak(count, count - 1, std::memory_order_acq_rel));
  return count == 1 ? Given::last : Given::one;
}

// The record remains, so stale pointers to it report that the context has ended.
void end(tm_context& context) {
  if (context.ended.exchange(true, std::memory_order_acq_rel)) {
    return;
  }
  const ArenaScope inside;
  delete context.context;
  context.scratch.clear();
}

}  // namespace

extern "C" tm_status tm_context_create(const char* tiers, const tm_context_options* options,
                                       tm_context** out) {
  tm_context_options ours{};
  if (tm_status bad = check_not_null("context_create", out, "out")) {
    return bad;
  }
  if (tm_status bad = check_options("context_create", options, kContextOptions1, ours)) {
    return bad;
  }
  if (ours.flags != 0 || ours.reserved != 0) {
    return refuse(Code::invalid_argument,
                  "context_create: flags {:#x}, reserved {}; both must be 0", ours.flags,
                  ours.reserved);
  }
  return guarded([&]() -> Status {
    auto made = Context::create(tiers != nullptr ? tiers : "", {ours.toml, ours.name});
    if (!made.ok()) {
      return std::move(made).status();
    }
    const ArenaScope inside;
    *out = new tm_context(std::move(made).value());
    return {};
  });
}

extern "C" tm_status tm_context_destroy(tm_context* context, uint32_t flags, int64_t timeout_ns) {
  if (tm_status bad = check_not_null("context_destroy", context, "context")) {
    return bad;
  }
  if ((flags & ~static_cast<uint32_t>(TM_DESTROY_FORCE)) != 0) {
    return refuse(Code::invalid_argument,
                  "context_destroy: flags {:#x}; accepted are 0 and TM_DESTROY_FORCE (1)", flags);
  }
  return guarded([&]() -> Status {
    if (context->ended.load(std::memory_order_acquire)) {
      return has_ended("context_destroy");
    }
    Status status = context->context->close((flags & TM_DESTROY_FORCE) != 0, {timeout_ns});
    if (status.ok()) {
      (void)give_back(*context);
      end(*context);
    }
    return status;
  });
}

extern "C" tm_status tm_context_retain(tm_context* context) {
  if (tm_status bad = check_not_null("context_retain", context, "context")) {
    return bad;
  }
  return guarded([&]() -> Status {
    std::uint32_t count = context->references.load(std::memory_order_relaxed);
    do {
      if (count == 0 || context->ended.load(std::memory_order_acquire)) {
        return has_ended("context_retain");
      }
      if (count == UINT32_MAX) {
        return fail(Code::no_capacity,
                    "context_retain: the context has {} references, and no more are counted; "
                    "release some",
                    count);
      }
    } while (
        !context->references.compare_exchange_weak(count, count + 1, std::memory_order_relaxed));
    return {};
  });
}

extern "C" tm_status tm_context_release(tm_context* context) {
  if (tm_status bad = check_not_null("context_release", context, "context")) {
    return bad;
  }
  return guarded([&]() -> Status {
    switch (give_back(*context)) {
      case Given::none:
        return has_ended("context_release");
      case Given::last:
        end(*context);
        return {};
      case Given::one:
        break;
    }
    return {};
  });
}

extern "C" tm_status tm_set_budget(tm_context* context, tm_place tier, uint64_t bytes,
                                   int64_t timeout_ns) {
  if (tm_status bad = check_not_null("set_budget", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_place("set_budget", "tier", tier)) {
    return bad;
  }
  return guarded([&] { return context->context->set_budget(place(tier), bytes, {timeout_ns}); });
}

extern "C" tm_status tm_tick(tm_context* context, uint32_t kind, uint64_t* out_ordinal) {
  if (tm_status bad = check_not_null("tick", context, "context")) {
    return bad;
  }
  if (kind > TM_TICK_STEP) {
    return refuse(Code::invalid_argument,
                  "tick: kind {}; accepted are TM_TICK_OP (0) and TM_TICK_STEP (1)", kind);
  }
  return guarded([&]() -> Status {
    Status usable = context->context->impl().usable("tick");
    if (usable.ok()) {
      const std::uint64_t ordinal = context->context->tick(static_cast<Tick>(kind));
      if (out_ordinal != nullptr) {
        *out_ordinal = ordinal;
      }
    }
    return usable;
  });
}

namespace {

/// Fills `out` with what `fill` makes of the context's statistics: a Status and a filled record.
template <typename Info, typename Fill>
tm_status fill_from_stats(const char* call, tm_context* context, Info* out, std::size_t smallest,
                          Fill fill) {
  if (tm_status bad = check_not_null(call, context, "context")) {
    return bad;
  }
  if (tm_status bad = check_info(call, out, smallest)) {
    return bad;
  }
  return guarded([&]() -> Status {
    Status usable = context->context->impl().usable(call);
    if (!usable.ok()) {
      return usable;
    }
    Info info{};
    Status filled = fill(context->context->stats(), info);
    if (filled.ok()) {
      fill_info(out, info);
    }
    return filled;
  });
}

}  // namespace

extern "C" tm_status tm_stats(tm_context* context, tm_counters* out) {
  // A counter added to Stats also belongs at the end of tm_counters, and here. The figures of tiers
  // are those of tm_stats_tier().
  static_assert(offsetof(Stats, tiers) == sizeof(tm_counters) - sizeof(size_t));
  const auto fill = [](const Stats& stats, tm_counters& counters) -> Status {
    counters.dram_budget = stats.dram_budget;
    counters.dram_used = stats.dram_used;
    counters.dram_pinned = stats.dram_pinned;
    counters.block_budget = stats.block_budget;
    counters.block_used = stats.block_used;
    counters.buffers = stats.buffers;
    counters.extents = stats.extents;
    counters.misses = stats.misses;
    counters.promoted = stats.promoted;
    counters.demoted = stats.demoted;
    counters.evicted_clean = stats.evicted_clean;
    counters.prefetched = stats.prefetched;
    counters.prefetched_unused = stats.prefetched_unused;
    counters.io_errors = stats.io_errors;
    counters.io_retries = stats.io_retries;
    counters.checksum_errors = stats.checksum_errors;
    counters.degraded_devices = stats.degraded_devices;
    counters.moved_by_uffd = stats.moved_by_uffd;
    counters.moved_by_remap = stats.moved_by_remap;
    counters.moved_in_place = stats.moved_in_place;
    counters.poisoned_touches = stats.poisoned_touches;
    counters.steps = stats.steps;
    counters.step_ns_p99 = stats.step_ns_p99;
    counters.dropped = stats.dropped;
    counters.faults = stats.faults;
    counters.recalled = stats.recalled;
    counters.withdrawals_refused = stats.withdrawals_refused;
    counters.fault_wait_ns = stats.fault_wait_ns;
    counters.placed_used = stats.placed_used;
    counters.placed_held = stats.placed_held;
    counters.moved_by_copy = stats.moved_by_copy;
    counters.gpu_budget = stats.gpu_budget;
    counters.gpu_used = stats.gpu_used;
    counters.gpu_pinned = stats.gpu_pinned;
    counters.gpu_bytes_in = stats.gpu_bytes_in;
    counters.gpu_bytes_out = stats.gpu_bytes_out;
    counters.gpu_placed = stats.gpu_placed;
    counters.gpu_paused = stats.gpu_paused;
    counters.gather_reads = stats.gather_reads;
    counters.gather_bytes = stats.gather_bytes;
    counters.gpu_bytes_pageable = stats.gpu_bytes_pageable;
    counters.gpu_bytes_staged = stats.gpu_bytes_staged;
    counters.gpu_bytes_peer = stats.gpu_bytes_peer;
    counters.host_bytes_in = stats.host_bytes_in;
    counters.host_bytes_out = stats.host_bytes_out;
    counters.demanded = stats.demanded;
    counters.gpu_direct_in = stats.gpu_direct_in;
    counters.gpu_direct_out = stats.gpu_direct_out;
    counters.gpu_direct_errors = stats.gpu_direct_errors;
    counters.metadata_bytes = stats.metadata_bytes;
    return {};
  };
  return fill_from_stats("stats", context, out, kCounters1, fill);
}

extern "C" tm_status tm_stats_tier(tm_context* context, uint32_t i, tm_tier_counters* out) {
  const auto fill = [i](const Stats& stats, tm_tier_counters& counters) -> Status {
    if (i >= stats.tier_count) {
      return fail(Code::invalid_argument, "stats_tier: tier {}; accepted are 0 to {}", i,
                  stats.tier_count - 1);
    }
    const TierStats& tier = stats.tiers[i];
    counters.tier = place(tier.place);
    counters.budget = tier.budget;
    counters.used = tier.used;
    counters.pinned = tier.pinned;
    counters.bytes_in = tier.bytes_in;
    counters.bytes_out = tier.bytes_out;
    return {};
  };
  return fill_from_stats("stats_tier", context, out, kTierCounters1, fill);
}
