// Which bytes of a model stay in memory, and which are read next. Hints only: the bytes come with
// the first touch in any case.
//
// A model has three kinds of bytes:
//   routed experts   a token uses a few of them, and which ones is known when the router has run.
//                    They are prefetched then, and stay by the order of recency.
//   rows             an embedding of which only single rows are used. No hints.
//   all other bytes  each token uses them once, in the same order. If the budget has room for all
//                    of them, they stay. Otherwise an even share stays (the best that is possible),
//                    and the rest streams through a part of the memory, read ahead in this order.
//
// The order is that of the last evaluation. Any thread; one at a time (the caller has a lock).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gguf.hpp"
#include "tiermem.h"

namespace tiermem::ggml {

/// A file of the model as a mapped buffer. A position is a place in the model: the files follow
/// each other, and each begins with an extent.
struct Part {
  tm_buffer buffer = 0;
  const char* base = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t begin = 0;  ///< The position of its first byte.

  bool has(const void* data) const {
    const auto* const at = static_cast<const char*>(data);
    return at >= base && at < base + bytes;
  }
};

class Plan {
 public:
  struct Limits {
    std::uint64_t extent_bytes = 0;
    std::uint64_t budget_bytes = 0;
    std::uint64_t ahead_bytes = 0;
  };

  /// `parts`: those of the model's files, in their order; they stay where they are.
  Plan(const Gguf& model, tm_context* context, std::span<const Part> parts, const Limits& limits);

  /// Returns whether some bytes stream, so that uses must be reported.
  bool streams() const { return streamed_extents_ != 0; }
  bool has_experts(std::uint32_t layer) const {
    return layer < layers_.size() && !layers_[layer].empty();
  }

  /// The graph will use the whole tensor. In the order of the graph, before the computation.
  /// Returns whether the caller should report computed() after the operation.
  bool will_use(std::size_t entry);
  /// Returns whether the tensor is so large that its use should be reported by parts.
  bool is_large(std::size_t entry) const;
  /// The operations announced so far are done.
  void computed();
  /// The same without the last one, which is announced for this tensor, and has used its first
  /// `bytes` bytes.
  void computed_but(std::size_t entry, std::uint64_t bytes);
  /// The router of a layer has chosen these experts, in any order, with repetitions.
  void routed(std::uint32_t layer, std::span<const std::int32_t> ids);

  std::uint64_t expert_bytes() const { return expert_bytes_; }
  std::uint64_t kept_bytes() const { return kept_bytes_; }
  std::uint64_t routed() const { return routed_; }
  std::uint64_t ahead_bytes() const { return ahead_; }
  std::uint64_t ahead_calls() const { return ahead_calls_; }

 private:
  std::uint64_t begin_of(const Entry& entry) const {
    return parts_[entry.file].begin + entry.offset;
  }
  /// The extent at a position, as far as its file has bytes.
  tm_access extent_at(std::uint64_t position) const;
  void advise(std::uint64_t extent, std::uint32_t advice, std::uint64_t value) const;
  void choose_kept(const Limits& limits);
  void prefetch(std::vector<tm_access>& ranges);
  void read_ahead();

  const Gguf& model_;
  tm_context* const context_;
  const std::span<const Part> parts_;
  const std::uint64_t unit_, ahead_limit_, routed_limit_;

  // By extent: whether it streams.
  std::vector<bool> streamed_;
  std::uint64_t streamed_extents_ = 0;
  std::vector<std::vector<std::size_t>>
      layers_;               // Entries with experts, in the order of their use.
  std::vector<bool> whole_;  // By entry: each token uses all of it.

  // The streamed extents of one evaluation, in the order of their use, and where the evaluation is.
  std::vector<std::uint32_t> cycle_, next_cycle_;
  std::vector<bool> seen_;          // By entry: in next_cycle_.
  std::uint64_t done_ = 0;          // Extents of next_cycle_ that were computed.
  std::uint64_t asked_ = 0;         // Extents of this evaluation that were prefetched.
  std::uint64_t since_report_ = 0;  // Streamed extents announced since the last report.

  std::vector<bool> chosen_;       // Scratch of routed().
  std::vector<tm_access> ranges_;  // Scratch.
  std::uint64_t expert_bytes_ = 0, kept_bytes_ = 0;
  std::uint64_t routed_ = 0, ahead_ = 0, ahead_calls_ = 0;
};

}  // namespace tiermem::ggml
