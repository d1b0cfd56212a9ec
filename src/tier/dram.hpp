// The DRAM tier: frames of ordinary memory under one budget, and windows in which they appear. Puts
// together the pools (frame_pool, slab_pool), the address space (window_arena), the pages (nursery)
// and the mechanism (frame_mapper); keeps the books. Which mechanism serves is settled at creation,
// by doing it once.
//
// Threads: as marked in tier.hpp; books and pools belong to the mover's thread. next_fault and
// poison are for one fault-reader thread, which runtime owns; stop_faults and the const calls
// marked [any] for any. Mover calls make no system call, but for new address space once in 32 MiB
// of frames.
//
// The books: in_use = frames given out, whole slab chunks for their frames, frames whose pages are
// on the way back to the kernel, and the records of extents; cached = free frames with pages,
// victims of a trim included until finish_trim. used <= budget always, except after set_budget
// below used.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/arena.hpp"
#include "os/touch_trap.hpp"
#include "os/userfault.hpp"
#include "tier/dram_counters.hpp"
#include "tier/frame_mapper.hpp"
#include "tier/frame_pool.hpp"
#include "tier/nursery.hpp"
#include "tier/read_only_extents.hpp"
#include "tier/slab_pool.hpp"
#include "tier/tier.hpp"
#include "tier/window_arena.hpp"

namespace tiermem {

enum class HugePages : std::uint8_t {
  automatic,  ///< Asked for where they can be had.
  require,    ///< Else create() or populate() fails. Checked from Linux 6.7 on.
  off,
};

struct DramOptions {
  std::uint64_t budget = 0;
  /// How frames appear in windows; nothing: the cheapest that works, for mapped windows and others.
  std::optional<Mechanism> mechanism{};
  HugePages huge_pages = HugePages::automatic;
  std::uint64_t window_reserve_bytes = std::uint64_t{1} << 40;  ///< Address space at a time.
  UserfaultUse userfault = UserfaultUse::automatic;
  bool follow_forks = false;    ///< Mapped windows are inherited, and a child calls follow_fork().
  bool watch = true;            ///< Parts come watched, where the kernel does it.
  std::uint64_t map_limit = 0;  ///< Mappings the process may have; 0: as vm.max_map_count says.
  Place place{Kind::dram, 0};
};

/// What was probed, for `topo` and receipts. Empty reasons: nothing was refused.
struct DramFacts {
  Mechanism windows = Mechanism::in_place;        ///< Of extents of 2 MiB and more.
  Mechanism small_windows = Mechanism::in_place;  ///< Of smaller ones. Never remap.
  /// Of mapped buffers: uffd_move, copy, or remap, whose touches are signals; in_place: none.
  Mechanism mapped = Mechanism::in_place;
  bool huge_pages = false;
  bool watches = false;  ///< Parts of mapped extents can be watched.
  char watch_reason[128] = {};
  char move_reason[224] = {};
  char copy_reason[224] = {};
  char remap_reason[128] = {};
  char huge_reason[128] = {};
  UserfaultFacts userfault;
};

/// A touch of an absent page in a window.
using Fault = UserfaultEvent;

class DramTier final : public AddressableTier {
 public:
  /// unsupported when the mechanism or `require` asked for cannot be had; nothing is left behind.
  static Result<std::unique_ptr<DramTier>> create(const DramOptions& options);
  /// No frame may be in a window, no hand and no fault reader may be inside.
  ~DramTier() override;
  DramTier(const DramTier&) = delete;
  DramTier& operator=(const DramTier&) = delete;

  Place place() const override { return options_.place; }
  bool host_addressable() const override { return true; }

  FrameId acquire_frame(const FrameRequest& request) override;
  void return_frame(FrameId frame) override;
  FrameBooks books() const override { return books_; }
  void set_budget(std::uint64_t bytes) override { books_.budget = bytes; }
  bool charge_records(std::uint64_t bytes) override;
  bool needs_populate(FrameId frame) const override;
  Status populate(FrameId frame, bool clear, std::byte* at) override;
  std::uint64_t begin_trim(std::uint64_t bytes) override;
  void run_trim() override;
  void finish_trim() override;

