// A GPU: an address space and its only memory, so one class has both contracts. The host cannot
// touch its frames, and their device addresses do not change while they have pages. A chunk is one
// piece of the driver's memory (cuMemCreate) at its own address. It is created when a frame first
// needs it, and kept for the next frame of its size. Frames below 2 MiB are cut from chunks of
// 2 MiB. A frame that is acquired again therefore needs no driver call.
//
// A chunk can have a second address in a window. It gets this address when an extent of several is
// needed there, and keeps it until the chunk belongs to another extent.
//
//   used = in_use + cached <= budget;  a chunk has memory  <=>  its frame has pages
//   shown_[at] is the chunk that is at `at` in a window  <=>  chunk.shown == at
//
// Threads: as marked in memory.hpp and address_space.hpp. The device's lane makes all driver calls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "base/arena.hpp"
#include "os/cuda_lane.hpp"
#include "tier/address_space.hpp"
#include "tier/frame_pool.hpp"
#include "tier/memory.hpp"
#include "tier/page_locker.hpp"
#include "tier/slab_pool.hpp"

namespace tiermem {

/// Counters of the tier since the start.
struct GpuCounters {
  std::uint64_t bytes_in = 0, bytes_out = 0;  ///< Bytes copied to the device, and from it.
};

class GpuTier final : public AddressSpace, public Memory, public PageLocker {
 public:
  /// Returns the memory that the default budget leaves free for the program's own kernels and
  /// libraries.
  static std::uint64_t headroom(std::uint64_t total);

  /// `budget` 0: the free memory minus headroom(). Errors: invalid_argument: more than the device
  /// has. no_capacity: no memory would be left.
  static Result<std::unique_ptr<GpuTier>> create(std::unique_ptr<CudaLane> lane,
                                                 std::uint64_t budget);
  ~GpuTier() override;

  /// Lets bytes of `other` come here directly if the devices support it. Call before either has
  /// memory.
  void befriend(GpuTier& other);

  const CudaDeviceFacts& facts() const { return lane_->facts(); }
  CudaLane& lane() { return *lane_; }  // [any]
  GpuCounters counters() const;        // [any]

  Place place() const override;
  bool lost() const override { return lane_->lost(); }
  Status loss() const override { return lane_->loss(); }
  std::span<Memory* const> memories() const override { return memories_; }
  bool host_addressable() const override { return false; }

  FrameId acquire_frame(const FrameRequest& request) override;
  void return_frame(FrameId frame) override;
  FrameUsage usage() const override { return usage_; }
  void set_budget(std::uint64_t bytes) override { usage_.budget = bytes; }
  std::uint64_t room_for(const FrameRequest& request) const override {
    return std::max(request.bytes, std::uint64_t{1} << kLog2Chunk);
  }
  bool needs_populate(FrameId frame) const override;
  Status populate(FrameId frame, bool clear, std::byte* at) override;
  std::uint64_t begin_trim(std::uint64_t bytes) override;
  void run_trim() override;
  void finish_trim() override;

  Result<std::byte*> reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                    bool mapped) override;
  void release_window(std::byte* window, std::uint64_t bytes) override;
  Pool window_pool(std::uint64_t) const override { return Pool::locked; }

  /// Returns the frame's device address: for views; the host must not use it.
  std::byte* bytes_at(FrameId frame, std::byte* at) const override;
  Status map(FrameId frame, std::byte* at, Mechanism& used) override;
  Status unmap(FrameId frame, std::byte* at) override;
  Status show(FrameId frame, std::byte* at) override;
  bool shows(FrameId frame, std::byte* at) const override;

  /// Page-locks memory for all devices.
  Status lock(std::byte* at, std::uint64_t bytes) override;
  void unlock(std::byte* at) override;

  bool copy_in(FrameId to, const std::byte* from, std::uint64_t bytes, Completion& end) override;
  bool copy_out(std::byte* to, FrameId from, std::uint64_t bytes, Completion& end) override;
  bool reaches(const Memory& other) const override;
  bool copy_from(FrameId to, Memory& other, FrameId from, std::uint64_t bytes,
                 Completion& end) override;

