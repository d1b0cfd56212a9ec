// The page that `tiermem run` and every process under it share: a memfd that `tiermem run` creates
// and the others open by the path in TIERMEM_RUN. It divides one DRAM budget among the processes
// and collects their counters.
//
// The run command uses RunHost; the preload library of each process uses RunSeat. Both may be
// called from any thread unless a function says otherwise. RunSeat runs inside an implementation of
// malloc: nothing here allocates, throws or takes a lock. Every call may change errno. Only
// wait_for_change() waits for another process.
//
// A process may be killed at any instruction. These rules hold nevertheless:
//
// * The sum over rows of max(share, held) is at most the total, with two short exceptions. Inside
//   hold(), a process may show bytes that it then does not get. After set_total() lowers the total,
//   processes take a while to give up bytes. rebalance() lowers before it raises, and an older
//   rebalance cannot touch a row that a newer one has stamped.
// * Each counter is counted once. A row is not folded into a sum when its process ends: its counters
//   grow over all processes that had the row, and a total is the sum over all rows.
// * `owner` names the process that a row belongs to. State, pid and start time are one word, so a
//   claim is one CAS, and the start time distinguishes a pid that is used again. An unfinished claim
//   is found as a dead process is.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tiermem {

inline constexpr std::size_t kRunRows = 256;       ///< Processes that tier at the same time.
inline constexpr std::size_t kRunTextBytes = 256;  ///< Including the terminating zero.
inline constexpr std::size_t kRunNameBytes = 16;   ///< As in the kernel's `comm`.
inline constexpr std::size_t kRunRefusals = 32;    ///< Refusals that are kept with their reason.
/// Minimum share of a seat, if the total is large enough for all.
inline constexpr std::uint64_t kRunFloor = 32 << 20;

/// Default of TIERMEM_START: the plain memory that each process of a run may have before it is
/// tiered. It is small if the run's budget is small. Pure.
std::uint64_t run_start(std::uint64_t total);

/// Max-min fair division of `total` bytes: a process that needs less than an equal part gets its
/// need, and the others divide the rest equally. Each process counts as needing at least kRunFloor,
/// or total / n if that is less. Bytes that no process needs are divided equally on top. The sum is
/// at most `total`. `shares` is as long as `wants`. Pure.
void divide(std::uint64_t total, std::span<const std::uint64_t> wants,
            std::span<std::uint64_t> shares);

/// Counters of a process since it joined.
struct RunCounters {
  std::uint64_t promoted = 0;   ///< Bytes read from the block tier.
  std::uint64_t demoted = 0;    ///< Bytes written to it.
  std::uint64_t faults = 0;     ///< Touches of absent bytes that were served.
  std::uint64_t waited_ns = 0;  ///< Time that threads waited for them, summed over threads.
  std::uint64_t evicted = 0;    ///< Bytes that left DRAM.
  std::uint64_t poisoned = 0;   ///< Pages with bytes that could not be read back.
  std::uint64_t waited_for_room_ns = 0;  ///< The part of `waited_ns` spent on evictions.
  // From here on: current values, not sums since the start.
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
  char text[kRunTextBytes] = {};  ///< The reason that limited it, or its last problem; may be empty.
  std::uint64_t share = 0;
  std::uint64_t want = 0;
  RunCounters counters;
};

/// A process that is not tiered, or no longer.
struct RunRefusal {
  std::uint32_t pid = 0;
  char name[kRunNameBytes] = {};
  char text[kRunTextBytes] = {};  ///< The reason, as a sentence.
};

/// Totals over the processes of a run. `resident` and `tiered` cover living processes. The peaks
/// are of sums over processes that lived at the same time, as far as the processes published them.
struct RunTotals {
  std::uint64_t joined = 0;   ///< Processes that ever had a row.
  std::uint64_t refused = 0;  ///< Calls of RunSeat::refuse().
  RunCounters counters;
};

/// The memory that several processes touch: atomics only, with one layout for all builds of a
/// kVersion. Zero means unused.
struct RunPage {
  static constexpr std::uint64_t kMagic = 0x6e75'726d'656d'7274;  // "trmemrun"
  static constexpr std::uint32_t kVersion = 4;
  static constexpr std::size_t kSums = 7;  ///< The counters that only grow, in RunCounters' order.

  struct alignas(64) Row {
    std::atomic<std::uint64_t> owner;  ///< State, pid, start time. Changed by CAS, or by the owner.
    std::atomic<std::uint64_t>
        grant;  ///< Epoch of the rebalance that stamped it, and the share in pages. By CAS only.
    /// 1: the process lends its share. Other processes set it; the owner clears it.
    std::atomic<std::uint32_t> idle;
    // Written by the owner:
    std::atomic<std::uint32_t> guest;  ///< 1: a forked child that still has its parent's pages.
    std::atomic<std::uint64_t> want;
    /// The bytes it keeps to now: above the share while it shrinks.
    std::atomic<std::uint64_t> held;
    std::array<std::atomic<std::uint64_t>, kSums> sums;    ///< Over all owners so far.
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
  // Written by the host.
  std::atomic<std::uint64_t> total;
  // Written by all processes.
  std::atomic<std::uint32_t>
      generation;                    ///< The futex: changes when a share may have changed.
  std::atomic<std::uint32_t> epoch;  ///< Number of rebalances begun.
  std::atomic<std::uint64_t> joined, refused;
  std::atomic<std::uint64_t> resident_peak, tiered_peak;
  std::array<Row, kRunRows> rows;
  std::array<Refusal, kRunRefusals> refusals;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A process's seat in its run. A process has one for its whole life: the page stays mapped.
class RunSeat {
 public:
  /// Maps the page. `path` is the value of TIERMEM_RUN, `broker` that of TIERMEM_RUN_BROKER; either
  /// may be null. The broker supplies what this process may not open or read itself. The seat has
  /// no row yet. Never fails: check `ok()`. `broker` must stay valid and unchanged.
  static RunSeat take(const char* path, const char* broker = nullptr);