  Result<std::byte*> reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                    bool mapped) override;
  /// [any] A window for views, in which a store is SIGSEGV: of an adopted file.
  Result<std::byte*> reserve_read_only_window(std::uint64_t bytes, std::uint64_t extent_bytes);
  void release_window(std::byte* window, std::uint64_t bytes) override;
  Pool window_pool(std::uint64_t extent_bytes) const override;

  /// In place, bytes that landed belong to the window: unmap() must follow even without a map().
  std::byte* landing(FrameId frame, std::byte* at) const override;
  Status map(FrameId frame, std::byte* at, Mechanism& used) override;
  Status unmap(FrameId frame, std::byte* at) override;
  Status withdraw(FrameId frame, std::byte* at) override;
  bool withdraws_slowly(FrameId frame) const override;
  Status restore(FrameId frame, std::byte* at) override;
  bool restores_at_once(FrameId frame) const override;
  bool lent(const std::byte* at, std::uint64_t bytes) const override {
    return lent_.any(at, bytes);
  }
  Mechanism restores_by() const override { return facts_.mapped; }

  /// Before the first copy. It outlives all use of this tier by hands.
  void lock_pages_with(PageLocker* locker) { locker_ = locker; }
  bool lock_pages(FrameId frame) override;
  bool has_locked_pages(FrameId frame) const override;
  Status take_home(FrameId frame, std::byte* at) override;
  Status show(FrameId frame, std::byte* at) override;

  bool takes_parts(std::uint64_t extent_bytes) const override;
  FrameId acquire_parts(const FrameRequest& request, unsigned pages) override;
  bool charge_parts(FrameId frame, unsigned pages) override;
  void discharge_parts(FrameId frame, unsigned pages) override;
  Status insert(FrameId frame, std::byte* at, const std::byte* data, PageMask pages,
                bool watched) override;
  Status empty(FrameId frame, std::byte* at, PageMask pages) override;
  bool may_be_unchanged(FrameId frame) const override;
  void drop_unchanged(std::span<Unchanged> frames) override;

  /// [mover] The frame's pages may be referenced from outside (a pipe, a zero-copy send): when it
  /// is returned they go back to the kernel instead of to the next taker.
  void mark_referenced(FrameId frame);
  /// [mover] What begin_trim could free: the cache, and frames waiting to go back to the kernel.
  std::uint64_t trimmable() const { return books_.cached + leaving_bytes_; }

