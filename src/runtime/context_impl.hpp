// The parts of a context: configuration → tiers → residency and mover, and the threads that drive
// them. Owns all of them; decides nothing about extents.
//
// Its own threads: the mover's (steps and sleeps on the port), the workers, a fault reader if the
// mover's thread cannot read faults, and one that keeps a toucher's processor awake. Everything
// else runs on callers' threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/adaptive_mutex.hpp"
#include "base/clock.hpp"
#include "mover/mover.hpp"
#include "os/host_facts.hpp"
#include "os/io_lanes.hpp"
#include "os/waitable_io_port.hpp"
#include "residency/residency.hpp"
#include "runtime/busy_poll.hpp"
#include "runtime/call_limits.hpp"
#include "runtime/config.hpp"
#include "runtime/device_memory.hpp"
#include "runtime/errands.hpp"
#include "runtime/faults.hpp"
#include "runtime/fork.hpp"
#include "runtime/halt_poll.hpp"
#include "runtime/inspector.hpp"
#include "runtime/ops.hpp"
#include "runtime/placed_memory.hpp"
#include "runtime/row_cache.hpp"
#include "runtime/worker_threads.hpp"
#include "tier/block.hpp"
#include "tier/compressed.hpp"
#include "tier/cufile_path.hpp"
#include "tier/file.hpp"
#include "tier/gpu.hpp"
#include "tier/host_space.hpp"
#include "tiermem/context.hpp"

namespace tiermem {

class RowCall;

class Context::Impl {
 public:
  static Result<std::unique_ptr<Impl>> create(const Config& config, const HostFacts& facts);
  ~Impl();

  // The end of a context: retired.cpp.
  /// The object that calls find in place of any ended context: closed, without parts, permanent.
  /// Created before the first context.
  static Impl* tombstone() noexcept;
  bool is_tombstone() const { return state_.load(std::memory_order_relaxed) == State::tombstone; }
  /// Ends a context that calls can no longer find. Waits for calls inside it. Its records stay
  /// mapped until several more contexts have ended, so a thread on the hit path can finish.
  static void bury(Impl* impl) noexcept;
  /// Frees the address space and tags of ended contexts; returns false if there were none.
  static bool forget_buried() noexcept;
  /// Number of calls inside it that no thread record marks (in_call.hpp).
  mutable std::atomic<std::uint32_t> unmarked_calls{0};

  /// Returns ok, or shut_down with the reason: closed, or a child of fork.
  Status usable(const char* call) const;
  /// As usable(), and unsupported without a GPU.
  Status usable_gpus(const char* call) const;
  bool open() const { return state_.load(std::memory_order_relaxed) == State::open; }
  bool forked() const { return state_.load(std::memory_order_relaxed) == State::forked; }
  /// Returns whether `ops` may be used, also by a call that usable() refuses. In a child of fork it
  /// belongs to the parent, and a thread that exists only there may have locked it.
  bool has_operations() const { return !forked() && !is_tombstone(); }

