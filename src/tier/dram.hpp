// The DRAM tier: frames of ordinary memory under one budget, and windows in which they appear. It
// combines the pools (frame_pool, slab_pool), the address space (window_arena), the pages (nursery)
// and the mechanism (frame_mapper), and keeps the accounting. It selects the mechanism at creation,
// by trying it once.
//
// Threads: as marked in memory.hpp and address_space.hpp. Accounting and pools belong to the
// mover's thread. next_fault and poison are for one fault-reader thread, which runtime owns.
// stop_faults and the const calls marked [any] are for any thread. The mover's calls make no system
// call, except for new address space once in 32 MiB of frames.
//
// The accounting: in_use = acquired frames, whole slab chunks for their frames, frames while their
// pages are being returned to the kernel, and the records of extents. cached = free frames with
// pages, including victims of a trim until finish_trim. Invariant: used <= budget, except after
// set_budget below used.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/arena.hpp"
#include "os/touch_trap.hpp"
#include "os/userfault.hpp"
#include "tier/address_space.hpp"
#include "tier/dram_counters.hpp"
#include "tier/frame_mapper.hpp"
#include "tier/frame_pool.hpp"
#include "tier/memory.hpp"
#include "tier/nursery.hpp"
#include "tier/page_locker.hpp"
#include "tier/read_only_extents.hpp"
#include "tier/slab_pool.hpp"
#include "tier/window_arena.hpp"

namespace tiermem {

enum class HugePages : std::uint8_t {
  automatic,  ///< Use huge pages where they are available.
  require,    ///< Fail in create() or populate() without huge pages. Checked from Linux 6.7 on.
  off,
};

struct DramOptions {
  std::uint64_t budget = 0;
  /// How frames appear in windows. Nothing: the cheapest mechanism that works, chosen separately
  /// for mapped and other windows.
  std::optional<Mechanism> mechanism{};
  HugePages huge_pages = HugePages::automatic;
  /// Address space reserved at a time.
  std::uint64_t window_reserve_bytes = std::uint64_t{1} << 40;
  UserfaultUse userfault = UserfaultUse::automatic;
  bool follow_forks = false;    ///< Children inherit mapped windows and call follow_fork().
  bool watch = true;            ///< Watch the pages of partial extents if the kernel supports it.
  std::uint64_t map_limit = 0;  ///< Max number of mappings of the process; 0: vm.max_map_count.
  Place place{Kind::dram, 0};
};

/// The results of the probes, for `topo` and receipts. An empty reason means that nothing was
/// refused.
struct DramFacts {
  Mechanism windows = Mechanism::in_place;        ///< For extents of 2 MiB and more.
  Mechanism small_windows = Mechanism::in_place;  ///< For smaller extents. Never remap.
  /// For mapped buffers: uffd_move, copy, or remap (touches are signals). in_place: not supported.
  Mechanism mapped = Mechanism::in_place;
  bool huge_pages = false;
  bool watches = false;  ///< Partial extents in mapped windows can be watched.
  char watch_reason[128] = {};
  char move_reason[224] = {};
  char copy_reason[224] = {};
  char remap_reason[128] = {};
  char huge_reason[128] = {};
  UserfaultFacts userfault;
};

/// A touch of an absent page in a window.
using Fault = UserfaultEvent;

class DramTier final : public AddressSpace, public Memory {
 public:
  /// Errors: unsupported: the requested mechanism or required huge pages are not available. A
  /// failure leaves nothing behind.
  static Result<std::unique_ptr<DramTier>> create(const DramOptions& options);
  /// No frame may be in a window, and no hand and no fault reader may be inside.
  ~DramTier() override;

  Place place() const override { return options_.place; }
  bool host_addressable() const override { return true; }
  std::span<Memory* const> memories() const override { return memories_; }

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
  /// [any] Reserves a window for views of an adopted file. A store in it raises SIGSEGV.
  Result<std::byte*> reserve_read_only_window(std::uint64_t bytes, std::uint64_t extent_bytes);
  void release_window(std::byte* window, std::uint64_t bytes) override;
  Pool window_pool(std::uint64_t extent_bytes) const override;

  /// With in_place, bytes that were read to this address belong to the window: unmap() must follow
  /// even without a map().
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

