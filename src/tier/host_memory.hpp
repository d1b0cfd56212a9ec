// A memory in the host's address space: frames of ordinary memory under one budget. It combines the
// pools (frame_pool, slab_pool) and keeps the accounting. The space (host_space.hpp) owns it, moves
// its frames into windows, and has the pages of homes (home_pages). A memory calls neither windows
// nor the mechanism, so several memories can be in one space.
//
// Threads: as marked in memory.hpp. Accounting and pools belong to the mover's thread. The mover's
// calls make no system call, except for new address space once in 32 MiB of frames. A frame belongs
// to one worker at a time.
//
// The accounting: in_use = acquired frames, whole slab chunks for their frames, frames while their
// pages are being returned to the kernel, and the records of extents. cached = free frames with
// pages, including victims of a trim until finish_trim. Invariant: used <= budget, except after
// set_budget below used.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/arena.hpp"
#include "os/node_pages.hpp"
#include "tier/dax_pages.hpp"
#include "tier/frame_pool.hpp"
#include "tier/home_pages.hpp"
#include "tier/host_counters.hpp"
#include "tier/memory.hpp"
#include "tier/page_locker.hpp"
#include "tier/slab_pool.hpp"

namespace tiermem {

struct HostMemoryOptions {
  std::uint64_t budget = 0;
  /// {numa, n}: its pages come from node n. HostSpace::create() checks this.
  Place place{Kind::dram, 0};
  /// {pmem, n}: its pages are in a file in this directory, or in this DAX device.
  std::string path{};
};

/// A frame of a host memory, as its space sees it. It is not cut from a slab.
struct HostFrame {
  const FramePool& of;
  std::uint32_t index;
  Frame& record;

  std::uint64_t bytes() const { return of.bytes(); }
  std::byte* home() const { return of.home(index); }
  bool has_home() const { return of.homes().memory; }
};

/// The source of the pages of a memory, if it is not any node: at most one of the two.
struct HostPages {
  std::optional<host::NodePages> node{};
  std::unique_ptr<DaxPages> file{};
};

class HostMemory final : public Memory {
 public:
  /// The references outlive the memory, which does not use `space` in this constructor.
  HostMemory(AddressSpace& space, unsigned number, const HostMemoryOptions& options,
             HostPages pages, HomePages& homes, LiveHostCounters& counters);

  Place place() const override { return place_; }
  std::uint64_t room_for(const FrameRequest& request) const override {
    constexpr std::uint64_t kChunk = std::uint64_t{1} << kLog2Chunk;
    return request.pool == Pool::locked ? std::max(request.bytes, kChunk) : request.bytes;
  }
  /// Frames in a file appear in plain windows of large extents only: each is a mapping of its own.
  bool takes(const FrameRequest& request) const override {
    return request.may_be_in(number()) &&
           (file_ == nullptr || (request.plain && request.pool != Pool::small));
  }
  FrameId acquire_frame(const FrameRequest& request) override;
  void return_frame(FrameId frame) override;
  FrameUsage usage() const override { return usage_; }
  /// A memory in a file never has a larger budget than its file.
  void set_budget(std::uint64_t bytes) override {
    usage_.budget = file_ == nullptr ? bytes : std::min(bytes, file_->file().bytes());
  }
  bool charge_records(std::uint64_t bytes) override;
  bool needs_populate(FrameId frame) const override;
  Status populate(FrameId frame, bool clear, std::byte* at) override;
  std::uint64_t begin_trim(std::uint64_t bytes) override;
  void run_trim() override;
  void finish_trim() override;

  FrameId acquire_parts(const FrameRequest& request, unsigned pages) override;
  bool charge_parts(FrameId frame, unsigned pages) override;
  void discharge_parts(FrameId frame, unsigned pages) override;
  FrameId split_parts(FrameId frame, unsigned pages) override;
  void join_parts(FrameId split, FrameId frame) override;

  /// Call before the first copy. The locker outlives all use of this memory by workers.
  void lock_pages_with(PageLocker* locker) { locker_ = locker; }
  bool lock_pages(FrameId frame) override;
  bool has_locked_pages(FrameId frame) const override;

  /// [mover] Marks a frame with pages that other code may reference (a pipe, a zero-copy send).
  /// When the frame is returned, its pages go back to the kernel and are not reused.
  void mark_referenced(FrameId frame);
  /// [mover] Returns the bytes that begin_trim could free: the cache, and frames that wait for
  /// their return to the kernel.
  std::uint64_t trimmable() const { return usage_.cached + leaving_bytes_; }

