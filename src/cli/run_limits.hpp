// The memory limit of the cgroup of a run, while it runs: a limit that falls lowers the budget of
// all its processes before the kernel kills or stalls them, and one that rises again gives it back.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "os/host_facts.hpp"

namespace tiermem::cli {

class LimitWatch {
 public:
  /// `asked`: the run's budget in bytes.
  LimitWatch(const HostFacts& at_start, std::uint64_t asked);

  /// The run's budget under the limits of now, if that is news. `resident`: bytes of it that are
  /// used.
  std::optional<std::uint64_t> look(const HostFacts& now, std::uint64_t resident);
  /// A sentence for the end of the run; empty: the budget was never lowered.
  const std::string& sentence() const { return sentence_; }

 private:
  const std::uint64_t asked_;
  std::uint64_t total_;
  std::uint64_t least_total_;
  std::map<std::string, std::uint64_t> limits_;  // As last seen, by the file that has it.
  std::string lowered_by_;                       // The file whose limit lowered the budget last.
  std::string sentence_;                         // About the lowest budget.
};

}  // namespace tiermem::cli
