// The two sides of the shared page, and its counters. System calls that a preload library
// interposes (mmap) are made directly.
#include "preload/run_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/results.hpp"
#include "preload/run_broker.hpp"
#include "preload/run_owner.hpp"
#include "preload/run_shares.hpp"

namespace tiermem {
namespace {

using namespace run;

// ---- figures -----------------------------------------------------------------------------------

// Relaxed throughout: the figures are independent, and readers only display them.
constexpr auto kRelaxed = std::memory_order_relaxed;

constexpr std::array<std::uint64_t RunCounters::*, RunPage::kSums> kSumFields = {
    &RunCounters::promoted,          &RunCounters::demoted, &RunCounters::faults,
    &RunCounters::waited_ns,         &RunCounters::evicted, &RunCounters::poisoned,
    &RunCounters::waited_for_room_ns};

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

/// Sums over the living processes.
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

/// Returns null with a reason on failure. The seals make the mapping safe to touch: no process can
/// truncate the file.
RunPage* map_checked(int fd, const char*& reason) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd, &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) < sizeof(std::uint64_t) * 2) {
    reason = "TIERMEM_RUN does not name the page of tiermem run";
    return nullptr;
  }
  if (static_cast<std::uint64_t>(status.st_size) != sizeof(RunPage)) {
    reason = "tiermem run and the preload library have different versions";
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
               ? "TIERMEM_RUN does not name the page of tiermem run"
               : "tiermem run and the preload library have different versions";
  best_effort(::syscall(SYS_munmap, page, sizeof(RunPage)), "what is not unmapped stays reserved");
  return nullptr;
}

}  // namespace

std::uint64_t run_start(std::uint64_t total) {
  // A thirty-second of the run, or 8 MiB, as far as that is not more than an eighth: processes of
  // less than that, such as shells, are many, and a context for each would cost time.
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const std::uint64_t usual = std::min(total / 8, std::max(total / 32, 8 * kMiB));
  return std::clamp(usual, kMiB, 32 * kMiB);
}

// ---- RunSeat -----------------------------------------------------------------------------------

RunSeat RunSeat::take(const char* path, const char* broker) {
  RunSeat seat;
  seat.broker_ = broker;
  if (path == nullptr || *path == '\0') {
    seat.reason_ = "not started by tiermem run";
    return seat;
  }
  int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (BrokerReply reply;
      fd < 0 && ask_broker(broker, BrokerRequest::What::page, "", reply) && reply.count == 1) {
    fd = reply.descriptors[0];
  }
  if (fd < 0) {
    seat.reason_ = "the tiermem run that started this process has ended or belongs to another user";
    return seat;
  }
  seat.page_ = map_checked(fd, seat.reason_);
  best_effort(::close(fd), "the descriptor is gone in any case");
  return seat;
}

bool RunSeat::join(const char* name) {
  return join(name, false);
}

