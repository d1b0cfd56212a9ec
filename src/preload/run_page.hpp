// The page that `tiermem run` and every process under it share: a memfd that `tiermem run` creates
// and the others open by the path in TIERMEM_RUN. It divides one DRAM budget among the processes
// and collects what they count.
//
// Who calls it: RunHost, the run command; RunSeat, the preload library of each process. Both from
// any thread, except where a function says otherwise. It runs inside an implementation of malloc:
// nothing here allocates, throws or takes a lock. Every call may change errno. Only
// wait_for_change() waits for another process.
//
// A process may be killed at any instruction. What holds nevertheless, and why:
//
// * The sum over rows of max(share, held) is at most the total, but for a moment inside hold(), when
//   a process shows what it is not given after all, and while processes give up what a lower total
//   (set_total()) takes. rebalance() lowers before it raises, and an older one cannot touch a row
//   that a newer one has stamped.
// * Each counter is counted once. Rows are not folded into a sum when their process ends: a row's
//   counters grow over all processes that had the row, and a total is the sum over all rows.
// * A row belongs to whom `owner` names. State, pid and start time of the process are one word, so
//   a claim is one CAS, and a pid that is used again is told apart. A claim that was not finished
//   is found as a dead process is.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tiermem {

inline constexpr std::size_t kRunRows = 256;       ///< Processes that tier at the same time.
inline constexpr std::size_t kRunTextBytes = 256;  ///< With the zero at the end.
inline constexpr std::size_t kRunNameBytes = 16;   ///< As the kernel's `comm`.
inline constexpr std::size_t kRunRefusals = 32;    ///< That are kept with their reason.
/// A seat's least share, where the total has that for each.
inline constexpr std::uint64_t kRunFloor = 32 << 20;

/// Plain memory that each process of a run may have before it is tiered, where TIERMEM_START does not
/// say otherwise: little where the run has little. Pure.
std::uint64_t run_start(std::uint64_t total);

/// Max-min fair: who needs less than an equal part gets what it needs, the others divide the rest
/// equally. Everyone needs kRunFloor at least, or total / n where that is less; what nobody needs
/// is divided equally on top. Bytes; the sum is at most `total`. `shares` is as long as `wants`.
/// Pure.
void divide(std::uint64_t total, std::span<const std::uint64_t> wants,
            std::span<std::uint64_t> shares);

/// What a process counted since it joined.
struct RunCounters {
  std::uint64_t promoted = 0;   ///< Bytes read from the block tier.
  std::uint64_t demoted = 0;    ///< Bytes written to it.
  std::uint64_t faults = 0;     ///< Touches of absent bytes that were served.
  std::uint64_t waited_ns = 0;  ///< What threads waited for them, all threads together.
  std::uint64_t evicted = 0;    ///< Bytes that left DRAM.
  std::uint64_t poisoned = 0;   ///< Pages whose bytes could not be read back.
  std::uint64_t waited_for_room_ns = 0;  ///< The part of `waited_ns` in which others had to leave.
  // From here on: as it is now, not since the start.
  std::uint64_t resident = 0;  ///< Tiered bytes in DRAM.
  std::uint64_t resident_peak = 0;
  std::uint64_t tiered = 0;  ///< Bytes allocated in tiered memory, wherever they are.
  std::uint64_t tiered_peak = 0;
};

/// A process that is or was in the run, for reports.
struct RunProcess {
  std::uint32_t pid = 0;
  bool live = false;
  char name[kRunNameBytes] = {};
  char text[kRunTextBytes] = {};  ///< What limited it, or its last problem; may be empty.
  std::uint64_t share = 0;
  std::uint64_t want = 0;
  RunCounters counters;
};

/// A process that is not tiered, or no longer.
struct RunRefusal {
  std::uint32_t pid = 0;
  char name[kRunNameBytes] = {};
  char text[kRunTextBytes] = {};  ///< Why: a sentence.
};

