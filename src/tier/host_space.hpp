// The host's address space: windows in which the frames of its memories appear, the touches of
// absent pages, and the mechanism that moves pages. It combines the addresses (window_arena), the
// mechanism (frame_mapper) and the pages of homes (home_pages), and owns the memories
// (host_memory.hpp). It selects the mechanism at creation, by trying it once.
//
// Threads: as marked in address_space.hpp. next_fault and poison are for one fault-reader thread,
// which runtime owns. stop_faults and the const calls marked [any] are for any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/arena.hpp"
#include "os/touch_trap.hpp"
#include "os/userfault.hpp"
#include "tier/address_space.hpp"
#include "tier/frame_mapper.hpp"
#include "tier/home_pages.hpp"
#include "tier/host_counters.hpp"
#include "tier/host_memory.hpp"
#include "tier/read_only_extents.hpp"
#include "tier/space_facts.hpp"
#include "tier/window_arena.hpp"

namespace tiermem {

enum class HugePages : std::uint8_t {
  automatic,  ///< Use huge pages where they are available.
  require,    ///< Fail in create() or populate() without huge pages. Checked from Linux 6.7 on.
  off,
};

struct HostSpaceOptions {
  Vector<HostMemoryOptions> memories;  ///< By number; at least one, at most kMostMemories.
  /// How frames appear in windows. Nothing: the cheapest mechanism that works, chosen separately
  /// for mapped and other windows.
  std::optional<Mechanism> mechanism{};
  HugePages huge_pages = HugePages::automatic;
  /// Address space reserved at a time.
  std::uint64_t window_reserve_bytes = std::uint64_t{1} << 40;
  UserfaultUse userfault = UserfaultUse::automatic;
  /// Children inherit mapped windows and call follow_fork(). They inherit no other memory of
  /// buffers: windows of views, and homes.
  bool follow_forks = false;
  bool watch = true;            ///< Watch the pages of partial extents if the kernel supports it.
  std::uint64_t map_limit = 0;  ///< Max number of mappings of the process; 0: vm.max_map_count.
};

/// A touch of an absent page in a window.
using Fault = UserfaultEvent;

class HostSpace final : public AddressSpace {
 public:
  /// Creates the space and its memories. Errors: unsupported: the requested mechanism or required
  /// huge pages are not available; those of NodePages::open(). A failure leaves nothing behind.
  static Result<std::unique_ptr<HostSpace>> create(const HostSpaceOptions& options);
  /// No frame may be in a window, and no worker and no fault reader may be inside.
  ~HostSpace() override;

  std::span<Memory* const> memories() const override { return memories_; }
  HostMemory& memory(unsigned number = 0) const { return *own_[number]; }  // [any]
  bool host_addressable() const override { return true; }