  /// [fault reader] Waits for a touch of an absent page. False after the timeout (milliseconds,
  /// negative: none) or after stop_faults(). Where windows are not registered nothing ever comes.
  bool next_fault(int timeout_ms, Fault& fault);
  /// The same without waiting, several at once: how many. For one thread at a time, this one or the
  /// other.
  std::size_t take_faults(std::span<Fault> faults);
  /// Readable while faults wait.
  int fault_fd() const { return trap_ != nullptr ? trap_->fd() : userfault_.fd(); }
  /// [fault reader] The toucher gets SIGBUS, and so does everyone after it until a frame is mapped
  /// there. False when a frame arrived meanwhile: the toucher goes on.
  bool poison(std::byte* address);
  /// [any] The toucher tries again.
  void wake(std::byte* address);
  /// [any] Nothing in the range, which has no frames, is poisoned any more.
  void clear_poison(std::byte* address, std::uint64_t bytes);
  /// [fault reader] Somebody waits to write in the range, of which nothing is watched from now on.
  void allow_writes(std::byte* address, std::uint64_t bytes);
  /// [any] The address is in a read-only window.
  bool is_read_only(const std::byte* address) const;
  /// [fault reader] A store to the extent at `extent`, in a read-only window, waits. That store and
  /// all later ones are SIGSEGV.
  void refuse_store(const Fault& fault, std::byte* extent, std::uint64_t bytes);
  /// [any] refuse_store() was called for the address since its extent came.
  bool refuses_stores(const std::byte* address) { return closed_.is_closed(address); }
  /// [any] See LentPages. Nothing comes to a lent range by itself any more; what is in memory there
  /// is to be discarded next. Extents that are lent in part, and have bytes in the rest, are pinned.
  /// False: there is no memory for the record, and nothing is lent.
  [[nodiscard]] bool lend_window(std::byte* address, std::uint64_t bytes);
  [[nodiscard]] int take_back_window(std::byte* address, std::uint64_t bytes);
  void alter_window(const std::byte* address);
  /// [any] How many of the bytes from `address` on are alike: addresses that are reserved for
  /// windows and not lent, or others.
  std::uint64_t stretch(const std::byte* address, std::uint64_t bytes, bool& own) const;
  /// [any] The program maps something of its own where no window will be again. False: the window
  /// of a freed buffer is still there; ask again.
  bool give_away(std::byte* address, std::uint64_t bytes);
  bool altered_window(const std::byte* address) const;
  /// [any] A touch where no window is: it is SIGSEGV from now on. False: it cannot be.
  bool close_at(std::byte* address);
  /// [any] Zeros for a page that the program emptied in a mapped window; its waiters go on.
  void fill_hole(std::byte* address);
  /// [any] The same for each page of the range that is missing.
  void fill_holes(std::byte* address, std::uint64_t bytes);
  /// [fault reader] The toucher is a hand at work on a withdrawal: it gets zeros, and no transfer
  /// may be asked for, which would wait for the hand.
  bool is_own(const Fault& fault) const { return mapper_.unshares(fault.thread); }

  // Around fork. No hand and no fault reader may be inside.
  /// [who forked] In parent and child: the pages that are in windows are shared from now on.
  void note_fork() { forks_.fetch_add(1); }
  /// [child of fork, its only thread] A userfaultfd of its own, and what was not inherited is
  /// mapped again. After an error only close_windows() may follow.
  Status follow_fork();
  /// [child of fork, its only thread] After it: free frames have lost their pages. All that are in
  /// use are in windows.
  void forget_free_pages();
  /// [child of fork, its only thread] A touch of a mapped window is SIGSEGV from now on.
  void close_windows();

  /// [any] next_fault returns false from now on.
  void stop_faults();
  /// [any] True when mapped windows can be had: touches of what is absent there wait, and somebody
  /// must read these faults.
  bool maps() const { return facts_.mapped != Mechanism::in_place; }
  /// [any] Mapped windows serve memory that nobody knows to be mapped: system calls on what is
  /// absent may be served, and small extents cost little.
  bool maps_well() const { return is_registered(facts_.mapped); }
  /// [any] True when touches of absent extents are seen in every window.
  bool sees_touches() const { return is_registered(facts_.windows); }

  const DramFacts& facts() const { return facts_; }              // [any]
  DramCounters counters() const { return snapshot(counters_); }  // [any]

  /// Re-derives the books from the frames; false when they disagree. [mover], tests only.
  bool test_consistent() const;

 private:
  struct Parts {
    Pool pool;
    unsigned log2;
    std::uint32_t index;
  };
  struct Victim {
    FramePool* pool;
    std::uint32_t index;
    bool was_cached;
    bool refused;         // By the kernel, when its pages were last to go back.
    std::uint64_t bytes;  // What it is charged for.
  };

  DramTier(const DramOptions& options, const DramFacts& facts, Userfault userfault,
           std::unique_ptr<TouchTrap> trap);
  int read_fault(Fault& fault) const {
    return trap_ != nullptr ? trap_->read_event(fault) : userfault_.read_event(fault);
  }
  Result<std::byte*> reserve_trapped(std::uint64_t bytes, std::uint64_t extent_bytes);

  /// log2 of a slab's chunk, the smallest frame that may be huge.
  static constexpr unsigned kLog2Chunk = 21;

