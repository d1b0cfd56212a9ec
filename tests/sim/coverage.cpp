#include "tests/sim/coverage.hpp"

#include <cstdio>

namespace tiermem::sim {
namespace {

// The extent word calls a plain function; it counts in this object.
Coverage* g_coverage = nullptr;
std::uint64_t g_faults_before = 0;
const std::uint64_t* g_faults = nullptr;

}  // namespace

Coverage::Coverage() {
  g_coverage = this;
  phase_changed = [](const void*, Phase from, Phase to) noexcept {
    for (std::size_t row = 0; row < g_coverage->rows_.size(); ++row) {
      if (kPhaseChanges[row].from == from && kPhaseChanges[row].to == to) {
        Taken& taken = g_coverage->rows_[row];
        const bool beside = g_faults != nullptr && *g_faults != g_faults_before;
        ++(beside ? taken.beside_fault : taken.alone);
      }
    }
  };
  stage_changed = [](TransferKind kind, Stage from, Stage to) noexcept {
    for (std::size_t row = 0; row < g_coverage->stages_.size(); ++row) {
      const StageChange& change = kStageChanges[row];
      g_coverage->stages_[row] += change.kind == kind && change.from == from && change.to == to;
    }
  };
}

void Coverage::event(std::uint64_t faults_before, const std::uint64_t* faults) {
  g_faults_before = faults_before;
  g_faults = faults;
}

bool Coverage::print(bool memories) const {
  bool all = true;
  std::printf("%-23s %12s %12s\n", "change of phase", "beside fault", "alone");
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const Taken& taken = rows_[row];
    const bool there = taken.alone != 0 && taken.beside_fault != 0;
    all = all && there;
    std::printf("%-9s -> %-10s %12llu %12llu%s\n", phase_name(kPhaseChanges[row].from),
                phase_name(kPhaseChanges[row].to),
                static_cast<unsigned long long>(taken.beside_fault),
                static_cast<unsigned long long>(taken.alone), there ? "" : "  MISSING");
  }
  return print_stages(memories) && all;
}

bool Coverage::print_stages(bool memories) const {
  bool all = true;
  std::printf("%-37s %12s\n", "change of stage", "times");
  for (std::size_t row = 0; row < stages_.size(); ++row) {
    const StageChange& change = kStageChanges[row];
    const bool usual = !change.rare && memories == (change.kind == TransferKind::relocate);
    const bool missing = stages_[row] == 0 && usual;
    all = all && !missing;
    std::printf("%-13s %-9s -> %-9s %12llu%s\n", kind_name(change.kind), stage_name(change.from),
                stage_name(change.to), static_cast<unsigned long long>(stages_[row]),
                missing       ? "  MISSING"
                : change.rare ? "  rare"
                              : "");
  }
  return all;
}

}  // namespace tiermem::sim