  Result<std::byte*> reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                    bool mapped) override;
  /// [any] Reserves a window for an adopted file. A store in it raises SIGSEGV. `mapped`: the
  /// program touches it without views.
  Result<std::byte*> reserve_read_only_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                              bool mapped);
  void release_window(std::byte* window, std::uint64_t bytes) override;
  Pool window_pool(std::uint64_t extent_bytes) const override;

  /// With in_place, bytes that were read to this address belong to the window: unmap() must follow
  /// even without a map().
  std::byte* bytes_at(FrameId frame, std::byte* at) const override;
  Status map(FrameId frame, std::byte* at, Mechanism& used) override;
  Status unmap(FrameId frame, std::byte* at) override;
  Status withdraw(FrameId frame, std::byte* at) override;
  Status withdraw_to(FrameId to, FrameId frame, std::byte* at, PageMask pages) override;
  Status restore_from(FrameId from, FrameId frame, std::byte* at) override;
  bool withdraws_slowly(FrameId frame) const override;
  Status restore(FrameId frame, std::byte* at) override;
  bool restores_at_once(FrameId frame, const std::byte* at) const override;
  bool lent(const std::byte* at, std::uint64_t bytes) const override {
    return lent_.any(at, bytes);
  }
  Mechanism restores_by(const std::byte* at) const override {
    return is_mapped_file(at) ? Mechanism::copy : facts_.mapped;
  }
  Status take_home(FrameId frame, std::byte* at) override;
  Status show(FrameId frame, std::byte* at) override;
  Status relocate(FrameId from, FrameId to, std::byte* at, bool& home) override;

  bool takes_parts(std::uint64_t extent_bytes, bool read_only) const override;
  Status insert(FrameId frame, std::byte* at, const std::byte* data, PageMask pages,
                bool watched) override;
  Status empty(FrameId frame, std::byte* at, PageMask pages) override;
  bool may_be_unchanged(FrameId frame) const override;
  void end_watch(FrameId frame) override;
  void drop_unchanged(std::span<Unchanged> frames) override;

  /// [fault reader] Waits for a touch of an absent page. Returns false after the timeout (in
  /// milliseconds, negative: none) or after stop_faults(). If windows are not registered, no fault
  /// ever comes.
  bool next_fault(int timeout_ms, Fault& fault);
  /// Touches are signals: answers them in the touching thread, until the call with null. See
  /// TouchTrap::answer_by.
  void answer_by(TouchTrap::Answer answer, void* argument) { trap_->answer_by(answer, argument); }
  /// [any] Returns whether touches are signals that answer_by() answers. No fault comes then.
  bool signals() const { return facts_.userfault.signals; }
  /// [any] Returns whether touches of the page raise SIGBUS.
  bool is_poisoned(std::byte* address);
  /// Takes several faults without waiting, and returns their number. Only one thread at a time may
  /// call this or next_fault().
  std::size_t take_faults(std::span<Fault> faults);
  /// Returns a descriptor that is readable while faults wait.
  int fault_fd() const { return closes() ? trap_->fd() : userfault_.fd(); }
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
  /// [fault reader] Returns whether the touching thread is a worker that works on a withdrawal. It
  /// gets zeros; a transfer would wait for the same worker, so none may be requested.
  bool is_own(const Fault& fault) const { return mapper_.unshares(fault.thread); }

  // Fork: no worker and no fault reader may be inside these calls.
  /// [forking thread] In parent and child: the pages in windows are shared from now on.
  void note_fork() { forks_.fetch_add(1); }
  /// [child of fork, its only thread] Opens a userfaultfd of its own, and maps what was not
  /// inherited. Frames that were in windows of views are at home, without their bytes. After an
  /// error only close_windows() may follow.
  Status follow_fork();
  /// [child of fork, its only thread] Call after follow_fork(): free frames have lost their pages.
  /// All frames in use are in windows.
  void forget_free_pages();
  /// [child of fork, its only thread] Makes a touch of a window, or of a view, raise SIGSEGV from
  /// now on.
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

  const HostSpaceFacts& facts() const { return facts_; }         // [any]
  HostCounters counters() const { return snapshot(counters_); }  // [any]

 private:
  /// By memory.
  using Sources = Vector<HostPages>;
  static Result<Sources> open_sources(const HostSpaceOptions& options);
  HostSpace(const HostSpaceOptions& options, Sources sources, const HostSpaceFacts& facts,
            Userfault userfault, std::unique_ptr<TouchTrap> trap);
  int read_fault(Fault& fault) const {
    return closes() ? trap_->read_event(fault) : userfault_.read_event(fault);
  }
  /// Returns whether absent extents in mapped windows are closed: there is no userfaultfd.
  bool closes() const { return trap_ != nullptr && !signals(); }
  /// Returns the trap for windows that are registered but not mapped.
  TouchTrap* signalled() const { return signals() ? trap_.get() : nullptr; }
  Result<std::byte*> reserve_trapped(std::uint64_t bytes, std::uint64_t extent_bytes);

  /// Returns whether windows are registered with userfaultfd.
  static bool is_registered(Mechanism mechanism) {
    return mechanism == Mechanism::uffd_move || mechanism == Mechanism::copy;
  }
  HostMemory& memory_of(FrameId frame) const { return memory(frame.memory()); }
  HostFrame frame_of(FrameId frame) const { return memory_of(frame).frame(frame); }
  std::array<const WindowArena*, 7> arenas() const {
    return {&windows_.huge,   &windows_.small,   &mapped_.huge, &mapped_.small,
            &read_only_.huge, &read_only_.small, &mapped_files_};
  }
  WindowArena* arena_of(const std::byte* address) const;
  std::array<WindowArena*, 4> arenas_of_views() {
    return {&windows_.huge, &windows_.small, &read_only_.huge, &read_only_.small};
  }
  std::array<WindowArena*, 3> arenas_of_mapped() {
    return {&mapped_.huge, &mapped_.small, &mapped_files_};
  }
  bool is_mapped(const std::byte* at) const {
    return mapped_.huge.contains(at) || mapped_.small.contains(at) || mapped_files_.contains(at);
  }
  void leave_views_to_parent();
  bool is_mapped_file(const std::byte* at) const {
    return has_read_only_.load(std::memory_order_acquire) && mapped_files_.contains(at);
  }
  MapResult restore_file(const MapPlace& place);
  Status drop_file(Frame& frame, std::byte* at, std::uint64_t bytes);
  void protect(std::byte* at, std::uint64_t bytes);
  bool unprotect(std::byte* at, std::uint64_t bytes);
  void open_home(const HostFrame& held, std::byte* at);
  MapPlace place_of(FrameId frame, const HostFrame& held, std::byte* at) const;
  Mechanism mechanism_of(FrameId frame) const {
    return memory_of(frame).file() != nullptr ? Mechanism::remap
                                              : facts_.mechanism_of(HostMemory::pool_of(frame));
  }
  void settle(Frame& frame, std::byte* at, const MapResult& result);
  void settle_on_node(FrameId id, std::byte* at, std::uint64_t bytes, const MapResult& result);
  Status relocate_mapped(FrameId from, FrameId to, std::byte* at);
  Status relocate_in_window(FrameId from, FrameId to, std::byte* at, bool& home);
  void relocate_in_place(FrameId from, FrameId to, std::byte* at);
  Status relocate_from_place(FrameId from, FrameId to, std::byte* at, bool& home);
  Status relocate_to_place(FrameId from, FrameId to, std::byte* at);
  MapPlace place_to_leave(MapPlace place, const Frame& frame) const;
  Status withdraw_pages(PageMask pages, const MapPlace& whole, Frame& to);
  void restore_pages(PageMask pages, const MapPlace& whole);

  // Constant after construction. userfault_ outlives everything that is registered with it.
  const HostSpaceOptions options_;
  HostSpaceFacts facts_;
  Userfault userfault_;
  std::unique_ptr<TouchTrap> trap_;  // Used without userfaultfd, or where touches are signals.
  int stop_ = -1;                    // Changed by follow_fork() only.

  // These members synchronise themselves.
  LiveHostCounters counters_;
  PoisonedPages poisoned_;
  LentPages lent_;
  FrameMapper mapper_;
  struct Arenas {
    WindowArena huge, small;
  };
  Arenas windows_, mapped_, read_only_;
  WindowArena mapped_files_;  // Read-only.
  ReadOnlyExtents closed_;
  std::atomic<bool> has_read_only_{false};  // A read-only window has existed.
  // Keeps a page that was found unchanged as it is until the page is dropped.
  std::mutex watch_mutex_;

  // Bytes of live mapped windows without userfaultfd.
  std::atomic<std::uint64_t> trapped_bytes_{0};
  // Written by the forking thread, read by workers and the mover.
  std::atomic<std::uint64_t> forks_{0};

  // Number of forks when this process began: it watches no frame from before.
  std::uint64_t followed_ = 0;

  HomePages homes_;
  // Constant after construction.
  std::uint64_t budgets_ = 0;  // First budgets of the memories that take mapped buffers.
  Vector<std::unique_ptr<HostMemory>> own_;
  Vector<Memory*> memories_;  // The same.
};

}  // namespace tiermem
