// The seat, the thread that follows the share, and the counters from the mover's thread.
#include "preload/share.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/arena.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/own_thread.hpp"
#include "base/results.hpp"
#include "preload/region.hpp"
#include "preload/run_page.hpp"
#include "preload/start.hpp"
#include "preload/tiering.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem::preload {
namespace {

constexpr std::int64_t kTellNs = 100'000'000;
// A smaller change is not announced to the other processes.
constexpr std::uint64_t kStep = std::uint64_t{16} << 20;
// A process that waits for less than this fraction of its time has enough.
constexpr std::int64_t kWaitingPart = 10;
// A child of fork is a guest for kGuestNs, or until it has brought in a kGuestPart-th of its
// budget: no share covers these bytes. Most children end or exec earlier. For the others the time
// shows whether the parent sleeps.
constexpr std::int64_t kGuestNs = 1'200'000'000;
constexpr std::uint64_t kGuestPart = 32;

// Constant once joined; its calls are thread-safe. Never destroyed.
RunSeat& seat() {
  alignas(RunSeat) static constinit std::byte room[sizeof(RunSeat)]{};
  static RunSeat* const made = new (room)
      RunSeat(RunSeat::take(::secure_getenv("TIERMEM_RUN"), ::secure_getenv("TIERMEM_RUN_BROKER")));
  return *made;
}

// Initial budget of a process without a share yet. Other processes may be slow to give up theirs,
// and no thread may wait for that inside malloc.
constexpr std::uint64_t kLeastBudget = std::uint64_t{4} << 20;

constinit char g_name[kRunNameBytes] = {};  // This process's name in the kernel.
constinit std::atomic<std::uint32_t> g_pid{0};

// This process's plain memory, which counts against its share. Written before the context.
constinit std::atomic<std::uint64_t> g_plain_bytes{0};

// The part of a share for the tiers.
std::uint64_t budget_of(std::uint64_t share) {
  const std::uint64_t plain = g_plain_bytes.load(std::memory_order_relaxed);
  return share == 0 ? 0 : std::max(kLeastBudget, share - std::min(share, plain));
}

// Used by the mover's thread only.
constinit std::uint64_t g_wanted = 0, g_resident_peak = 0, g_tiered_peak = 0, g_waited_ns = 0;
constinit std::int64_t g_told_ns = 0;
// Bytes in slots when last told. `g_of_parent` are a child's bytes in its parent's slots, which its
// own block tier does not count.
constinit std::uint64_t g_in_slots = 0, g_of_parent = 0;
// The parent's counters when it forked this process.
constinit Stats g_inherited{};
constinit std::uint64_t g_inherited_for_room_ns = 0;
constinit std::atomic<std::uint64_t> g_brought{0};  // Since the fork.
constinit std::atomic<bool> g_lifted{false};        // keep_to_no_budget() was called.

void tell(const Stats& stats) {
  RunCounters counters;
  const Stats& before = g_inherited;
  counters.promoted = stats.promoted + stats.prefetched - before.promoted - before.prefetched;
  counters.demoted = stats.demoted - before.demoted;
  counters.faults = stats.faults - before.faults;
  counters.waited_ns = stats.fault_wait_ns - before.fault_wait_ns;
  // A dirty extent is written first and leaves as a clean one, so `demoted` is not part of the sum.
  counters.evicted = stats.evicted_clean + stats.dropped - before.evicted_clean - before.dropped;
  counters.poisoned = stats.poisoned_touches - before.poisoned_touches;
  counters.waited_for_room_ns = context()->impl().waited_for_room_ns() - g_inherited_for_room_ns;
  const std::uint64_t plain = g_plain_bytes.load(std::memory_order_relaxed);
  counters.resident = plain + stats.dram_used;
  counters.tiered = tiered_bytes();
  counters.resident_peak = g_resident_peak = std::max(g_resident_peak, counters.resident);
  counters.tiered_peak = g_tiered_peak = std::max(g_tiered_peak, counters.tiered);
  seat().publish(counters);
  g_brought.store(counters.promoted, std::memory_order_relaxed);
  g_in_slots = g_of_parent + stats.block_used;
  const std::uint64_t wanted = plain + std::min(counters.tiered, stats.dram_used + g_in_slots);
  if (wanted > g_wanted + kStep || wanted + kStep < g_wanted) {
    g_wanted = wanted;
    seat().want(wanted);
  }
  // Measured by time, not by touches: on a slow disk a thread makes only a few.
  const std::int64_t now = now_ns();
  const auto waited = static_cast<std::int64_t>(counters.waited_ns - g_waited_ns);
  if (waited * kWaitingPart > now - g_told_ns) {
    seat().awake();
    if (wanted > plain + stats.dram_budget) {
      seat().look_for_idle(now);
    }
  }
  g_waited_ns = counters.waited_ns;
  g_told_ns = now;
}

// Replaces a remedy that the program cannot use, because it holds no views. Allocates no memory.
std::array<char, kRunTextBytes> for_program(const char* why) {
  constexpr std::string_view kOfLinked = "release views or raise `dram`";
  constexpr std::string_view kOfRun = "raise --dram";
  std::array<char, kRunTextBytes> text{};
  const std::string_view all(why);
  const std::size_t at = std::min(all.find(kOfLinked), all.size());
  const std::string_view rest = all.substr(std::min(at + kOfLinked.size(), all.size()));
  std::size_t length = 0;
  for (const std::string_view part :
       {all.substr(0, at), at < all.size() ? kOfRun : std::string_view(), rest}) {
    const std::size_t n = std::min(part.size(), text.size() - 1 - length);
    std::copy_n(part.data(), n, text.data() + length);
    length += n;
  }
  return text;
}

void lift_budget(Context& context) {
  const std::uint64_t all = context.stats().dram_budget + tiered_bytes();
  if (const Status status = context.set_budget({Kind::dram, 0}, all); !status.ok()) {
    log_error("tiered memory keeps to its budget: {}", status.message());
  }
}

// Sleeps until the share changes. Pinned bytes that cannot be given up now are given up at the next
// change.
void follow(Context* context, std::uint64_t held) {
  for (std::uint32_t seen = seat().generation();; seen = seat().wait_for_change(seen)) {
    const std::uint64_t share = seat().share();
    if (share > held) {
      held = seat().hold(share);
      (void)context->set_budget({Kind::dram, 0}, budget_of(held));
    } else if (share != 0 && share < held) {  // 0: other processes have not given up theirs yet.
      if (const Status status = context->set_budget({Kind::dram, 0}, budget_of(share));
          status.ok()) {
        held = seat().hold(share);
      } else {
        seat().say(for_program(status.message()).data());
      }
    }
    if (g_lifted.load()) {
      lift_budget(*context);  // keep_to_no_budget() may have been called before the change above.
      return;
    }
  }
}

// Parent and child share pages, which exist once, so the child's share is not cut at once.
void follow_as_guest(Context* context, std::uint64_t held) {
  const std::int64_t until = now_ns() + kGuestNs;
  while (now_ns() < until && g_brought.load(std::memory_order_relaxed) < held / kGuestPart) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  seat().settle(held);
  follow(context, held);
}

// Call it once this process has its seat.
void start_following(Context& context, std::uint64_t held, void (*how)(Context*, std::uint64_t)) {
  context.impl().observe(tell, kTellNs);
  context.impl().on_refusal([](const char* why) { seat().say_refused(for_program(why).data()); });
  try {
    own_thread("tiermem-share", [&context, held, how] { how(&context, held); }).detach();
  } catch (const std::system_error&) {
    log_error(
        "share: no thread can be created, so this process keeps its budget; raise the limit "
        "(RLIMIT_NPROC or pids.max)");
    // No thread will call settle() later, and the process would stay a guest for ever.
    seat().settle(held);
  }
}

}  // namespace