  /// Windows that are registered with userfaultfd.
  static bool is_registered(Mechanism mechanism) {
    return mechanism == Mechanism::uffd_move || mechanism == Mechanism::copy;
  }
  static FrameId pack(Pool pool, unsigned log2, std::uint32_t index);
  static Parts unpack(FrameId frame);
  static bool is_slab(const Parts& parts) {
    return parts.pool == Pool::locked && parts.log2 < kLog2Chunk;
  }
  Mechanism mechanism_of(Pool pool) const;
  WindowArena* arena_of(const std::byte* address) const;
  void protect(std::byte* at, std::uint64_t bytes);
  bool unprotect(std::byte* at, std::uint64_t bytes);
  void open_home(const FramePool& of, std::uint32_t index, std::byte* at);
  MapPlace place_of(const FramePool& of, std::uint32_t index, std::byte* at) const;
  void count_cuts(Frame& frame, unsigned cuts);
  bool mend(const FramePool& of, std::uint32_t index, bool always);

  FramePool& pool(Pool pool, unsigned log2);
  FramePool& pool(const Parts& parts) const;
  SlabPool& slab(const Parts& parts) const { return *slabs_[parts.log2]; }
  std::uint32_t take(FramePool& from, std::uint64_t domain);
  std::uint32_t take_slab(unsigned log2, std::uint64_t domain);
  void put_back(FramePool& to, std::uint32_t index);
  void let_leave(FramePool& from, std::uint32_t index, std::uint64_t bytes);
  void add_victims(std::uint64_t bytes, std::uint64_t& chosen);
  Status populate_slab(const Parts& parts, bool clear);
  Result<bool> bring(const FramePool& of, std::byte* address);  // True: all huge.
  void repair(Frame& frame, std::byte* home, std::uint64_t bytes);
  void settle(Frame& frame, std::byte* at, const MapResult& result);
  static std::uint64_t charge_of(const FramePool& pool, const Frame& frame);
  void release_parts(FramePool& to, std::uint32_t index);
  Status withdraw_parts(Frame& frame, const MapPlace& whole);
  void restore_parts(Frame& frame, const MapPlace& whole);

  void unlock_pages(const FramePool& of, std::uint32_t index);

  // Constant after construction. The userfault outlives all that is registered with it.
  const DramOptions options_;
  DramFacts facts_;
  Userfault userfault_;
  std::unique_ptr<TouchTrap> trap_;  // Without userfaultfd.
  int stop_ = -1;                    // Changed by follow_fork() only.
  bool require_huge_ = false;
  PageLocker* locker_ = nullptr;

  // These synchronise themselves.
  LiveDramCounters counters_;
  std::unique_ptr<Nursery> huge_nursery_, small_nursery_;
  PoisonedPages poisoned_;
  LentPages lent_;
  FrameMapper mapper_;
  struct Arenas {
    WindowArena huge, small;
  };
  Arenas windows_, mapped_, read_only_;
  ReadOnlyExtents closed_;
  std::atomic<bool> has_read_only_{false};  // There was a read-only window.
  std::mutex watch_mutex_;                  // What is found unchanged stays so until it is gone.
  std::mutex slab_pages_mutex_;             // One hand at a time brings a slab chunk its pages.

  std::atomic<bool> told_of_page_locks_{false};
  std::atomic<std::uint64_t> trapped_bytes_{0};  // Of live mapped windows without userfaultfd.
  std::atomic<std::uint64_t> forks_{0};  // Written by who forks, read by hands and the mover.

  std::uint64_t followed_ = 0;  // Forks when this process began: nobody watches what came before.

  // The mover's. Hands read the pointers of pools whose frames they hold.
  FrameBooks books_;
  std::uint64_t records_ = 0;  // Of in_use: what the records of extents take.
  std::uint64_t clock_ = 0;    // Stamps of cached frames.
  std::array<std::array<std::unique_ptr<FramePool>, 27>, 3> pools_;
  std::array<std::unique_ptr<SlabPool>, 21> slabs_;
  Vector<Victim> leaving_;  // Returned, not to be reused; in_use until trimmed.
  std::uint64_t leaving_bytes_ = 0;
  Vector<Victim> trimming_;  // The mover's, but a hand's between begin_trim and finish_trim.
};

}  // namespace tiermem
