// The shared page: who owns a row, how the budget is divided, what is counted. System calls that a
// preload library interposes (mmap) are made directly.
#include "preload/run_page.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "os/proc_stat.hpp"

namespace tiermem {
namespace {

using Row = RunPage::Row;

// ---- who owns a row ----------------------------------------------------------------------------
//
//   unused ──join──▶ joining ──join──▶ live ──leave──▶ ended ──join──▶ joining …
//                       └──────────────┴──its process is gone──▲  (by whoever notices)
//
// The word: 2 bits of state, 22 of pid (the kernel's largest), 40 of start time in ticks (348
// years).

enum class State : std::uint64_t { unused, joining, live, ended };
constexpr unsigned kStartBits = 40;
constexpr unsigned kPidBits = 22;
constexpr std::uint64_t kIdentityMask = (std::uint64_t{1} << (kStartBits + kPidBits)) - 1;

State state_of(std::uint64_t owner) {
  return static_cast<State>(owner >> (kStartBits + kPidBits));
}
bool has_process(std::uint64_t owner) {
  return state_of(owner) == State::joining || state_of(owner) == State::live;
}
std::uint64_t owned(State state, std::uint64_t identity) {
  return (static_cast<std::uint64_t>(state) << (kStartBits + kPidBits)) |
         (identity & kIdentityMask);
}
std::uint32_t pid_of(std::uint64_t owner) {
  return static_cast<std::uint32_t>((owner & kIdentityMask) >> kStartBits);
}

/// All of it: a main thread may end before the others.
bool has_exited(const ProcStat& stat) {
  return stat.state() == 'X' || (stat.state() == 'Z' && stat.number(ProcStat::kThreads) <= 1);
}
std::uint64_t start_of(const ProcStat& stat) {
  return static_cast<std::uint64_t>(stat.number(ProcStat::kStart)) &
         ((std::uint64_t{1} << kStartBits) - 1);
}
/// Of processor time, of all its threads.
std::uint64_t ticks_of(const ProcStat& stat) {
  return static_cast<std::uint64_t>(stat.number(ProcStat::kUserTicks) +
                                    stat.number(ProcStat::kSystemTicks));
}
/// Its main thread neither runs, nor would if there were a processor, nor waits for a disk.
bool sleeps(const ProcStat& stat) {
  return stat.state() == 'S' || stat.state() == 'T' || stat.state() == 't';
}
struct StatPath {
  explicit StatPath(std::uint64_t owner) {
    std::snprintf(text, sizeof text, "/proc/%u/stat", pid_of(owner));
  }
  char text[32];
};

/// This process's, as /proc names it: in a pid namespace that shares the /proc of its parent,
/// getpid() is another number. 0 when there is no /proc.
std::uint64_t own_identity() {
  char pid[16] = {};
  const ssize_t got = ::readlink("/proc/self", pid, sizeof(pid) - 1);
  const ProcStat stat("/proc/self/stat");
  if (got <= 0 || !stat.found()) {
    return 0;
  }
  return owned(State::unused, (std::strtoull(pid, nullptr, 10) << kStartBits) | start_of(stat));
}

bool is_gone(std::uint64_t owner) {
  const ProcStat stat(StatPath(owner).text);
  if (!stat.found()) {
    // Both must agree: /proc may hide what exists (hidepid, too many open files).
    return ::kill(static_cast<pid_t>(pid_of(owner)), 0) != 0 && errno == ESRCH;
  }
  return has_exited(stat) || start_of(stat) != (owner & ((std::uint64_t{1} << kStartBits) - 1));
}

/// Ends the row if it is still `owner`'s. The counters stay where they are. A process that did not
/// finish joining has none, and is forgotten.
bool end_row(Row& row, std::uint64_t owner) {
  const std::uint64_t identity = state_of(owner) == State::live ? owner : 0;
  return row.owner.compare_exchange_strong(owner, owned(State::ended, identity));
}

bool end_rows_of_the_dead(RunPage& page) {
  bool any = false;
  for (Row& row : page.rows) {
    const std::uint64_t owner = row.owner.load();
    any |= has_process(owner) && is_gone(owner) && end_row(row, owner);
  }
  return any;
}

/// A row that was never used, else one whose process ended: its figures are shown as long as
/// possible.
Row* claim(RunPage& page, std::uint64_t identity) {
  for (const State wanted : {State::unused, State::ended}) {
    for (Row& row : page.rows) {
      std::uint64_t owner = row.owner.load();
      if (state_of(owner) == wanted &&
          row.owner.compare_exchange_strong(owner, owned(State::joining, identity))) {
        return &row;
      }
    }
  }
  return nullptr;
}

// ---- the shares --------------------------------------------------------------------------------

// A grant: 28 bits of epoch, 36 bits of share in pages of 4 KiB (256 TiB).
constexpr unsigned kShareBits = 36;
constexpr unsigned kEpochBits = 64 - kShareBits;
constexpr std::uint64_t kMostPages = (std::uint64_t{1} << kShareBits) - 1;
constexpr std::uint64_t kPage = 4096;

std::uint64_t share_of(std::uint64_t grant) {
  return (grant & kMostPages) * kPage;
}
std::uint64_t granted(std::uint32_t epoch, std::uint64_t bytes) {
  return (std::uint64_t{epoch} << kShareBits) | std::min(bytes / kPage, kMostPages);
}
/// Whether `grant` was stamped by a rebalance that began after `epoch`; the numbers wrap.
bool is_newer(std::uint64_t grant, std::uint32_t epoch) {
  constexpr std::uint32_t kMask = (1U << kEpochBits) - 1;
  const std::uint32_t ahead = (static_cast<std::uint32_t>(grant >> kShareBits) - epoch) & kMask;
  return ahead != 0 && ahead <= kMask / 2;
}

long futex(const std::atomic<std::uint32_t>& word, int call, std::uint32_t value) {
  return ::syscall(SYS_futex, &word, call, value, nullptr, nullptr, 0);  // Shared: no _PRIVATE.
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

/// Takes part in the division.
bool counts(const Row& row) {
  return state_of(row.owner.load()) == State::live && row.guest.load() == 0;
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

/// The share, or what the process has not given up yet.
std::uint64_t charge_of(const Row& row) {
  const std::uint64_t share = share_of(row.grant.load());
  return has_process(row.owner.load()) ? std::max(share, row.held.load()) : share;
}

std::uint64_t charge_of_all(const RunPage& page) {
  std::uint64_t sum = 0;
  for (const Row& row : page.rows) {
    sum += charge_of(row);
  }
  return sum;
}

/// Stamps every row and lowers it to its plan. False when a newer rebalance is at work.
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

/// Gives what is free now, and what a row holds anyway. What others still hold is given when they
/// let go: hold() comes here again.
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

/// Divides the budget again. Any number of processes may do so at once, and any may die at it: the
/// newest wins. It read all wants after it took its epoch, so it knows what the older ones know.
/// One that dies half-way leaves shares too small, never too large, and maybe nobody told; its own
/// death is the reason for another, which tells everyone.
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

// ---- figures -----------------------------------------------------------------------------------

// Relaxed throughout: each figure stands for itself, and readers only show them.
constexpr auto kRelaxed = std::memory_order_relaxed;

constexpr std::array<std::uint64_t RunCounters::*, RunPage::kSums> kSumFields = {
    &RunCounters::promoted,  &RunCounters::demoted, &RunCounters::faults,
    &RunCounters::waited_ns, &RunCounters::evicted, &RunCounters::poisoned};

void raise_to(std::atomic<std::uint64_t>& peak, std::uint64_t value) {
  std::uint64_t now = peak.load(kRelaxed);
  while (now < value && !peak.compare_exchange_weak(now, value, kRelaxed)) {
  }
}

template <std::size_t N>
void store_text(std::array<std::atomic<std::uint64_t>, N>& words, const char* text) {
  std::array<std::uint64_t, N> copy{};
  std::memcpy(copy.data(), text, strnlen(text, N * 8 - 1));
  for (std::size_t i = 0; i < N; ++i) {
    words[i].store(copy[i], kRelaxed);
  }
}

template <std::size_t N>
void load_text(const std::array<std::atomic<std::uint64_t>, N>& words, char* text) {
  for (std::size_t i = 0; i < N; ++i) {
    const std::uint64_t word = words[i].load(kRelaxed);
    std::memcpy(text + i * 8, &word, 8);
  }
  text[N * 8 - 1] = '\0';
}

/// Of the living processes together.
void sum_living(const RunPage& page, std::uint64_t& resident, std::uint64_t& tiered) {
  for (const Row& row : page.rows) {
    if (state_of(row.owner.load(kRelaxed)) == State::live) {
      resident += row.resident.load(kRelaxed);
      tiered += row.tiered.load(kRelaxed);
    }
  }
}

// ---- the mapping -------------------------------------------------------------------------------

RunPage* map_page(int fd) {
  const long at =
      ::syscall(SYS_mmap, nullptr, sizeof(RunPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == -1 ? nullptr : reinterpret_cast<RunPage*>(at);
}

/// nullptr with a reason. The seals are what makes the mapping safe to touch: nobody can cut the
/// file.
RunPage* map_checked(int fd, const char*& reason) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) < sizeof(std::uint64_t) * 2) {
    reason = "TIERMEM_RUN names something else than the page of tiermem run";
    return nullptr;
  }
  if (static_cast<std::uint64_t>(status.st_size) != sizeof(RunPage)) {
    reason = "tiermem run and the preload library are of different versions";
    return nullptr;
  }
  RunPage* page = map_page(fd);
  if (page == nullptr) {
    reason = "the page of tiermem run cannot be mapped";
    return nullptr;
  }
  if (page->magic.load() == RunPage::kMagic && page->version.load() == RunPage::kVersion &&
      page->bytes.load() == sizeof(RunPage)) {
    return page;
  }
  reason = page->magic.load() != RunPage::kMagic
               ? "TIERMEM_RUN names something else than the page of tiermem run"
               : "tiermem run and the preload library are of different versions";
  ::syscall(SYS_munmap, page, sizeof(RunPage));
  return nullptr;
}

}  // namespace

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
  // Whoever is content with an equal part of what is left gets what it needs; that makes the part
  // of the others larger.
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

// ---- RunSeat -----------------------------------------------------------------------------------

RunSeat RunSeat::take(const char* path) {
  RunSeat seat;
  if (path == nullptr || *path == '\0') {
    seat.reason_ = "not started by tiermem run";
    return seat;
  }
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    seat.reason_ = "the tiermem run that started this is gone or of another user";
    return seat;
  }
  seat.page_ = map_checked(fd, seat.reason_);
  ::close(fd);
  return seat;
}

bool RunSeat::join(const char* name) {
  return join(name, false);
}

bool RunSeat::join(const char* name, bool as_guest) {
  std::memset(name_, 0, sizeof(name_));
  std::memcpy(name_, name, strnlen(name, sizeof(name_) - 1));
  identity_ = own_identity();
  if (identity_ == 0) {
    reason_ = "there is no /proc to tell this process from others";
    return false;
  }
  // A row of this very process is of the program that exec replaced by this one.
  for (Row& row : page_->rows) {
    const std::uint64_t owner = row.owner.load();
    if (has_process(owner) && (owner & kIdentityMask) == identity_) {
      end_row(row, owner);
    }
  }
  Row* row = claim(*page_, identity_);
  if (row == nullptr) {
    rebalance(*page_);  // Ends the rows of those that are gone.
    row = claim(*page_, identity_);
  }
  if (row == nullptr) {
    reason_ = "too many processes of this tiermem run use tiered memory at once (256)";
    return false;
  }
  for (std::size_t i = 0; i < RunPage::kSums; ++i) {
    before_[i] = row->sums[i].load(kRelaxed);
    row->before[i].store(before_[i], kRelaxed);
  }
  row->want.store(0);
  row->held.store(0);
  row->idle.store(0);
  row->guest.store(as_guest ? 1 : 0);
  for (auto* figure : {&row->resident, &row->resident_peak, &row->tiered, &row->tiered_peak}) {
    figure->store(0, kRelaxed);
  }
  store_text(row->name, name_);
  store_text(row->text, "");
  // Sequentially consistent: whoever sees the row live sees what was stored above.
  row->owner.store(owned(State::live, identity_));
  row_ = row;
  reason_ = "";
  page_->joined.fetch_add(1);
  rebalance(*page_);
  tell_everyone(*page_);  // The run command watches those who join.
  return true;
}

void RunSeat::leave() {
  if (row_ == nullptr) {
    return;
  }
  end_row(*std::exchange(row_, nullptr), owned(State::live, identity_));
  rebalance(*page_);
  tell_everyone(*page_);
}

bool RunSeat::after_fork_in_child() {
  if (std::exchange(row_, nullptr) == nullptr) {
    return true;
  }
  char name[kRunNameBytes];
  std::memcpy(name, name_, sizeof(name));
  return join(name, true);
}

void RunSeat::settle(std::uint64_t held) {
  row_->held.store(held);
  row_->guest.store(0);
  rebalance(*page_);
}

std::uint64_t RunSeat::share() const {
  return share_of(row_->grant.load());
}

void RunSeat::want(std::uint64_t bytes) {
  if (row_->want.exchange(bytes) != bytes) {
    rebalance(*page_);
  }
}

// A process sleeps that has not used a tick (10 ms) since the last look. A row that another takes
// under this look may be marked for nothing: its owner is awake as soon as it waits.
void RunSeat::look_for_idle(std::int64_t now_ns) {
  constexpr std::int64_t kBetweenNs = 500'000'000;
  if (now_ns - looked_ns_ < kBetweenNs) {
    return;
  }
  if (now_ns - looked_ns_ > 4 * kBetweenNs) {
    seen_ = {};
  }
  looked_ns_ = now_ns;
  bool any = false;
  for (std::size_t i = 0; i < kRunRows; ++i) {
    Row& row = page_->rows[i];
    const std::uint64_t owner = row.owner.load();
    const Seen before = std::exchange(seen_[i], {});
    if (&row == row_ || !counts(row) || row.idle.load() != 0 ||
        share_of(row.grant.load()) <= kRunFloor) {
      continue;
    }
    const ProcStat stat(StatPath(owner).text);
    if (!stat.found()) {
      continue;
    }
    seen_[i] = {owner, ticks_of(stat)};
    if (sleeps(stat) && before.owner == owner && before.ticks == seen_[i].ticks) {
      row.idle.store(1);
      any = true;
    }
  }
  if (any) {
    rebalance(*page_);
  }
}

void RunSeat::awake() {
  if (row_->idle.load() != 0) {
    row_->idle.store(0);
    rebalance(*page_);
  }
}

// With rebalance(), the usual pair: here `held` is stored and then the share read, there the share
// is lowered and then `held` read. Whoever comes second sees the other, so a share that falls is
// never used and given to somebody else.
std::uint64_t RunSeat::hold(std::uint64_t bytes) {
  const std::uint64_t had = row_->held.load();  // Nobody else writes it.
  // Never more than was this process's when it looked: who counts meanwhile counts no wish.
  const std::uint64_t asked = std::min(bytes, std::max(had, share()));
  row_->held.store(asked);
  const std::uint64_t may = std::min(asked, std::max(had, share()));
  if (may < asked) {
    row_->held.store(may);
  }
  if (may < std::max(had, bytes)) {
    rebalance(*page_);  // Somebody may wait for the difference.
  }
  return may;
}

void RunSeat::publish(const RunCounters& counters) {
  for (std::size_t i = 0; i < RunPage::kSums; ++i) {
    row_->sums[i].store(before_[i] + counters.*kSumFields[i], kRelaxed);
  }
  row_->resident.store(counters.resident, kRelaxed);
  row_->tiered.store(counters.tiered, kRelaxed);
  raise_to(row_->resident_peak, std::max(counters.resident, counters.resident_peak));
  raise_to(row_->tiered_peak, std::max(counters.tiered, counters.tiered_peak));
  std::uint64_t resident = 0;
  std::uint64_t tiered = 0;
  sum_living(*page_, resident, tiered);
  // A peak between two calls is in no sum, but it is one of the run.
  raise_to(page_->resident_peak, std::max(resident, counters.resident_peak));
  raise_to(page_->tiered_peak, std::max(tiered, counters.tiered_peak));
}

void RunSeat::say(const char* text) {
  store_text(row_->text, text);
}

std::uint32_t RunSeat::wait_for_change(std::uint32_t seen) const {
  return wait_on(*page_, seen);
}

// ---- RunHost -----------------------------------------------------------------------------------

RunHost::~RunHost() {
  if (page_ != nullptr) {
    ::syscall(SYS_munmap, page_, sizeof(RunPage));
  }
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

int RunHost::open(std::uint64_t total, std::uint64_t block_cap) {
  fd_ = ::memfd_create("tiermem-run", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0 || ::ftruncate(fd_, sizeof(RunPage)) != 0 ||
      ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return errno;
  }
  page_ = map_page(fd_);
  if (page_ == nullptr) {
    return errno;
  }
  const std::uint64_t identity = own_identity();
  if (identity == 0) {
    return ENOENT;  // No /proc.
  }
  std::snprintf(path_, sizeof(path_), "/proc/%u/fd/%d", pid_of(identity), fd_);
  page_->version.store(RunPage::kVersion);
  page_->bytes.store(sizeof(RunPage));
  page_->total.store(total);
  page_->block_cap.store(block_cap);
  page_->magic.store(RunPage::kMagic);
  return 0;
}

void RunHost::settle() {
  rebalance(*page_);
}

void RunHost::notify() {
  tell_everyone(*page_);
}

std::uint32_t RunHost::wait_for_change(std::uint32_t seen) const {
  return wait_on(*page_, seen);
}

std::size_t RunHost::processes(std::span<RunProcess> out) const {
  std::size_t count = 0;
  for (const Row& row : page_->rows) {
    const std::uint64_t owner = row.owner.load();
    const bool has_figures = state_of(owner) == State::live || state_of(owner) == State::ended;
    if (!has_figures || pid_of(owner) == 0 || count == out.size()) {
      continue;
    }
    RunProcess& process = out[count++];
    process.pid = pid_of(owner);
    process.live = state_of(owner) == State::live;
    process.share = process.live ? share_of(row.grant.load()) : 0;
    process.want = row.want.load();
    load_text(row.name, process.name);
    load_text(row.text, process.text);
    for (std::size_t i = 0; i < RunPage::kSums; ++i) {
      process.counters.*kSumFields[i] = row.sums[i].load(kRelaxed) - row.before[i].load(kRelaxed);
    }
    process.counters.resident = process.live ? row.resident.load(kRelaxed) : 0;
    process.counters.resident_peak = row.resident_peak.load(kRelaxed);
    process.counters.tiered = process.live ? row.tiered.load(kRelaxed) : 0;
    process.counters.tiered_peak = row.tiered_peak.load(kRelaxed);
  }
  return count;
}

RunTotals RunHost::totals() const {
  RunTotals totals{.joined = page_->joined.load(kRelaxed), .counters = {}};
  for (const Row& row : page_->rows) {
    for (std::size_t i = 0; i < RunPage::kSums; ++i) {
      totals.counters.*kSumFields[i] += row.sums[i].load(kRelaxed);
    }
  }
  sum_living(*page_, totals.counters.resident, totals.counters.tiered);
  totals.counters.resident_peak = page_->resident_peak.load(kRelaxed);
  totals.counters.tiered_peak = page_->tiered_peak.load(kRelaxed);
  return totals;
}

std::uint64_t RunHost::charged() const {
  return charge_of_all(*page_);
}

}  // namespace tiermem