  /// Call before the first copy. The locker outlives all use of this tier by hands.
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

  /// [mover] Marks a frame with pages that other code may reference (a pipe, a zero-copy send).
  /// When the frame is returned, its pages go back to the kernel and are not reused.
  void mark_referenced(FrameId frame);
  /// [mover] Returns the bytes that begin_trim could free: the cache, and frames that wait for
  /// their return to the kernel.
  std::uint64_t trimmable() const { return books_.cached + leaving_bytes_; }

  /// [fault reader] Waits for a touch of an absent page. Returns false after the timeout (in
  /// milliseconds, negative: none) or after stop_faults(). If windows are not registered, no fault
  /// ever comes.
  bool next_fault(int timeout_ms, Fault& fault);
  /// Takes several faults without waiting, and returns their number. Only one thread at a time may
  /// call this or next_fault().
  std::size_t take_faults(std::span<Fault> faults);
  /// Returns a descriptor that is readable while faults wait.
  int fault_fd() const { return trap_ != nullptr ? trap_->fd() : userfault_.fd(); }
  /// [fault reader] Makes the touch raise SIGBUS, and every later touch until a frame is mapped
  /// there. Returns false if a frame has arrived since: the touching thread continues.
  bool poison(std::byte* address);
  /// [any] Lets the touching thread repeat its touch.
  void wake(std::byte* address);
  /// [any] Removes the poison from the range, which has no frames.
  void clear_poison(std::byte* address, std::uint64_t bytes);
  /// [fault reader] A thread waits to write in the range. Stops watching the range.
  void allow_writes(std::byte* address, std::uint64_t bytes);
  /// [any] Returns whether the address is in a read-only window.
  bool is_read_only(const std::byte* address) const;
  /// [fault reader] A store to the extent at `extent`, in a read-only window, waits. Makes this
  /// store and all later ones raise SIGSEGV.
  void refuse_store(const Fault& fault, std::byte* extent, std::uint64_t bytes);
  /// [any] Returns whether refuse_store() was called for the address since its extent arrived.
  bool refuses_stores(const std::byte* address) { return closed_.is_closed(address); }
  /// [any] Lends a range; see LentPages. Nothing moves into a lent range by itself any more; the
  /// caller next discards the bytes that are in memory there. Extents that are lent in part, and
  /// have bytes in the rest, are pinned. Returns false, and lends nothing, if the record cannot be
  /// allocated.
  [[nodiscard]] bool lend_window(std::byte* address, std::uint64_t bytes);
  [[nodiscard]] int take_back_window(std::byte* address, std::uint64_t bytes);
  void alter_window(const std::byte* address);
  /// [any] Returns how many of the bytes from `address` on are of the same kind: addresses that are
  /// reserved for windows and not lent, or others.
  std::uint64_t stretch(const std::byte* address, std::uint64_t bytes, bool& own) const;
  /// [any] Gives up addresses where the program maps memory of its own; no window will use them
  /// again. Returns false while the window of a freed buffer is still there; call again.
  bool give_away(std::byte* address, std::uint64_t bytes);
  bool altered_window(const std::byte* address) const;
  /// [any] A touch hit an address outside every window: makes it raise SIGSEGV from now on. Returns
  /// false if this is not possible.
  bool close_at(std::byte* address);
  /// [any] Fills a page that the program emptied in a mapped window with zeros; its waiters
  /// continue.
  void fill_hole(std::byte* address);
  /// [any] Does the same for each missing page of the range.
  void fill_holes(std::byte* address, std::uint64_t bytes);
  /// [fault reader] Returns whether the touching thread is a hand that works on a withdrawal. It
  /// gets zeros; a transfer would wait for the same hand, so none may be requested.
  bool is_own(const Fault& fault) const { return mapper_.unshares(fault.thread); }

  // Fork: no hand and no fault reader may be inside these calls.
  /// [forking thread] In parent and child: the pages in windows are shared from now on.
  void note_fork() { forks_.fetch_add(1); }
  /// [child of fork, its only thread] Opens a userfaultfd of its own, and maps what was not
  /// inherited. After an error only close_windows() may follow.
  Status follow_fork();
  /// [child of fork, its only thread] Call after follow_fork(): free frames have lost their pages.
  /// All frames in use are in windows.
  void forget_free_pages();
  /// [child of fork, its only thread] Makes a touch of a mapped window raise SIGSEGV from now on.
  void close_windows();