  Status close(bool force, Timeout timeout);
  /// `internal`: kOfHeaps, kOfDevice, or 0.
  Result<Handle> alloc(std::uint64_t bytes, const BufferOptions& options,
                       std::uint32_t internal = 0);
  void order_stock(const BufferShape& shape, bool found) noexcept;
  Result<Handle> adopt(const char* path, std::uint64_t offset, std::uint64_t length,
                       const BufferOptions& options, std::uint64_t& bytes);
  /// For Context::adopt_device: the check before there is a buffer, and the copies into the buffer.
  Status check_adopted(Place gpu, const void* memory, std::uint64_t bytes,
                       const BufferOptions& options, const StreamOrder& order);
  Status copy_adopted(Context& context, Handle buffer, Place gpu, const void* memory,
                      std::uint64_t bytes, const StreamOrder& order, Timeout timeout);
  /// Allocates nothing that could be refused, so a free always succeeds.
  Status free(Handle buffer) noexcept;
  /// The slow half of acquire, for ranges that are not resident.
  Status acquire_through_mover(std::span<const Access> list, Timeout timeout,
                               std::span<ViewRecord> views, const StreamOrder& order = {},
                               const std::atomic<bool>* cancel = nullptr);
  /// Checks that a call may follow the order of a stream. Errors as in Context::acquire.
  Status check_order(const char* call, const StreamOrder& order, std::span<const Access> list);
  /// Ends the views now, and unpins their extents when the stream has reached this point. Returns
  /// false if a view was not held.
  Result<bool> release_after(std::span<const ViewRecord> views, const StreamOrder& after);
  /// Posts the request and waits for its end.
  Status ask(Request& request);
  /// Posts a heap-allocated request that deletes itself.
  void ask_and_forget(std::unique_ptr<Request> request);
  Result<OpHandle> ask_async(std::unique_ptr<Request> request);
  Status resolve_all(std::span<const Access> list, Request& request, const char* call);
  /// Gives each span a window, so that its bytes have consecutive addresses.
  Status give_windows(Request& request, const char* call);
  Result<std::byte*> address_on(Handle buffer, Place where);
  /// `wakes`: false on the mover's own thread, which steps next anyway.
  void post(Request& request, bool wakes = true);
  void note_cancel();
  /// Counters and receipts as JSON, with the `last` receipts one by one; the caller owns the text.
  Status tell_stats(std::uint32_t last, std::string& text);
  /// Sums of where a buffer's bytes are.
  Status tell_info(Handle buffer, BufferInfo& info);
  /// Sums of where the bytes of all buffers are, by label.
  Status tell_labels(std::vector<LabelStats>& labels);
  /// Returns the buffer and the offset of an address, and the number of its bytes from there on:
  /// addresses.cpp. `mapped`: only of mapped buffers.
  bool find_address(const std::byte* address, bool mapped, Position& at, std::uint64_t& bytes);
  Result<Position> find(const void* address);
  /// The ranges of mapped buffers that are at a range of addresses.
  Status find_ranges(const char* call, const void* address, std::uint64_t bytes,
                     Vector<Access>& list);
  /// Returns where the byte at `offset` is, and why.
  Status find_bytes(Handle buffer, std::uint64_t offset, Whereabouts& where);
  /// [the inspector's thread] Answers a question of another process: answers.cpp.
  std::string answer(std::string_view question);
  /// Adds the counters that the mover does not have.
  void add_own_counts(Stats& stats) const;
  /// Called on the mover's thread with the counters, every `every_ns` while there is activity, and
  /// once after it ends. Set it before the first buffer; a child of fork must set it again. It must
  /// not wait.
  using Observer = void (*)(const Stats& stats);
  void observe(Observer observer, std::int64_t every_ns);
  /// See Faults::Refusal. A child of fork must set it again.
  void on_refusal(Faults::Refusal refusal) { faults_.on_refusal(refusal); }
  std::uint64_t waited_for_room_ns() const { return faults_.waited_for_room_ns(); }
  /// Reads (to != null) or writes (from != null) on the calling thread.
  Status copy(Context& context, Handle buffer, std::uint64_t offset, std::byte* to,
              const std::byte* from, std::uint64_t length, const CallLimits& limits);
  /// Refuses a span from `offset` on, and memory to copy to or from, that overlap in one buffer.
  /// `way`: "to" or "from".
  Status check_apart(const char* call, const Span& span, std::uint64_t offset, const void* memory,
                     const char* way);
  /// Does acquire() for a call that has begun.
  Status acquire_within(const char* call, std::span<const Access> list, const CallLimits& limits,
                        std::span<ViewRecord> views);
  /// Runs a gather or scatter: now, or with `op` on the thread of errands. `cancel` is the call's
  /// cancel flag, and belongs to the operation.
  Status run_rows(std::unique_ptr<RowCall> call, const Rows& rows);
  Result<OpHandle> run_rows_later(std::unique_ptr<RowCall> call, const Rows& rows,
                                  std::unique_ptr<Request> op);
  /// Runs a call that copies a list as an operation. Errors: those of Errands::send().
  Result<OpHandle> run_later(std::unique_ptr<Errand> errand, std::unique_ptr<Request> op);
  /// Operations that were cancelled, and wait for a thread, end.
  void end_cancelled_errands();
  /// Minimum size of a read of this buffer's slots and files, in bytes.
  std::uint32_t read_unit(const BufferRecord& record) const { return mover_->read_unit(record); }
  /// The cache that option `row_cache` asks for; the first call creates it. Null if the option is
  /// 0, or if creating it failed.
  RowCache* row_cache();
  /// Max bytes that one call may allocate to read into: a sixteenth of the DRAM budget, up to 4
  /// MiB. A power of two.
  std::uint64_t most_staging() const {
    constexpr std::uint64_t kMost = std::uint64_t{4} << 20;
    return std::clamp(std::bit_floor(config.dram.budget / 16), kSmallestExtent, kMost);
  }
  /// Allocates a buffer of one extent of `bytes` bytes, to read into.
  Result<Handle> alloc_staging(std::uint64_t bytes);
  /// Does advise() with Advice::preferred.
  Status prefer(std::span<const Access> list);
  /// Returns the bytes of the span's buffer at the program's `memory`, as offsets in its window on
  /// the host. The range is empty if `memory` is in no view or window of the buffer.
  Span::Bytes in_window_of(const Span& span, const void* memory, std::uint64_t length);
  Status move_bytes(Context& context, const Access& to, const Access& from);
  /// Zeroes the parts of extents that a discard covers partly, or reads them from the file. `wait`:
  /// brings in absent extents for that; otherwise it skips them.
  Status empty_edges(const Access& access, Span& span, bool wait);
  // The preload library reports the program's changes to the mappings of mapped buffers: see
  // HostSpace.
  [[nodiscard]] bool lend_window(std::byte* address, std::uint64_t bytes) {
    return host_space_->lend_window(address, bytes);
  }
  [[nodiscard]] int take_back_window(std::byte* address, std::uint64_t bytes) {
    return host_space_->take_back_window(address, bytes);
  }
  void alter_window(const std::byte* address) { host_space_->alter_window(address); }
  std::uint64_t stretch(const std::byte* address, std::uint64_t bytes, bool& own) const {
    return host_space_->stretch(address, bytes, own);
  }
  bool give_away(std::byte* address, std::uint64_t bytes) {
    return host_space_->give_away(address, bytes);
  }
  void fill_window(std::byte* address, std::uint64_t bytes) {
    host_space_->fill_holes(address, bytes);
  }

