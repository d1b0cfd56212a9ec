// The direct path between the block tier and GPUs, through cuFile. Its calls wait, so this class
// makes them in its own threads. Copies have no order among each other, nor with those of a
// device's lane.
//
// Threads: as marked in direct_path.hpp. The threads do not exist in a forked child.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/arena.hpp"
#include "os/block_file.hpp"
#include "os/cufile_driver.hpp"
#include "tier/block.hpp"
#include "tier/direct_path.hpp"
#include "tier/gpu.hpp"

namespace tiermem {

class CuFilePath final : public DirectPath {
 public:
  /// The number of requests that the fastest device has in progress: each call is one request.
  static constexpr unsigned kThreads = 8;

  /// Creates the path. All arguments outlive it.
  ///
  /// - `devices`: those of the block tier, in its order. The path does not reach a device that the
  ///   library refuses.
  /// - Errors: the library's, if it accepts no device. unavailable: no thread can be created.
  static Result<std::unique_ptr<CuFilePath>> create(const CuFileDriver& driver,
                                                    const BlockTier& block,
                                                    std::span<BlockFile* const> devices,
                                                    std::span<const std::unique_ptr<GpuTier>> gpus);
  /// Waits for the copies in progress.
  ~CuFilePath() override;

  bool reaches(const Memory& memory, SlotId slot) const override;
  void fetch(Memory& memory, FrameId to, SlotId from, std::uint64_t bytes,
             Completion& end) override;
  void store(SlotId to, Memory& memory, FrameId from, std::uint64_t bytes,
             Completion& end) override;

 private:
  struct File {
    int descriptor = -1;
    cufile::Handle handle = nullptr;  // Null: the path does not reach the device.
  };
  struct Order {
    bool write = false;
    GpuTier* gpu = nullptr;
    FrameId frame{};
    SlotId slot{};
    std::uint64_t bytes = 0;
    Completion* end = nullptr;
  };

  CuFilePath(const CuFileDriver& driver, const BlockTier& block);
  Status add(const BlockFile& device);
  GpuTier* gpu_of(const Memory& memory) const;
  void give(const Order& order);
  void work();
  Status run(const Order& order) const;

  const CuFileDriver driver_;
  const BlockTier& block_;
  std::vector<GpuTier*> gpus_;     // Constant after create(), like the next member.
  std::vector<File> files_;        // By the number of the device in the block tier.
  std::atomic<bool> told_{false};  // The log has the first error.

  std::mutex mutex_;  // Guards the members below.
  std::condition_variable asked_;
  Deque<Order> orders_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tiermem
