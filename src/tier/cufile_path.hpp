// The path between the block tier and GPUs past the host, by cuFile: its calls wait, so threads of
// its own make them. Copies are in no order with each other, nor with those of a device's lane.
//
// Threads: as marked in direct_path.hpp. In a forked child the threads do not exist.
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
  /// What one device of the fastest has under way: a call is one request to it.
  static constexpr unsigned kThreads = 8;

  /// `devices`: the block tier's, in its order. Those that the library refuses are not reached. All
  /// that is named outlives the path. The library's error where it takes none of them; unavailable:
  /// no thread can be had.
  static Result<std::unique_ptr<CuFilePath>> create(const CuFileDriver& driver,
                                                    const BlockTier& block,
                                                    std::span<BlockFile* const> devices,
                                                    std::span<const std::unique_ptr<GpuTier>> gpus);
  /// Waits for what is under way.
  ~CuFilePath() override;

  bool reaches(const AddressableTier& memory, SlotId slot) const override;
  void fetch(AddressableTier& memory, FrameId to, SlotId from, std::uint64_t bytes,
             Ending& end) override;
  void store(SlotId to, AddressableTier& memory, FrameId from, std::uint64_t bytes,
             Ending& end) override;

 private:
  struct File {
    int descriptor = -1;
    cufile::Handle handle = nullptr;  // Null: not reached.
  };
  struct Order {
    bool write = false;
    GpuTier* gpu = nullptr;
    FrameId frame{};
    SlotId slot{};
    std::uint64_t bytes = 0;
    Ending* end = nullptr;
  };

  CuFilePath(const CuFileDriver& driver, const BlockTier& block);
  Status add(const BlockFile& device);
  GpuTier* gpu_of(const AddressableTier& memory) const;
  void give(const Order& order);
  void work();
  Status run(const Order& order) const;

  const CuFileDriver driver_;
  const BlockTier& block_;
  std::vector<GpuTier*> gpus_;     // Constant after create(), as the next.
  std::vector<File> files_;        // By the block tier's device.
  std::atomic<bool> told_{false};  // The first error is in the log.

  std::mutex mutex_;  // Of the rest.
  std::condition_variable asked_;
  Deque<Order> orders_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tiermem