  // For the space of this memory.
  /// [any] Returns the node of its pages, or null if they may come from any.
  const host::NodePages* node() const { return node_ ? &*node_ : nullptr; }
  /// [any] Returns the file that its pages are in, or null.
  const DaxPages* file() const { return file_.get(); }
  /// [any] Returns the pool of a frame, of any host memory.
  static Pool pool_of(FrameId frame) { return unpack(frame).pool; }
  /// [any] Returns the frame's own address, or null if it has no memory outside windows.
  std::byte* home(FrameId frame) const;
  /// [worker]
  std::uint64_t bytes_of(FrameId frame) const;
  /// [worker] The frame is not cut from a slab.
  HostFrame frame(FrameId frame) const;
  /// [worker] Call before the pages are released or moved. A refused lock may be retried by the
  /// next user.
  void unlock_pages(const FramePool& of, std::uint32_t index);
  /// [child of fork, its only thread] Homes are not inherited: maps them again, empty.
  Status follow_fork();
  /// [child of fork, its only thread] Closes the addresses of homes that views point into: a touch
  /// raises SIGSEGV.
  void close_homes();
  /// [child of fork, its only thread] Frames in windows that were not inherited are at home again,
  /// without their bytes. `inherited(at)`: whether the address is in a window that was inherited.
  template <typename Inherited>
  void forget_windows(Inherited&& inherited) {
    each_pool([&](FramePool& pool) {
      pool.each_frame([&](Frame& frame) {
        if (frame.at != nullptr && !inherited(frame.at)) {
          frame.at = nullptr;
          frame.watched = false;
        }
      });
    });
  }
  /// [child of fork, its only thread] Call after follow_fork(): free frames have lost their pages.
  /// All frames in use are in windows.
  void forget_free_pages();

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

  /// log2 of a slab's chunk, which is the smallest frame that may be huge.
  static constexpr unsigned kLog2Chunk = 21;

  FrameId pack(Pool pool, unsigned log2, std::uint32_t index) const;
  static Parts unpack(FrameId frame);
  static bool is_slab(const Parts& parts) {
    return parts.pool == Pool::locked && parts.log2 < kLog2Chunk;
  }

  template <typename Visit>
  void each_pool(Visit&& visit) const {
    for (const auto& sizes : pools_) {
      for (const std::unique_ptr<FramePool>& each : sizes) {
        if (each != nullptr) {
          visit(*each);
        }
      }
    }
  }
  FramePool& pool(Pool pool, unsigned log2);
  FramePool& pool(const Parts& parts) const;
  SlabPool& slab(const Parts& parts) const { return *slabs_[parts.log2]; }
  std::uint32_t take(FramePool& from, std::uint64_t domain);
  std::uint32_t take_slab(unsigned log2, std::uint64_t domain);
  void put_back(FramePool& to, std::uint32_t index);
  void let_leave(FramePool& from, std::uint32_t index, std::uint64_t bytes);
  void add_victims(std::uint64_t bytes, std::uint64_t& chosen);
  Result<bool> fill(const FramePool& of, std::byte* home);
  Status populate_slab(const Parts& parts, bool clear);
  void drop_victims(Vector<Victim*>& order);
  void repair(Frame& frame, std::byte* home, std::uint64_t bytes);
  static std::uint64_t charge_of(const FramePool& pool, const Frame& frame);
  void release_parts(FramePool& to, std::uint32_t index);

  const Place place_;
  const std::optional<host::NodePages> node_;
  const std::unique_ptr<DaxPages> file_;
  HomePages& homes_;
  LiveHostCounters& counters_;
  PageLocker* locker_ = nullptr;
  std::atomic<bool> told_of_page_locks_{false};
  std::mutex slab_pages_mutex_;  // Only one worker at a time populates a slab chunk.

  // Used by the mover only. Workers read the pools' pointers while they hold frames of these pools.
  FrameUsage usage_;
  std::uint64_t records_ = 0;  // Part of in_use: the bytes of the records of extents.
  std::uint64_t clock_ = 0;    // Stamps of cached frames.
  std::array<std::array<std::unique_ptr<FramePool>, 27>, 3> pools_;
  std::array<std::unique_ptr<SlabPool>, 21> slabs_;
  Vector<Victim> leaving_;  // Returned and not to be reused; in_use until trimmed.
  std::uint64_t leaving_bytes_ = 0;
  Vector<Victim>
      trimming_;  // Used by the mover, and by a worker between begin_trim and finish_trim.
};

}  // namespace tiermem