  Residency residency;
  Ops ops{residency.tag.value()};
  std::atomic<std::uint64_t> ordinal{0};
  const Config config;
  PlacedMemory placed{*this};
  DeviceMemory device_memory{*this};

  // The parts, for `topo` and tests.
  const HostSpace& host_space() const { return *host_space_; }
  /// Returns the number of the host memory at a place; 0, the first, for any other place.
  std::uint8_t memory_number(Place place) const;
  const WaitableIoPort& port() const { return *port_; }
  /// Returns the first block tier, or null.
  /// Divides a new DRAM budget between frames and compressed memory, which has half of it at most,
  /// and never gives back what it has.
  Status change_dram(Request& request);
  bool has_block(unsigned index) const { return index < blocks_.size(); }
  const BlockTier* block() const { return blocks_.empty() ? nullptr : blocks_.front().get(); }
  /// Returns the number of tiers, as in Stats: the host's memories, adopted files, and those below.
  std::uint32_t tiers() const {
    return 1 + static_cast<std::uint32_t>(host_space_->memories().size() + gpus_.size() +
                                          blocks_.size() + (compressed_ != nullptr ? 1 : 0));
  }
  std::span<const std::unique_ptr<GpuTier>> gpus() const { return gpus_; }
  const GpuTier& gpu(Place place) const { return *gpus_[residency.space_of(place) - 1u]; }
  /// DRAM and the block tier exist under every number.
  bool has_tier(Place place) const {
    return place.kind <= Kind::dram || place.kind == Kind::block || has_host_memory(place) ||
           has_gpu(place);
  }
  bool has_gpu(Place place) const { return residency.space_of(place) != kHost; }
  bool has_host_memory(Place place) const {
    const std::span<Memory* const> memories = host_space_->memories();
    return std::any_of(memories.begin(), memories.end(),
                       [&](const Memory* memory) { return memory->place() == place; });
  }
  /// Returns the size of a device or a file that is a memory; for other tiers the largest number.
  std::uint64_t largest_budget(Place place) const;
  const Faults& faults() const { return faults_; }

  // fork.cpp: called by the forking thread.
  void before_fork();
  /// Before the fork, too, once all contexts are held up.
  void hold_heaps();
  void after_fork_in_parent();
  /// Returns false if the context ends here, with its windows.
  bool after_fork_in_child();

 private:
  enum class State : std::uint8_t { open, closing, closed, forked, tombstone };

  Impl(const Config& config, std::uint32_t buffers, std::uint32_t extents);
  static bool make_tombstone();
  Status build(const HostFacts& facts);
  Status start();
  void stop();
  void end();
  void wake() noexcept;
  void run_mover();
  bool mover_rests();
  std::int64_t step_mover(bool awake, std::int64_t& now);
  void post_fault(Request& request);
  bool answer_touch(const UserfaultEvent& touch);
  std::int64_t tell_observer(std::int64_t now);
  bool stays_awake(std::int64_t now);
  void keep_processors_awake(std::int64_t now);
  std::string list_views();
  std::string list_buffers();
  std::string tell_why(Handle buffer, std::uint64_t offset);
  Status start_inspector();
  void write_stats_file();

  Status start_threads();
  Status open_gpus();
  Status check_direct_path() const;
  Status open_direct_path(std::span<BlockFile* const> devices);
  std::vector<std::vector<BlockFileOptions>> file_options() const;
  PortOptions port_options() const;

