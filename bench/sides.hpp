// The memories that a workload runs on, one after the other: a mapped buffer, anonymous memory with
// swap or a file under mmap in a memory cgroup, plain memory; and comparing them. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.hpp"
#include "bench/workload.hpp"

namespace tiermem::bench {

/// A workload on some memory, filled and run once when it begins.
class Side {
 public:
  virtual ~Side() = default;
  /// Errors: unavailable when this memory cannot be had here.
  virtual Status begin() = 0;
  virtual Result<Sample> run() = 0;
  /// An error unless all its bytes are right.
  virtual Status finish() = 0;
  /// How often its process ended (the kernel killed it) and was replaced.
  virtual unsigned begun_again() const { return 0; }
};

/// A side that has not begun: only the ones that are measured take memory.
struct SideChoice {
  std::string name;
  std::string command;  ///< The settings, in words.
  std::function<std::unique_ptr<Side>()> make;
};

/// What all sides of a row have in common.
struct Contest {
  std::string name;
  std::string unit;
  Better better = Better::higher;
  double bar = 0;
  MakeWorkload make;
  std::uint64_t dram = 0;    ///< tiermem's budget, and the others' cgroup less a little.
  std::uint64_t extent = 0;  ///< Of the mapped buffer; 0: chosen.
  unsigned rounds = 2;       ///< To find the best of the peers.
};

/// A mapped buffer in `directory`, with the contest's budget.
SideChoice tiermem_side(const Contest& contest, const std::string& directory);
/// Anonymous memory in a cgroup, in pages of `madvise` MADV_NOHUGEPAGE and MADV_HUGEPAGE; swap must
/// be on. `how`: what is before it, for the report.
std::vector<SideChoice> swap_sides(const Contest& contest, const std::string& how = "swap");
/// A file in `directory` under mmap in a cgroup, with this advice to madvise.
SideChoice mmap_side(const Contest& contest, const std::string& directory, int advice,
                     const char* word);
/// A handler thread for each of `handlers` answers the faults of a file in `directory`, in a cgroup
/// (user_pager.hpp); `block` bytes at a time.
SideChoice pager_side(const Contest& contest, const std::string& directory, unsigned handlers,
                      std::uint64_t block);
/// Huge pages, as many as it takes.
SideChoice plain_side(const Contest& contest);

/// Adds a row: a mapped buffer beside the best of `peers`, and all bytes of both checked at the
/// end. Where one of the two cannot be had the row says that it was skipped and why.
Status compare_sides(Session& session, const Contest& contest, std::vector<SideChoice> peers);
/// The same, with a swap file in the session's directory meanwhile; skipped where there can be
/// none.
Status beside_swap(Session& session, const Contest& contest, std::vector<SideChoice> peers);
/// Beside swap with zswap before it, which is switched on meanwhile; skipped where it cannot be
/// had.
Status beside_zswap(Session& session, const Contest& contest);

}  // namespace tiermem::bench
