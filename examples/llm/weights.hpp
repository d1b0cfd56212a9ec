// Weights: the source of the network's bytes. One small contract, three sources (memory, mmap,
// tiermem); the network does not know which one it uses. One thread calls it; any thread may read
// the bytes of a Lease.
//
// The source learns the order of use once: parts 0, 1, …, n-1, and again from 0 for every token.
// take() requests the next parts before it waits for this one, so that bytes arrive during the
// computation with earlier ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tiermem/tiermem.hpp>

#include "safetensors.hpp"

namespace llm {

/// A part that stays in place until the Lease ends. `view` is empty if nothing is pinned.
struct Lease {
  const std::byte* data = nullptr;
  tiermem::View view;
};

/// A source's own count of bytes brought into memory since it was opened.
struct Traffic {
  std::uint64_t demanded = 0;    ///< Waited for.
  std::uint64_t prefetched = 0;  ///< Requested in advance; not counted in `demanded`.
  std::uint64_t bytes() const noexcept { return demanded + prefetched; }
};

class Weights {
 public:
  virtual ~Weights() = default;

  /// Part number `part`, which must be the one after the last taken. Throws Failure (memory).
  Lease take(std::size_t part);
  /// Copies a few bytes, such as one row of the embedding matrix.
  void read(ByteRange range, void* to);

  std::size_t parts() const noexcept { return parts_.size(); }
  /// Time spent in take() and read(): waiting for bytes, except where a page fault waits instead.
  double waiting_seconds() const noexcept { return waiting_seconds_; }
  /// Empty if the source keeps no count.
  virtual std::optional<Traffic> traffic() const { return std::nullopt; }

 protected:
  /// `ahead`: bytes of the following parts to request during the computation with one part.
  Weights(std::vector<ByteRange> parts, std::uint64_t ahead)
      : parts_(std::move(parts)), ahead_(ahead) {}
  ByteRange part(std::size_t number) const { return parts_[number]; }

 private:
  virtual Lease acquire(ByteRange range) = 0;
  virtual void copy(ByteRange range, void* to) = 0;
  virtual void prefetch(ByteRange) {}
  void prefetch_after(std::size_t part);

  const std::vector<ByteRange> parts_;
  const std::uint64_t ahead_;
  std::size_t asked_ = 0;          // Parts after the current one for which prefetch() was called.
  std::uint64_t asked_bytes_ = 0;  // Their bytes, at most `ahead_`.
  double waiting_seconds_ = 0;
};

struct WeightsOptions {
  std::string source = "tiermem";             ///< memory, mmap or tiermem.
  std::string tiers = "dram=128M";            ///< tiermem: its tiers.
  std::uint64_t ahead = 16ull * 1024 * 1024;  ///< mmap and tiermem: bytes requested in advance.
  std::optional<std::uint64_t> keep;          ///< tiermem: bytes that stay; empty: all that fit.
  std::uint64_t extent = 0;                   ///< tiermem: bytes of an extent; 0: its choice.
  std::string madvise = "normal";             ///< mmap: normal, sequential, random or willneed.
};

/// Opens the source for the whole file. Throws Failure: usage, files or memory.
std::unique_ptr<Weights> open_weights(const WeightsOptions& options, const Safetensors& file,
                                      std::vector<ByteRange> parts);

// The three sources, each in the file of its name.
std::unique_ptr<Weights> open_memory_weights(const Safetensors&, std::vector<ByteRange>);
std::unique_ptr<Weights> open_mmap_weights(const WeightsOptions&, const Safetensors&,
                                           std::vector<ByteRange>);
std::unique_ptr<Weights> open_tiermem_weights(const WeightsOptions&, const Safetensors&,
                                              std::vector<ByteRange>);

}  // namespace llm