  bool ok() const { return page_ != nullptr; }
  /// The reason why `ok()` or the last join() was false, as a sentence.
  const char* reason() const { return reason_; }
  bool joined() const { return row_ != nullptr; }

  /// Takes a row; from then on this process has a share. `name` is cut to 15 characters. Returns
  /// false with a reason if there are too many processes. Call it on one thread, while no other
  /// uses this seat.
  bool join(const char* name);
  /// Gives up the row and its share; the counters stay. Also wakes this process's own
  /// wait_for_change().
  void leave();
  /// Call it in the child of a fork before any other function here. The parent's row stays the
  /// parent's, and the child joins by itself, as with join(). It joins as a guest: the parent
  /// counts the pages that they share, and share() is 0 until settle(). The counters begin at zero.
  /// Does nothing if the parent had not joined.
  bool after_fork_in_child();
  /// Ends the guest state: the process keeps to `held` bytes now, and its share follows from that
  /// and from its want. One thread at a time.
  void settle(std::uint64_t held);

  /// Records for the end of the run that process `pid` is not tiered, or no longer; `why` is a
  /// sentence. Allowed before join(). Any thread; no system call.
  void refuse(std::uint32_t pid, const char* name, const char* why) const;

  /// The budgets of the whole run; known before join().
  std::uint64_t total() const { return page_->total.load(std::memory_order_relaxed); }
  std::uint64_t block_cap() const { return page_->block_cap.load(std::memory_order_relaxed); }

  // ---- after join() ----

  /// Bytes of DRAM that this process may use. May be 0 until other processes have given up theirs;
  /// use wait_for_change() in that case.
  std::uint64_t share() const;
  /// Sets the bytes that this process would use if it could. A change divides the shares again. For
  /// steps worth megabytes.
  void want(std::uint64_t bytes);
  /// Call it again and again while this process waits for bytes; it looks twice a second. Processes
  /// that use no processor time lend their shares, down to kRunFloor, until they are awake(). One
  /// thread at a time.
  void look_for_idle(std::int64_t now_ns);
  /// This process waits for bytes itself, so it gets back the share that it lends.
  void awake();
  /// Announces that this process keeps to `bytes` from now on; other processes' shares depend on
  /// it. To grow, call it before using more; to shrink, call it after giving up the bytes. Returns
  /// the bytes that this process may keep to: fewer than `bytes` if the share has fallen. A process
  /// that never calls it is assumed to follow its share at once. One thread at a time.
  std::uint64_t hold(std::uint64_t bytes);

  /// Costs a handful of stores. One thread at a time.
  void publish(const RunCounters& counters);
  /// Sets the reason that limits this process, or its last problem. One thread at a time; a reader
  /// may see a mix of the old and the new text.
  void say(const char* text);
  /// As say(), for a touch that ends in SIGBUS. It is counted at once, because the process may end
  /// before it publishes its counters.
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
  std::array<Seen, kRunRows> seen_{};  // As of the last look for idle processes.
  std::int64_t looked_ns_ = 0;
  const char* reason_ = "";
  char name_[kRunNameBytes] = {};
};

/// The run command's side: creates the page and reads it.
class RunHost {
 public:
  RunHost() = default;
  ~RunHost();
  RunHost(const RunHost&) = delete;
  RunHost& operator=(const RunHost&) = delete;

  /// Returns 0 or errno.
  int open(std::uint64_t total, std::uint64_t block_cap);
  /// The value of TIERMEM_RUN; valid as long as this process lives.
  const char* path() const { return path_; }
  /// The page's descriptor.
  int fd() const { return fd_; }

  /// Changes the budget of the whole run and divides it at once. Processes that hold more give it
  /// up gradually.
  void set_total(std::uint64_t total);
  /// Finds processes that ended without leaving, and divides their shares.
  void settle();
  /// Wakes all threads that wait for a change, in all processes.
  void notify();
  std::uint32_t generation() const { return page_->generation.load(); }
  std::uint32_t wait_for_change(std::uint32_t seen) const;

  /// Fills `out` with the processes that are still in their rows; returns their number.
  std::size_t processes(std::span<RunProcess> out) const;
  RunTotals totals() const;
  /// Fills `out` with the first refused processes; returns the number of all.
  std::size_t refusals(std::span<RunRefusal> out) const;
  /// Bytes that count against the total now: shares, and bytes held above them. Exact while no
  /// other process runs.
  std::uint64_t charged() const;

 private:
  RunPage* page_ = nullptr;
  int fd_ = -1;
  char path_[64] = {};
};

}  // namespace tiermem