void find_own_name() {
  best_effort(::prctl(PR_GET_NAME, g_name), "the process has no name in reports");
  g_pid.store(static_cast<std::uint32_t>(::getpid()));
}

std::uint64_t join_run(std::uint64_t plain) {
  if (!seat().ok()) {
    return 0;
  }
  g_plain_bytes.store(plain, std::memory_order_relaxed);
  find_own_name();  // The program may have changed its name.
  if (!seat().join(g_name)) {
    tell_not_tiered(fmt::format("it has no share of the run's memory, and uses at most {}: {}",
                                human_bytes(kLeastBudget), seat().reason()));
    return kLeastBudget;
  }
  return std::max(kLeastBudget, budget_of(seat().hold(seat().share())));
}

std::uint64_t run_total() {
  return seat().ok() ? seat().total() : 0;
}

void tell_not_tiered(const std::string& why) {
  if (seat().ok()) {
    if (g_pid.load() == 0) {
      find_own_name();
    }
    seat().refuse(g_pid.load(), g_name, why.c_str());
    log_warn("{}", why);
  } else {
    ::tiermem::tell(LogLevel::error, why);
  }
}

void follow_run(Context& context) {
  if (!seat().joined()) {
    return;
  }
  start_following(context, context.stats().dram_budget + g_plain_bytes.load(), follow);
}

void keep_to_no_budget() {
  if (Context* const tiers = context(); tiers != nullptr && in_own_process()) {
    g_lifted.store(true);
    lift_budget(*tiers);
  }
}

void end_run() {
  Context* const tiers = context();
  // A process created without our knowledge has no mover that answers.
  if (tiers == nullptr || !tiers->impl().open() || !in_own_process()) {
    return;
  }
  const ArenaScope inside;
  const Stats stats = tiers->stats();
  log_info(
      "end: {} tiered, {} in memory of {}; read {} for touches and {} ahead ({} of it unused), "
      "written {}, left clean {}; {} touches waited {} ms; {} recalled, {} stuck",
      human_bytes(tiered_bytes()), human_bytes(stats.dram_used), human_bytes(stats.dram_budget),
      human_bytes(stats.promoted), human_bytes(stats.prefetched),
      human_bytes(stats.prefetched_unused), human_bytes(stats.demoted),
      human_bytes(stats.evicted_clean), stats.faults, stats.fault_wait_ns / 1'000'000,
      stats.recalled, stats.withdrawals_refused);
  if (seat().joined()) {
    tell(stats);
  }
}

void rejoin_run_in_child() {
  g_pid.store(static_cast<std::uint32_t>(::getpid()));
  Context* const tiers = context();
  if (tiers == nullptr || !seat().joined()) {
    return;
  }
  const ArenaScope inside;
  g_wanted = g_resident_peak = g_tiered_peak = g_waited_ns = 0;
  g_brought.store(0);
  g_of_parent = g_in_slots;
  g_inherited = tiers->stats();
  g_inherited_for_room_ns = tiers->impl().waited_for_room_ns();
  const std::uint64_t held = g_inherited.dram_budget + g_plain_bytes.load();
  if (seat().after_fork_in_child()) {
    start_following(*tiers, held, follow_as_guest);
  }
}

}  // namespace tiermem::preload
