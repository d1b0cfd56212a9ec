// Processes of a run with memory outside its budget that cannot report it themselves. The preload
// library is not in them (static programs, an emptied environment, set-user-ID programs, other
// roots), or they belong to another user. Only the run command can report them. It reads /proc
// periodically, so it misses short-lived processes.
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
  std::string name;               ///< As in the kernel's `comm`.
  std::string why;                ///< A part of a sentence.
  std::uint64_t memory_peak = 0;  ///< Maximum anonymous memory observed, in bytes.
};

class Outsiders {
 public:
  /// `library`: the path of the preload library. Processes with at most `least` bytes of anonymous
  /// memory are ignored.
  Outsiders(std::string library, std::uint64_t least)
      : library_(std::move(library)), least_(least) {}

  /// Checks `root` and its descendants. `told`: processes that have a row in the run, or have said
  /// why they have none.
  void look(pid_t root, const std::unordered_set<pid_t>& told);
  std::span<const Outsider> found() const { return found_; }

 private:
  void judge(pid_t pid, bool told);

  const std::string library_;
  const std::uint64_t least_;
  std::unordered_map<pid_t, std::uint64_t> known_;  // Descendants, with their start times.
  std::vector<Outsider> found_;
};

}  // namespace tiermem::cli
