// Counts the changes of phase in the runs, and whether a fault had struck in one of the last 32
// events, which is as long as a transfer may be in flight. Each row of kPhaseChanges must occur
// with and without a fault; otherwise the simulator proves nothing about it. Also counts the
// changes of stage of transfers: each row of kStageChanges that is not rare must occur. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>

#include "mover/stages.hpp"
#include "residency/extent_state.hpp"

namespace tiermem::sim {

class Coverage {
 public:
  /// Starts counting changes here.
  Coverage();
  ~Coverage() {
    phase_changed = nullptr;
    stage_changed = nullptr;
  }
  Coverage(const Coverage&) = delete;
  Coverage& operator=(const Coverage&) = delete;

  /// Begins an event. `faults_before` is the number of faults some events ago, and `faults` is the
  /// counter. A change while the counter is higher happens near a fault.
  static void event(std::uint64_t faults_before, const std::uint64_t* faults);

  /// Prints a line for each row. Returns false if one is missing. `memories`: the host may have had
  /// several memories; of the stages only those of relocations are required then.
  bool print(bool memories) const;

 private:
  struct Taken {
    std::uint64_t alone = 0, beside_fault = 0;
  };
  bool print_stages(bool memories) const;

  std::array<Taken, std::size(kPhaseChanges)> rows_{};
  std::array<std::uint64_t, std::size(kStageChanges)> stages_{};
};

}  // namespace tiermem::sim