/// The processes of a run together. `resident` and `tiered` are of the living ones, the peaks of
/// sums over processes that lived at the same time, as far as they were published.
struct RunTotals {
  std::uint64_t joined = 0;   ///< Processes that ever had a row.
  std::uint64_t refused = 0;  ///< Calls of RunSeat::refuse().
  RunCounters counters;
};

/// What several processes touch: atomics only, laid out for all builds of one kVersion. Zero means
/// unused.
struct RunPage {
  static constexpr std::uint64_t kMagic = 0x6e75'726d'656d'7274;  // "trmemrun"
  static constexpr std::uint32_t kVersion = 4;
  static constexpr std::size_t kSums = 7;  ///< The counters that only grow, in RunCounters' order.

  struct alignas(64) Row {
    std::atomic<std::uint64_t> owner;  ///< State, pid, start time. By CAS, or by the owner.
    std::atomic<std::uint64_t>
        grant;  ///< Epoch of the rebalance that stamped it, and the share in pages. By CAS only.
    std::atomic<std::uint32_t> idle;  ///< 1: it lends. Set by those who look, cleared by the owner.
    // By the owner:
    std::atomic<std::uint32_t> guest;  ///< 1: a forked child that has its parent's pages still.
    std::atomic<std::uint64_t> want;
    std::atomic<std::uint64_t> held;  ///< What it keeps to now: above the share while it shrinks.
    std::array<std::atomic<std::uint64_t>, kSums> sums;    ///< Of all owners so far.
    std::array<std::atomic<std::uint64_t>, kSums> before;  ///< `sums` when the owner joined.
    std::atomic<std::uint64_t> resident, resident_peak, tiered, tiered_peak;
    std::array<std::atomic<std::uint64_t>, kRunNameBytes / 8> name;
    std::array<std::atomic<std::uint64_t>, kRunTextBytes / 8> text;
  };

  struct Refusal {
    std::atomic<std::uint32_t> pid;  ///< Stored last.
    std::array<std::atomic<std::uint64_t>, kRunNameBytes / 8> name;
    std::array<std::atomic<std::uint64_t>, kRunTextBytes / 8> text;
  };

  // Constant once `magic` is there.
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint32_t> version;
  std::atomic<std::uint32_t> bytes;  ///< sizeof(RunPage).
  std::atomic<std::uint64_t> block_cap;
  // By the host.
  std::atomic<std::uint64_t> total;
  // By everyone.
  std::atomic<std::uint32_t>
      generation;                    ///< The futex: another number when a share may have changed.
  std::atomic<std::uint32_t> epoch;  ///< Rebalances begun.
  std::atomic<std::uint64_t> joined, refused;
  std::atomic<std::uint64_t> resident_peak, tiered_peak;
  std::array<Row, kRunRows> rows;
  std::array<Refusal, kRunRefusals> refusals;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A process's place in the run it was started in. One for a process, for life: the page stays
/// mapped.
class RunSeat {
 public:
  /// Maps the page. `path` is the value of TIERMEM_RUN, `broker` that of TIERMEM_RUN_BROKER; either
  /// may be nullptr. The broker is asked for what this process may not open or read itself. Not in
  /// a row yet; never fails: `ok()` tells. `broker` must stay as it is.
  static RunSeat take(const char* path, const char* broker = nullptr);

  bool ok() const { return page_ != nullptr; }
  /// Why `ok()` or the last join() was false: a sentence.
  const char* reason() const { return reason_; }
  bool joined() const { return row_ != nullptr; }

  /// Takes a row; from then on this process has a share. `name` is cut to 15 characters. False with
  /// a reason when there are too many processes. One thread, and nobody else in this seat.
  bool join(const char* name);
  /// Gives row and share back; the counters stay. Wakes this process's own wait_for_change(), too.
  void leave();
  /// In the child of a fork, before anything else here: the parent's row is the parent's, and the
  /// child joins by itself (as join()), as a guest: it has the pages of its parent, which counts
  /// them, and share() is 0 until settle(). Counters begin at zero again. Nothing to do where the
  /// parent had not joined.
  bool after_fork_in_child();
  /// A guest no longer: it keeps to `held` bytes now, and its share is what follows from that and
  /// what it wants. One thread at a time.
  void settle(std::uint64_t held);

