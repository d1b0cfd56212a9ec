// Watches the memory limit of a run's cgroup. If the limit falls, the budget of all processes is
// lowered before the kernel kills or stalls them. If it rises again, the budget does, too.
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

  /// Returns the run's budget under the current limits, if it has changed. `resident`: its bytes in
  /// use.
  std::optional<std::uint64_t> look(const HostFacts& now, std::uint64_t resident);
  /// A sentence for the end of the run; empty if the budget was never lowered.
  const std::string& sentence() const { return sentence_; }

 private:
  const std::uint64_t asked_;
  std::uint64_t total_;
  std::uint64_t least_total_;
  // As last seen, by the file that contains the limit.
  std::map<std::string, std::uint64_t> limits_;
  std::string lowered_by_;  // The file that last lowered the budget.
  std::string sentence_;    // Describes the lowest budget.
};

}  // namespace tiermem::cli
