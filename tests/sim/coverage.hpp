// Which changes of phase the runs took, and whether a fault had struck shortly before, in one of
// the last 32 events, as long as a transfer may be under way: each row of kPhaseChanges must
// come up both ways, or the simulator proves nothing about it. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>

#include "residency/extent_state.hpp"

namespace tiermem::sim {

class Coverage {
 public:
  /// From now on the changes are counted here.
  Coverage();
  ~Coverage() { phase_changed = nullptr; }
  Coverage(const Coverage&) = delete;
  Coverage& operator=(const Coverage&) = delete;

  /// An event begins. Faults that had struck some events ago, and where they are counted: what
  /// changes while there are more of them has a fault at its side.
  static void event(std::uint64_t faults_before, const std::uint64_t* faults);

  /// Prints a line for each row. False if one is missing.
  bool print() const;

 private:
  struct Taken {
    std::uint64_t alone = 0, beside_fault = 0;
  };
  std::array<Taken, std::size(kPhaseChanges)> rows_{};
};

}  // namespace tiermem::sim
