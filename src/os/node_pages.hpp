// Pages of one NUMA node: new pages come from it, pages are counted that do not, and pages move to
// it in place. Only the system calls and the checks of their results are here.
//
// New pages prefer the node, and are not bound to it. If a bound page cannot be had, the kernel
// kills a process that has memory on the node. Pages that come from another node are moved instead:
// for this the kernel reclaims memory on the node, and kills no process.
//
// Threads: any thread may call every function. A NodePreference belongs to the thread that created
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "os/topology.hpp"
#include "tiermem/status.hpp"

namespace tiermem::host {

/// A set of nodes, as the kernel reads it.
inline constexpr unsigned kMostNodes = 1024;
using NodeMask = std::array<unsigned long, kMostNodes / (8 * sizeof(unsigned long))>;

/// The system calls. Each returns what the call returns, or a negative errno. Tests have their own.
struct NodeCalls {
  long (*get_policy)(int& mode, NodeMask& nodes) = nullptr;
  long (*set_policy)(int mode, const NodeMask& nodes) = nullptr;
  long (*bind)(void* address, std::uint64_t bytes, int mode, const NodeMask& nodes) = nullptr;
  /// `nodes` is null for a query. A positive result is the number of pages that were not moved, and
  /// in this case `status` may be unchanged.
  long (*move_pages)(unsigned long count, void** pages, const int* nodes, int* status) = nullptr;
};
extern const NodeCalls kNodeCalls;

/// Returns why the machine cannot give memory of a node, as the end of a sentence with its remedy.
/// Empty: it can. `bytes` is the budget.
std::string node_refusal(const Topology& topology, unsigned node, std::uint64_t bytes);

class NodePages {
 public:
  /// Takes a page of the node on trial.
  ///
  /// - `bytes`: the planned use, for the message if the node is smaller.
  /// - Errors: invalid_argument: the machine has no such memory for this process; unsupported: the
  ///   kernel refuses a call; no_capacity: the node is full. The sentence names node and remedy.
  static Result<NodePages> open(const Topology& topology, unsigned node, std::uint64_t bytes,
                                const NodeCalls& calls = kNodeCalls);

  unsigned node() const { return node_; }
  /// Page-locking moves the pages to another node: its memory is movable only.
  bool movable() const { return movable_; }

  /// Prefers the node for new pages of a mapped range, whichever thread touches it. A change of the
  /// mapping ends this. Returns 0 or errno.
  [[nodiscard]] int prefer_for(std::byte* address, std::uint64_t bytes) const;
  /// Returns how many of up to 8 pages of the range, the first and the last among them, are on
  /// another node. Absent pages do not count. If the kernel refuses the query: 0.
  unsigned sample(const std::byte* address, std::uint64_t bytes) const;

  struct Brought {
    std::uint64_t moved = 0;   ///< Pages that were elsewhere and are on the node now.
    std::uint64_t stayed = 0;  ///< Pages that are elsewhere still, or absent now.
    int error = 0;             ///< errno of the first page or call that was refused.
  };
  /// Moves all present pages of the range to the node. Page-locked pages stay. If pages stayed,
  /// some of them may be absent now: those of zeros in a huge page. The range begins at a huge page
  /// if it is larger than one.
  Brought bring(std::byte* address, std::uint64_t bytes) const;

 private:
  friend class NodePreference;
  NodePages(unsigned node, bool movable, const NodeCalls& calls);
  Status try_page() const;
  void bring_batch(std::byte* address, unsigned pages, Brought& brought) const;

  const NodeCalls* calls_;
  NodeMask mask_{};
  unsigned node_;
  bool movable_;
};

/// While it lives, new pages of this thread prefer a node, except in ranges that have a preference
/// of their own.
class NodePreference {
 public:
  /// Null: changes nothing.
  explicit NodePreference(const NodePages* pages);
  ~NodePreference();
  NodePreference(const NodePreference&) = delete;
  NodePreference& operator=(const NodePreference&) = delete;
  /// Returns 0, or errno if the kernel has refused.
  int error() const { return error_; }

 private:
  const NodePages* pages_;  // Null: the policy is unchanged.
  int error_ = 0;
  int mode_ = 0;
  NodeMask nodes_{};
};

}  // namespace tiermem::host