  /// Process `pid` is not tiered, or no longer: a sentence for the end of the run. Also before
  /// join(). Any thread; no system call.
  void refuse(std::uint32_t pid, const char* name, const char* why) const;

  /// The budgets of the whole run; known before join().
  std::uint64_t total() const { return page_->total.load(std::memory_order_relaxed); }
  std::uint64_t block_cap() const { return page_->block_cap.load(std::memory_order_relaxed); }

  // ---- after join() ----

  /// Bytes of DRAM this process may use. May be 0 until others have given up theirs: then
  /// wait_for_change().
  std::uint64_t share() const;
  /// What this process would use if it could; the shares are divided again when that is news. For
  /// steps worth megabytes.
  void want(std::uint64_t bytes);
  /// This process waits for bytes: those that use no processor lend their shares, down to
  /// kRunFloor, until they are awake(). To be called again and again; looks twice a second. One
  /// thread at a time.
  void look_for_idle(std::int64_t now_ns);
  /// This process waits for bytes itself: what it has lent is its own again.
  void awake();
  /// "I keep to `bytes` from now on": what others may be given depends on it. To grow, call it
  /// before using more; to shrink, after the bytes are given up. Returns what this process may keep
  /// to: less than asked where the share fell meanwhile. A process that never calls it is taken to
  /// follow its share at once. One thread at a time.
  std::uint64_t hold(std::uint64_t bytes);

  /// A handful of stores. One thread at a time.
  void publish(const RunCounters& counters);
  /// What limits this process, or its last problem. One thread at a time; a reader may see it half
  /// changed.
  void say(const char* text);
  /// Likewise, and a touch of this process ends in SIGBUS for it: counted at once, as the process may
  /// end before it publishes its counters.
  void say_refused(const char* text);

  std::uint32_t generation() const { return page_->generation.load(); }
  /// Sleeps until the generation is not `seen`, and returns it.
  std::uint32_t wait_for_change(std::uint32_t seen) const;

 private:
  bool join(const char* name, bool as_guest);

  RunPage* page_ = nullptr;
  const char* broker_ = nullptr;
  RunPage::Row* row_ = nullptr;
  std::uint64_t identity_ = 0;
  std::array<std::uint64_t, RunPage::kSums> before_{};
  struct Seen {
    std::uint64_t owner = 0;
    std::uint64_t ticks = 0;
  };
  std::array<Seen, kRunRows> seen_{};  // At the last look for idle ones.
  std::int64_t looked_ns_ = 0;
  const char* reason_ = "";
  char name_[kRunNameBytes] = {};
};

/// The run command's side: makes the page, and reads it.
class RunHost {
 public:
  RunHost() = default;
  ~RunHost();
  RunHost(const RunHost&) = delete;
  RunHost& operator=(const RunHost&) = delete;

  /// 0 or errno.
  int open(std::uint64_t total, std::uint64_t block_cap);
  /// For TIERMEM_RUN; lives as long as this process.
  const char* path() const { return path_; }
  /// Of the page.
  int fd() const { return fd_; }

  /// Another budget for the whole run, divided at once. Processes that have more give it up by and
  /// by.
  void set_total(std::uint64_t total);
  /// Finds processes that ended without a word and divides what they had.
  void settle();
  /// Wakes everyone who waits for a change, this process's threads included.
  void notify();
  std::uint32_t generation() const { return page_->generation.load(); }
  std::uint32_t wait_for_change(std::uint32_t seen) const;

  /// Fills `out` with the processes whose rows nobody took since; returns how many there are.
  std::size_t processes(std::span<RunProcess> out) const;
  RunTotals totals() const;
  /// Fills `out` with the first that were refused; returns how many there are.
  std::size_t refusals(std::span<RunRefusal> out) const;
  /// What counts against the total now: shares, and what is held above them. Exact while nobody
  /// else runs.
  std::uint64_t charged() const;

 private:
  RunPage* page_ = nullptr;
  int fd_ = -1;
  char path_[64] = {};
};

}  // namespace tiermem