bool RunSeat::join(const char* name, bool as_guest) {
  std::memset(name_, 0, sizeof(name_));
  std::memcpy(name_, name, strnlen(name, sizeof(name_) - 1));
  identity_ = own_identity();
  if (BrokerReply reply;
      identity_ == 0 && ask_broker(broker_, BrokerRequest::What::identity, "", reply)) {
    identity_ = reply.identity;
  }
  if (identity_ == 0) {
    reason_ = "/proc is missing, so this process cannot be told from others";
    return false;
  }
  // A row of this very process belongs to the program that exec replaced.
  for (Row& row : page_->rows) {
    const std::uint64_t owner = row.owner.load();
    if (is_of(owner, identity_)) {
      end_row(row, owner);
    }
  }
  Row* row = claim(*page_, identity_);
  if (row == nullptr) {
    rebalance(*page_);  // Ends the rows of processes that are gone.
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
  // Sequentially consistent: a process that sees the row live also sees the values stored above.
  row->owner.store(owned(State::live, identity_));
  row_ = row;
  reason_ = "";
  page_->joined.fetch_add(1);
  rebalance(*page_);
  tell_everyone(*page_);  // The run command watches for processes that join.
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

// A process sleeps if it has not used a tick (10 ms) since the last look. If another process claims
// the row during this look, the row may be marked wrongly. Its owner is awake as soon as it waits.
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
    const Life life = life_of(owner);
    if (!life.found) {
      continue;
    }
    seen_[i] = {owner, life.ticks};
    if (life.sleeps && before.owner == owner && before.ticks == life.ticks) {
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

// This pairs with rebalance(): hold() stores `held` and then reads the share; rebalance() lowers
// the share and then reads `held`. The later of the two sees the other's store. A falling share is
// therefore never used and given to another process at once.
std::uint64_t RunSeat::hold(std::uint64_t bytes) {
  const std::uint64_t had = row_->held.load();  // Only this process writes it.
  // Never above this process's share at the time: a concurrent sum must not count bytes that are
  // only wanted.
  const std::uint64_t asked = std::min(bytes, std::max(had, share()));
  row_->held.store(asked);
  const std::uint64_t may = std::min(asked, std::max(had, share()));
  if (may < asked) {
    row_->held.store(may);
  }
  if (may < std::max(had, bytes)) {
    rebalance(*page_);  // Another process may wait for the difference.
  }
  return may;
}

void RunSeat::publish(const RunCounters& counters) {
  for (std::size_t i = 0; i < RunPage::kSums; ++i) {
    raise_to(row_->sums[i], before_[i] + counters.*kSumFields[i]);  // See say_refused().
  }
  row_->resident.store(counters.resident, kRelaxed);
  row_->tiered.store(counters.tiered, kRelaxed);
  raise_to(row_->resident_peak, std::max(counters.resident, counters.resident_peak));
  raise_to(row_->tiered_peak, std::max(counters.tiered, counters.tiered_peak));
  std::uint64_t resident = 0;
  std::uint64_t tiered = 0;
  sum_living(*page_, resident, tiered);
  // A peak between two calls appears in no sum, but it is a peak of the run.
  raise_to(page_->resident_peak, std::max(resident, counters.resident_peak));
  raise_to(page_->tiered_peak, std::max(tiered, counters.tiered_peak));
}

void RunSeat::say(const char* text) {
  store_text(row_->text, text);
}

void RunSeat::say_refused(const char* text) {
  say(text);
  constexpr std::size_t kPoisoned = 5;
  static_assert(kSumFields[kPoisoned] == &RunCounters::poisoned);
  raise_to(row_->sums[kPoisoned], before_[kPoisoned] + 1);
}

void RunSeat::refuse(std::uint32_t pid, const char* name, const char* why) const {
  const std::uint64_t at = page_->refused.fetch_add(1);
  if (at >= kRunRefusals) {
    return;
  }
  RunPage::Refusal& refusal = page_->refusals[at];
  store_text(refusal.name, name);
  store_text(refusal.text, why);
  refusal.pid.store(pid);
}

std::uint32_t RunSeat::wait_for_change(std::uint32_t seen) const {
  return wait_on(*page_, seen);
}

// ---- RunHost -----------------------------------------------------------------------------------

RunHost::~RunHost() {
  if (page_ != nullptr) {
    best_effort(::syscall(SYS_munmap, page_, sizeof(RunPage)),
                "what is not unmapped stays reserved");
  }
  if (fd_ >= 0) {
    best_effort(::close(fd_), "the descriptor is gone in any case");
  }
}

int RunHost::open(std::uint64_t total, std::uint64_t block_cap) {
  // The kernel would end this process with SIGXFSZ above the limit.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < sizeof(RunPage)) {
    return EFBIG;
  }
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
    return ENOENT;  // /proc is missing.
  }
  std::snprintf(path_, sizeof(path_), "/proc/%u/fd/%d", pid_of(identity), fd_);
  page_->version.store(RunPage::kVersion);
  page_->bytes.store(sizeof(RunPage));
  page_->total.store(total);
  page_->block_cap.store(block_cap);
  page_->magic.store(RunPage::kMagic);
  return 0;
}

void RunHost::set_total(std::uint64_t total) {
  page_->total.store(total);
  rebalance(*page_);
  tell_everyone(*page_);
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
  RunTotals totals{.joined = page_->joined.load(kRelaxed),
                   .refused = page_->refused.load(kRelaxed),
                   .counters = {}};
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

std::size_t RunHost::refusals(std::span<RunRefusal> out) const {
  std::size_t count = 0;
  for (const RunPage::Refusal& refusal : page_->refusals) {
    if (const std::uint32_t pid = refusal.pid.load(); pid != 0 && count < out.size()) {
      RunRefusal& one = out[count++];
      one.pid = pid;
      load_text(refusal.name, one.name);
      load_text(refusal.text, one.text);
    }
  }
  return count;
}

std::uint64_t RunHost::charged() const {
  return charge_of_all(*page_);
}

}  // namespace tiermem