 private:
  static constexpr unsigned kLog2Chunk = 21;
  static constexpr unsigned kLog2Most = 26;

  /// The driver's part of a frame of 2 MiB or more.
  struct Chunk {
    cuda::DevicePointer at = 0;  // 0: it has no memory.
    cuda::MemoryHandle handle = 0;
    // Its address in a window, if any. Written in the lane's thread.
    std::atomic<cuda::DevicePointer> shown{0};
  };
  struct Shown {
    Chunk* chunk = nullptr;
    std::uint64_t bytes = 0;
  };
  /// A request to map a chunk into a window. Its thread waits, so it is on that thread's stack.
  struct Showing {
    Chunk* chunk = nullptr;
    cuda::DevicePointer at = 0;
    std::uint64_t bytes = 0;
    Status status;
    bool done = false;  // Also after an error.
  };
  struct Size {
    std::unique_ptr<FramePool> frames;
    std::unique_ptr<Chunk[]> chunks;  // By frame number; as many as fit on the device.
  };
  struct Parts {
    unsigned log2;
    std::uint32_t index;
  };
  struct Victim {
    unsigned log2;
    std::uint32_t index;
  };

  GpuTier(std::unique_ptr<CudaLane> lane, std::uint64_t budget);
  static FrameId pack(unsigned log2, std::uint32_t index);
  static Parts unpack(FrameId frame);
  static bool is_slab(const Parts& parts) { return parts.log2 < kLog2Chunk; }
  Size& size(unsigned log2) { return sizes_[log2 - kLog2Chunk]; }
  const Size& size(unsigned log2) const { return sizes_[log2 - kLog2Chunk]; }
  SlabPool& slab(const Parts& parts) const { return *slabs_[parts.log2]; }

  std::uint32_t take(unsigned log2, std::uint64_t domain);
  std::uint32_t take_slab(unsigned log2, std::uint64_t domain);
  void put_back(unsigned log2, std::uint32_t index);

  Status make_chunk(Chunk& chunk, std::uint64_t bytes);
  void release_chunk(Chunk& chunk, std::uint64_t bytes);
  cuda::DevicePointer address(FrameId frame) const;
  /// Returns the frame's own chunk, or the chunk that it is cut from.
  Chunk& chunk_of(const Parts& parts) const;
  Status take_from_window(Chunk& chunk);

  // Runs in the lane's thread.
  Status map_chunk(cuda::DevicePointer at, std::uint64_t bytes, cuda::MemoryHandle handle);
  cuda::Result permit(cuda::DevicePointer at, std::uint64_t bytes, unsigned device);
  void show_all();
  Status map_only(const Showing& showing);
  void finish_showing(std::span<Showing*> run);
  Status hide(Chunk& chunk);
  void forget(Chunk& chunk);
  Status end_window(cuda::DevicePointer window, std::uint64_t bytes);

  const std::array<Memory*, 1> memories_{this};
  const std::unique_ptr<CudaLane> lane_;
  // Constant after befriend().
  Vector<const GpuTier*> reached_;  // Tiers with bytes that come here directly.
  Vector<unsigned> readers_;        // The devices that read this device's chunks directly.
  std::array<Size, kLog2Most - kLog2Chunk + 1> sizes_;
  std::array<std::unique_ptr<SlabPool>, kLog2Chunk> slabs_;

  FrameUsage usage_;  // [mover], like the next two members.
  std::uint64_t clock_ = 0;
  Vector<Victim> trimming_;  // The worker that runs the trim reads it.

  Map<cuda::DevicePointer, Shown> shown_;  // Used in the lane's thread, like the next member.
  Map<cuda::DevicePointer, std::uint64_t> windows_;  // Bytes by window address.

  std::mutex showings_mutex_;
  Vector<Showing*> showings_;  // Not served yet. Guarded by showings_mutex_.

  std::mutex slab_pages_mutex_;  // Workers populate one chunk for several slots.
  std::mutex locked_mutex_;
  Set<std::byte*> locked_;  // Page-locked ranges by their first byte. Guarded by locked_mutex_.

  struct Counts {
    std::atomic<std::uint64_t> bytes_in{0}, bytes_out{0};
  };
  Counts counts_;
};

}  // namespace tiermem