  /// [any] Makes next_fault return false from now on.
  void stop_faults();
  /// [any] Returns whether mapped windows are supported: touches of absent bytes wait there, and a
  /// thread must read these faults.
  bool maps() const { return facts_.mapped != Mechanism::in_place; }
  /// [any] Returns whether mapped windows suit memory that its users do not know to be mapped:
  /// system calls on absent bytes may be served, and small extents are cheap.
  bool maps_well() const { return is_registered(facts_.mapped); }
  /// [any] Returns whether touches of absent extents are detected in every window.
  bool sees_touches() const { return is_registered(facts_.windows); }

  const DramFacts& facts() const { return facts_; }              // [any]
  DramCounters counters() const { return snapshot(counters_); }  // [any]

  /// Derives the accounting again from the frames; returns false if it differs. [mover], tests
  /// only.
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
    bool refused;         // The kernel refused the last return of its pages.
    std::uint64_t bytes;  // Bytes that it is charged for.
  };

  DramTier(const DramOptions& options, const DramFacts& facts, Userfault userfault,
           std::unique_ptr<TouchTrap> trap);
  int read_fault(Fault& fault) const {
    return trap_ != nullptr ? trap_->read_event(fault) : userfault_.read_event(fault);
  }
  Result<std::byte*> reserve_trapped(std::uint64_t bytes, std::uint64_t extent_bytes);

  /// log2 of a slab's chunk, which is the smallest frame that may be huge.
  static constexpr unsigned kLog2Chunk = 21;

  /// Returns whether windows are registered with userfaultfd.
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
  // Returns true if all pages are huge.
  Result<bool> bring(const FramePool& of, std::byte* address);
  void repair(Frame& frame, std::byte* home, std::uint64_t bytes);
  void settle(Frame& frame, std::byte* at, const MapResult& result);
  static std::uint64_t charge_of(const FramePool& pool, const Frame& frame);
  void release_parts(FramePool& to, std::uint32_t index);
  Status withdraw_parts(Frame& frame, const MapPlace& whole);
  void restore_parts(Frame& frame, const MapPlace& whole);

  void unlock_pages(const FramePool& of, std::uint32_t index);

  const std::array<Memory*, 1> memories_{this};
  // Constant after construction. userfault_ outlives everything that is registered with it.
  const DramOptions options_;
  DramFacts facts_;
  Userfault userfault_;
  std::unique_ptr<TouchTrap> trap_;  // Used without userfaultfd.
  int stop_ = -1;                    // Changed by follow_fork() only.
  bool require_huge_ = false;
  PageLocker* locker_ = nullptr;

  // These members synchronise themselves.
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
  std::atomic<bool> has_read_only_{false};  // A read-only window has existed.
  // Keeps a page that was found unchanged as it is until the page is dropped.
  std::mutex watch_mutex_;
  std::mutex slab_pages_mutex_;  // Only one hand at a time populates a slab chunk.

  std::atomic<bool> told_of_page_locks_{false};
  // Bytes of live mapped windows without userfaultfd.
  std::atomic<std::uint64_t> trapped_bytes_{0};
  // Written by the forking thread, read by hands and the mover.
  std::atomic<std::uint64_t> forks_{0};

  // Number of forks when this process began: it watches no frame from before.
  std::uint64_t followed_ = 0;

  // Used by the mover only. Hands read the pools' pointers while they hold frames of these pools.
  FrameBooks books_;
  std::uint64_t records_ = 0;  // Part of in_use: the bytes of the records of extents.
  std::uint64_t clock_ = 0;    // Stamps of cached frames.
  std::array<std::array<std::unique_ptr<FramePool>, 27>, 3> pools_;
  std::array<std::unique_ptr<SlabPool>, 21> slabs_;
  Vector<Victim> leaving_;  // Returned and not to be reused; in_use until trimmed.
  std::uint64_t leaving_bytes_ = 0;
  Vector<Victim> trimming_;  // Used by the mover, and by a hand between begin_trim and finish_trim.
};

}  // namespace tiermem
