// A context with a GPU, and buffers of one extent each that are written and read on both sides. It
// knows the last content of each buffer: the first word is a stamp, the rest is random bytes. One
// thread, in which the device's context is current.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu_device.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {

class GpuSet {
 public:
  static constexpr Place kGpu{Kind::gpu, 0};
  static constexpr Place kDram{Kind::host, 0};

  struct Options {
    std::uint64_t bytes = 0;  ///< Bytes of all buffers; they fit into DRAM and on the device.
    std::uint64_t block = std::uint64_t{2} << 20;
    std::string directory;  ///< Directory of the block tier; empty: none.
    bool checksum = true;
    /// Requires direct transfers; otherwise Context::create fails with the reason.
    bool direct = false;
  };
  /// Some of the buffers.
  struct Range {
    std::size_t first = 0, count = 0;
  };

  /// All buffers are written, in DRAM. `gpu` must outlive it. Errors: those of Context::create and
  /// of acquire.
  static Result<std::unique_ptr<GpuSet>> create(GpuDevice& gpu, const Options& options);

  Context& context() { return *context_; }
  std::uint64_t budget() const { return budget_; }  ///< Budget of the device.
  Range all() const { return {0, buffers_.size()}; }
  Range first_half() const { return {0, buffers_.size() / 2}; }
  Range second_half() const { return {buffers_.size() / 2, buffers_.size() - buffers_.size() / 2}; }
  std::vector<Access> list(Range range, Place where, std::uint32_t mode = kRead) const;

  /// Acquires a list and releases it; afterwards its bytes are there.
  Status bring(const std::vector<Access>& list);
  /// Writes a word of each buffer, in DRAM or with the driver on the device. The other side's copy
  /// is then stale and dropped.
  Status write_in_dram(Range range);
  Status write_on_device(Range range);
  /// Returns an error unless every buffer, read on this side, has all of its bytes. On the device
  /// the driver copies them, without tiermem.
  Status check_in_dram();
  Status check_on_device();

 private:
  explicit GpuSet(GpuDevice& gpu) : gpu_(gpu) {}
  Status fill(std::size_t index);
  /// Stores the expected content of buffer `index` in scratch_.
  void expect(std::size_t index);
  Status compare(std::size_t index, const std::byte* data, const char* where) const;

  GpuDevice& gpu_;
  std::uint64_t block_ = 0, budget_ = 0;
  std::unique_ptr<Context> context_;
  std::vector<Buffer> buffers_;
  std::vector<std::uint64_t> stamps_;  // The first word of each buffer.
  std::uint64_t last_stamp_ = 0;
  std::vector<std::byte> scratch_, copied_;
};

}  // namespace tiermem::bench
