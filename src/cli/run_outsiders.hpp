// Processes of a run that take memory outside of its budget and do not say so themselves, since the
// preload library is not in them (static programs, an emptied environment, set-user-ID programs,
// other roots), or as they are of another user. Only the run command can tell of them. It looks at
// /proc from time to time, so that a process that lives shorter than that is not seen.
//
// Threads: one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tiermem::cli {

struct Outsider {
  std::uint32_t pid = 0;
  std::string name;               ///< As the kernel's `comm`.
  std::string why;                ///< A part of a sentence.
  std::uint64_t memory_peak = 0;  ///< Bytes of anonymous memory, as far as it was seen.
};

class Outsiders {
 public:
  /// `library`: the path of the preload library. Processes with no more anonymous memory than
  /// `least` bytes are let alone.
  Outsiders(std::string library, std::uint64_t least)
      : library_(std::move(library)), least_(least) {}

  /// Looks at the descendants of `root`, and at it. `told`: processes that have a row in the run,
  /// or have said why not.
  void look(pid_t root, const std::unordered_set<pid_t>& told);
  std::span<const Outsider> found() const { return found_; }

 private:
  void judge(pid_t pid, bool told);

  const std::string library_;
  const std::uint64_t least_;
  std::unordered_map<pid_t, std::uint64_t> known_;  // Descendants, and when they began.
  std::vector<Outsider> found_;
};

}  // namespace tiermem::cli
