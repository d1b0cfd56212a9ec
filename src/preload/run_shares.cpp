// Shares. System calls are made directly: a preload library interposes some.
#include "preload/run_shares.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "preload/run_owner.hpp"

namespace tiermem {
namespace run {
namespace {

// A grant: 28 bits of epoch, 36 bits of share in pages of 4 KiB (256 TiB).
constexpr unsigned kShareBits = 36;
constexpr unsigned kEpochBits = 64 - kShareBits;
constexpr std::uint64_t kMostPages = (std::uint64_t{1} << kShareBits) - 1;
constexpr std::uint64_t kPage = 4096;

std::uint64_t granted(std::uint32_t epoch, std::uint64_t bytes) {
  return (std::uint64_t{epoch} << kShareBits) | std::min(bytes / kPage, kMostPages);
}
/// Whether `grant` was stamped by a rebalance that began after `epoch`; the numbers wrap. The
/// answer is wrong if a rebalance stops in the middle while 2^27 others begin: 37 hours at a
/// thousand a second. That rebalance then stamps its old plan. This only lowers shares, and no
/// rebalance changes a share until the numbers have wrapped. The sum of the shares stays within the
/// budget.
bool is_newer(std::uint64_t grant, std::uint32_t epoch) {
  constexpr std::uint32_t kMask = (1U << kEpochBits) - 1;
  const std::uint32_t ahead = (static_cast<std::uint32_t>(grant >> kShareBits) - epoch) & kMask;
  return ahead != 0 && ahead <= kMask / 2;
}

long futex(const std::atomic<std::uint32_t>& word, int call, std::uint32_t value) {
  return ::syscall(SYS_futex, &word, call, value, nullptr, nullptr, 0);  // Shared: no _PRIVATE.
}

using Plan = std::array<std::uint64_t, kRunRows>;  ///< A share for each row.

Plan make_plan(const RunPage& page) {
  Plan wants;
  std::array<std::uint16_t, kRunRows> rows;
  std::size_t live = 0;
  for (std::size_t i = 0; i < kRunRows; ++i) {
    if (counts(page.rows[i])) {
      wants[live] = page.rows[i].idle.load() != 0 ? 0 : page.rows[i].want.load();
      rows[live++] = static_cast<std::uint16_t>(i);
    }
  }
  Plan shares;
  divide(page.total.load(), {wants.data(), live}, {shares.data(), live});
  Plan plan{};
  for (std::size_t i = 0; i < live; ++i) {
    plan[rows[i]] = shares[i];
  }
  return plan;
}

/// The share, or the larger number of bytes that the process has not given up yet.
std::uint64_t charge_of(const Row& row) {
  const std::uint64_t share = share_of(row.grant.load());
  return has_process(row.owner.load()) ? std::max(share, row.held.load()) : share;
}

/// Stamps every row and lowers it to its plan. Returns false if a newer rebalance is at work.
bool lower(RunPage& page, const Plan& plan, std::uint32_t epoch, bool& changed) {
  for (std::size_t i = 0; i < kRunRows; ++i) {
    std::uint64_t grant = page.rows[i].grant.load();
    std::uint64_t next = 0;
    do {
      if (is_newer(grant, epoch)) {
        return false;
      }
      next = granted(epoch, std::min(share_of(grant), plan[i]));
    } while (!page.rows[i].grant.compare_exchange_weak(grant, next));
    changed |= share_of(grant) != share_of(next);
  }
  return true;
}

/// Raises shares to the bytes that are free now, and to the bytes that a row holds anyway. Bytes
/// that other rows still hold follow when they are given up: hold() rebalances again.
void raise(RunPage& page, const Plan& plan, std::uint32_t epoch, bool& changed) {
  const std::uint64_t total = page.total.load();
  std::uint64_t left = total - std::min(total, charge_of_all(page));
  for (std::size_t i = 0; i < kRunRows; ++i) {
    Row& row = page.rows[i];
    std::uint64_t grant = row.grant.load();
    if (is_newer(grant, epoch)) {
      return;
    }
    const std::uint64_t share = share_of(grant);
    const std::uint64_t within = std::max(share, std::min(plan[i], charge_of(row)));
    const std::uint64_t more = plan[i] - std::min(plan[i], within);
    const std::uint64_t next = granted(epoch, within + std::min(more, left));
    if (share_of(next) == share) {
      continue;
    }
    if (!row.grant.compare_exchange_strong(grant, next)) {
      return;
    }
    left -= share_of(next) - std::min(share_of(next), within);
    changed = true;
  }
}

}  // namespace

std::uint64_t share_of(std::uint64_t grant) {
  return (grant & kMostPages) * kPage;
}
bool counts(const Row& row) {
  return state_of(row.owner.load()) == State::live && row.guest.load() == 0;
}

std::uint64_t charge_of_all(const RunPage& page) {
  std::uint64_t sum = 0;
  for (const Row& row : page.rows) {
    sum += charge_of(row);
  }
  return sum;
}

void rebalance(RunPage& page) {
  const std::uint32_t epoch = (page.epoch.fetch_add(1) + 1) & ((1U << kEpochBits) - 1);
  bool changed = end_rows_of_the_dead(page);
  const Plan plan = make_plan(page);
  if (lower(page, plan, epoch, changed)) {
    raise(page, plan, epoch, changed);
  }
  if (changed) {
    tell_everyone(page);
  }
}

void tell_everyone(RunPage& page) {
  page.generation.fetch_add(1);
  futex(page.generation, FUTEX_WAKE, INT_MAX);
}

std::uint32_t wait_on(const RunPage& page, std::uint32_t seen) {
  for (;;) {
    const std::uint32_t now = page.generation.load();
    if (now != seen) {
      return now;
    }
    futex(page.generation, FUTEX_WAIT, seen);
  }
}

}  // namespace run

void divide(std::uint64_t total, std::span<const std::uint64_t> wants,
            std::span<std::uint64_t> shares) {
  if (wants.empty()) {
    return;
  }
  constexpr std::uint64_t kOpen = ~std::uint64_t{0};
  const std::uint64_t floor = std::min(kRunFloor, total / wants.size());
  std::fill(shares.begin(), shares.end(), kOpen);
  std::uint64_t left = total;
  std::uint64_t open = wants.size();
  // A process that needs no more than an equal part gets its need. That makes the part of the
  // others larger.
  for (bool again = true; again && open > 0;) {
    again = false;
    const std::uint64_t equal = left / open;
    for (std::size_t i = 0; i < wants.size(); ++i) {
      const std::uint64_t need = std::max(wants[i], floor);
      if (shares[i] == kOpen && need <= equal) {
        shares[i] = need;
        left -= need;
        --open;
        again = true;
      }
    }
  }
  const std::uint64_t part = left / (open > 0 ? open : wants.size());
  for (std::uint64_t& share : shares) {
    share = share == kOpen ? part : open > 0 ? share : share + part;
  }
}

}  // namespace tiermem
