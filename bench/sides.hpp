// The memories that a workload runs on, one after the other: a mapped buffer or adopted file,
// anonymous memory with swap or a file under mmap in a memory cgroup, plain memory; and their
// comparison. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.hpp"
#include "bench/workload.hpp"

namespace tiermem::bench {

/// A workload on one kind of memory; it is filled and run once when it begins.
class Side {
 public:
  virtual ~Side() = default;
  /// Errors: unavailable if this memory is not available here.
  virtual Status begin() = 0;
  virtual Result<Sample> run() = 0;
  /// Returns an error unless all its bytes are right.
  virtual Status finish() = 0;
  /// Number of times its process was killed by the kernel and replaced.
  virtual unsigned begun_again() const { return 0; }
};

/// A side that has not begun: only measured sides take memory.
struct SideChoice {
  std::string name;
  std::string command;  ///< A description of the settings.
  std::function<std::unique_ptr<Side>()> make;
};

/// The common properties of all sides of a row.
struct Contest {
  std::string name;
  std::string unit;
  Better better = Better::higher;
  double bar = 0;
  MakeWorkload make;
  std::uint64_t dram = 0;  ///< tiermem's budget, and slightly more than the others' cgroup limit.
  std::uint64_t compressed = 0;  ///< The part of tiermem's budget for compressed pages.
  std::uint64_t extent = 0;      ///< Extent of the mapped buffer; 0: chosen.
  unsigned rounds = 2;           ///< Rounds of the search for the best peer.
  bool reads_file = false;       ///< The bytes are those of a file, and all sides only read them.
  std::string options;           ///< More of tiermem's options.
};

/// A mapped buffer, or an adopted file, in `directory`, with the contest's budget.
SideChoice tiermem_side(const Contest& contest, const std::string& directory);
/// Anonymous memory in a cgroup, with `madvise` MADV_NOHUGEPAGE and MADV_HUGEPAGE; swap must be on.
/// `how` names the swap in the report.
std::vector<SideChoice> swap_sides(const Contest& contest, const std::string& how = "swap");
/// A file in `directory` under mmap in a cgroup, with this advice to madvise.
SideChoice mmap_side(const Contest& contest, const std::string& directory, int advice,
                     const char* word);
/// `handlers` threads answer the faults of a file in `directory`, in a cgroup (user_pager.hpp), in
/// blocks of `block` bytes.
SideChoice pager_side(const Contest& contest, const std::string& directory, unsigned handlers,
                      std::uint64_t block);
/// Huge pages without a limit.
SideChoice plain_side(const Contest& contest);

/// Adds a row: a mapped buffer beside the best of `peers`; all bytes of both are checked at the
/// end. If one of the two is unavailable, the row is skipped with the reason.
Status compare_sides(Session& session, const Contest& contest, std::vector<SideChoice> peers);
/// The same, with a swap file in the session's directory during the measurement; skipped if that is
/// not possible.
Status beside_swap(Session& session, const Contest& contest, std::vector<SideChoice> peers);
/// Beside swap with zswap, which is switched on during the measurement; skipped if zswap is
/// unavailable. Both sides may compress: tiermem in half of its budget.
Status beside_zswap(Session& session, const Contest& contest);

}  // namespace tiermem::bench