  Status give_window(Span& span, const char* call);

  // context_buffers.cpp
  Status cannot_prefer(const char* call, const char* label, Place place) const;
  /// Refuses a place that is not a tier of the context, or a memory that does not take the buffer.
  Status check_preferred(const char* call, const BufferOptions& options,
                         const FrameRequest& extent) const;
  Status check_preferred(const char* call, const char* label, Place place,
                         const FrameRequest& extent) const;

  // stream_order.cpp
  struct StreamRelease;
  Result<CudaLane*> lane_of(const char* call, const StreamOrder& order, Place where);
  Status follow_copies(const Request& request, const StreamOrder& order);
  bool await_releases(std::int64_t deadline_ns);

  // fork.cpp
  struct Child {
    // Reads end-of-file once the child has ended, because it holds the other end.
    int lifeline = -1;
    std::uint32_t number = 0;
  };
  void enlist();
  void delist();
  void order_stop();
  Status follow_fork();
  std::string add_own_files(std::vector<std::unique_ptr<BlockFile>>& files);
  void reap_children();
  std::int64_t look_after_children(std::int64_t now);
  Result<OpHandle> begin_errand(Errands& errands, std::unique_ptr<Errand> errand,
                                std::unique_ptr<Request> op);
  /// Returns when to call it again.
  std::int64_t end_late_errands(std::int64_t now);

  Faults faults_;
  std::unique_ptr<HostSpace> host_space_;
  std::vector<std::unique_ptr<GpuTier>> gpus_;
  std::unique_ptr<WaitableIoPort> port_;
  std::unique_ptr<IoLanes> lanes_;
  std::unique_ptr<CompressedTier> compressed_;      // Null without the option. Before the others.
  std::vector<std::unique_ptr<BlockTier>> blocks_;  // In the order of demotion.
  std::unique_ptr<FileTier> files_;
  std::unique_ptr<CuFilePath> direct_;
  std::unique_ptr<WorkerThreads> workers_;
  std::unique_ptr<Mover> mover_;

  std::atomic<State> state_{State::closed};  // Becomes open once it has all its threads.
  bool serves_faults_ = false;  // By the mover's thread; otherwise fault_thread_ or touchers do.
  // Held by the thread that steps the mover. Others than the mover's own do so for a moment, where
  // touches are signals. Locked first.
  AdaptiveMutex mover_mutex_;
  struct OwnTouch {
    bool posted = false;
    Job* job = nullptr;
  };
  OwnTouch* own_touch_ = nullptr;  // Guarded by mover_mutex_: that of its holder.
  std::atomic<bool> stop_{false};
  std::atomic<Observer> observer_{nullptr};  // Published with observe_every_ns_.
  std::int64_t observe_every_ns_ = 0;
  std::int64_t observed_ns_ = 0;           // The mover thread's, like the next.
  std::uint64_t observed_ = 0;             // Mover::activity() at the last call.
  BusyPoll busy_poll_;                     // The mover thread's.
  HaltPoll halt_poll_;                     // For the processor that a toucher waits on.
  std::int64_t next_placing_ = 0;          // For halt_poll_.
  std::atomic<std::uint32_t> posting_{0};  // Threads inside post().
  std::mutex close_mutex_;
  std::atomic<bool> changes_dram_{false};  // A thread divides DRAM anew.
  std::once_flag row_cache_once_;
  std::optional<RowCache> row_cache_;

  std::mutex releases_mutex_;
  std::condition_variable released_;
  // Guarded by releases_mutex_: releases that still wait for their stream.
  std::uint64_t releases_ = 0;

  StandStill still_;
  ForkGate gate_{config.fork == Fork::follow};
  // The next members are used by the forking thread while the mover stands still, and by the
  // mover's thread otherwise. held_: everything is held up for this fork. follows_: the child may
  // continue.
  bool held_ = false, follows_ = false;
  // For the child being created: it holds one end, this process reads the other.
  int lifeline_[2] = {-1, -1};
  Vector<Child> children_;
  Vector<int> lifelines_;  // Held for this process's ancestors: it reads their slots.
  std::int64_t next_look_ = 0;

  /// Copies of lists that run at the same time: enough for the rate of a fast drive.
  static constexpr std::size_t kCopyThreads = 4;

  std::thread mover_thread_, fault_thread_;
  std::unique_ptr<Errands> errands_ = std::make_unique<Errands>();
  std::unique_ptr<Errands> copy_errands_ = std::make_unique<Errands>(kCopyThreads);
  Inspector inspector_;
};

}  // namespace tiermem
