// A GPU's memory as a tier: frames that the host cannot touch, at device addresses that never
// change while a frame has its pages. A chunk is one piece of the driver's memory (cuMemCreate) at
// an address of its own, made when a frame first needs it and kept for the next of its size; frames
// below 2 MiB are cut from chunks of 2 MiB. So nothing that is acquired again costs a driver call.
//
// A chunk can be at a second address, in a window, from when an extent of several is wanted there
// until the chunk is another extent's.
//
//   used = in_use + cached <= budget;  a chunk has memory  <=>  its frame has pages
//   shown_[at] is the chunk that is at `at` in a window  <=>  chunk.shown == at
//
// Threads: as marked in tier.hpp. Whatever calls the driver does it by the device's lane.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/arena.hpp"
#include "os/cuda_lane.hpp"
#include "tier/frame_pool.hpp"
#include "tier/slab_pool.hpp"
#include "tier/tier.hpp"

namespace tiermem {

/// What the tier did since the start.
struct GpuCounters {
  std::uint64_t bytes_in = 0, bytes_out = 0;  ///< Copied to the device and from it.
};

class GpuTier final : public AddressableTier, public PageLocker {
 public:
  /// The budget where none is named: what is free, less this, for the program's own kernels and
  /// libraries.
  static std::uint64_t headroom(std::uint64_t total);

  /// `budget` 0: what is free, less headroom(). invalid_argument: more than the device has;
  /// no_capacity: nothing would be left.
  static Result<std::unique_ptr<GpuTier>> create(std::unique_ptr<CudaLane> lane,
                                                 std::uint64_t budget);
  ~GpuTier() override;

  /// Before either has memory: bytes of `other` come here straight where the devices can do it.
  void befriend(GpuTier& other);

  const CudaDeviceFacts& facts() const { return lane_->facts(); }
  CudaLane& lane() { return *lane_; }  // [any]
  GpuCounters counters() const;        // [any]

  Place place() const override;
  bool lost() const override { return lane_->lost(); }
  Status loss() const override { return lane_->loss(); }
  bool host_addressable() const override { return false; }

  FrameId acquire_frame(const FrameRequest& request) override;
  void return_frame(FrameId frame) override;
  FrameBooks books() const override { return books_; }
  void set_budget(std::uint64_t bytes) override { books_.budget = bytes; }
  bool needs_populate(FrameId frame) const override;
  Status populate(FrameId frame, bool clear, std::byte* at) override;
  std::uint64_t begin_trim(std::uint64_t bytes) override;
  void run_trim() override;
  void finish_trim() override;

  Result<std::byte*> reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                    bool mapped) override;
  void release_window(std::byte* window, std::uint64_t bytes) override;
  Pool window_pool(std::uint64_t) const override { return Pool::locked; }

  /// The frame's device address: for views, and for nothing that the host does.
  std::byte* landing(FrameId frame, std::byte* at) const override;
  Status map(FrameId frame, std::byte* at, Mechanism& used) override;
  Status unmap(FrameId frame, std::byte* at) override;
  Status show(FrameId frame, std::byte* at) override;
  bool shows(FrameId frame, std::byte* at) const override;

  /// Page-locked for all devices.
  Status lock(std::byte* at, std::uint64_t bytes) override;
  void unlock(std::byte* at) override;

  bool copy_in(FrameId to, const std::byte* from, std::uint64_t bytes, Ending& end) override;
  bool copy_out(std::byte* to, FrameId from, std::uint64_t bytes, Ending& end) override;
  bool reaches(const AddressableTier& other) const override;
  bool copy_from(FrameId to, AddressableTier& other, FrameId from, std::uint64_t bytes,
                 Ending& end) override;

 private:
  static constexpr unsigned kLog2Chunk = 21;
  static constexpr unsigned kLog2Most = 26;

  /// The driver's side of a frame of 2 MiB or more.
  struct Chunk {
    cuda::DevicePointer at = 0;  // 0: it has no memory.
    cuda::MemoryHandle handle = 0;
    std::atomic<cuda::DevicePointer> shown{0};  // In a window, too. Written in the lane's thread.
  };
  struct Shown {
    Chunk* chunk = nullptr;
    std::uint64_t bytes = 0;
  };
  struct Size {
    std::unique_ptr<FramePool> frames;
    std::unique_ptr<Chunk[]> chunks;  // By the frame's number; as many as the device has room for.
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
  /// The frame's own, or that which it is cut from.
  Chunk& chunk_of(const Parts& parts) const;
  Status take_from_window(Chunk& chunk);

  // In the lane's thread.
  Status map_at(cuda::DevicePointer at, std::uint64_t bytes, cuda::MemoryHandle handle,
                bool for_peers);
  Status hide(Chunk& chunk);
  void forget(Chunk& chunk);
  Status end_window(cuda::DevicePointer window, std::uint64_t bytes);

  const std::unique_ptr<CudaLane> lane_;
  // Constant once befriend() was called.
  Vector<const GpuTier*> reached_;  // Whose bytes come here straight.
  Vector<int> readers_;             // The devices that read this one's chunks so.
  std::array<Size, kLog2Most - kLog2Chunk + 1> sizes_;
  std::array<std::unique_ptr<SlabPool>, kLog2Chunk> slabs_;

  FrameBooks books_;  // [mover], as the next two.
  std::uint64_t clock_ = 0;
  Vector<Victim> trimming_;  // The hand that runs the trim reads it.

  Map<cuda::DevicePointer, Shown> shown_;            // Of the lane's thread, as the next.
  Map<cuda::DevicePointer, std::uint64_t> windows_;  // Their bytes.

  std::mutex slab_pages_mutex_;  // Hands bring the memory of one chunk for several slots.
  std::mutex locked_mutex_;
  Set<std::byte*> locked_;  // What is page-locked, by its first byte. Under locked_mutex_.

  struct Counts {
    std::atomic<std::uint64_t> bytes_in{0}, bytes_out{0};
  };
  Counts counts_;
};

}  // namespace tiermem
