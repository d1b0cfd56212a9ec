// Computes one row at a time; see policy_table.hpp.
#include "cli/policy_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "policy/rivals/min.hpp"
#include "policy/rivals/rival.hpp"
#include "policy/session_hints.hpp"

namespace tiermem::cli {

std::vector<std::string> policy_names() {
  std::vector<std::string> names = {"recency"};
  for (const RivalKind& kind : rival_kinds()) {
    names.emplace_back(kind.name);
  }
  names.emplace_back(kHidden);
  names.emplace_back("min");
  return names;
}

std::uint64_t policy_hits(const std::string& name, std::span<const Reference> references,
                          std::uint32_t blocks, const ReplayOptions& options) {
  if (name == "min") {
    return min_hits(references, blocks, options.capacity);
  }
  const RivalKind* rival = find_rival(name);
  ReplayOptions ours = options;
  ours.hidden = name == kHidden;
  return rival == nullptr ? replay_recency(references, blocks, ours).hits
                          : rival_hits(*rival, references, blocks, options.capacity);
}

const MissRatios::Row* MissRatios::find(const std::string& policy) const {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.policy == policy; });
  return found == rows.end() ? nullptr : &*found;
}

MissRatios miss_ratios(const Trace& trace, const TableOptions& options,
                       const std::function<void(const std::string& policy)>& progress) {
  const unsigned repeat = options.repeat != 0 ? options.repeat : trace.one_step ? 2 : 1;
  std::vector<Reference> references;
  for (unsigned i = 0; i < repeat; ++i) {
    references.insert(references.end(), trace.references.begin(), trace.references.end());
  }
  MissRatios out{trace.name, references.size(), trace.blocks, {}};
  const auto add_row = [&](const std::string& policy, std::span<const ReplayHint> hints) {
    progress(policy);
    MissRatios::Row row{policy, {}};
    for (const double share : options.shares) {
      const auto capacity = static_cast<std::uint32_t>(share * trace.blocks / 100);
      const std::uint64_t hits = policy_hits(policy, references, trace.blocks,
                                             {.capacity = std::max(capacity, 1U), .hints = hints});
      row.at.push_back(1 - static_cast<double>(hits) / static_cast<double>(references.size()));
    }
    out.rows.push_back(std::move(row));
  };
  for (const std::string& policy : options.policies) {
    if (policy != "min") {
      add_row(policy, {});
    }
    // Only for the sequence as recorded: a repetition would have other sessions.
    if (policy == "recency" && options.at_session_end != Advice::normal && repeat == 1) {
      if (const auto hints = session_end_hints(trace, options.at_session_end); !hints.empty()) {
        add_row(kHinted, hints);
      }
    }
  }
  add_row("min", {});
  return out;
}

Summary summarise(std::span<const MissRatios> tables, std::span<const double> shares,
                  const std::string& policy) {
  Summary summary{0, -1, ""};
  std::size_t cells = 0;
  for (const MissRatios& table : tables) {
    const MissRatios::Row* ours = table.find(policy);
    const MissRatios::Row* min = table.find("min");
    const MissRatios::Row* lru = table.find("lru");
    for (std::size_t i = 0; ours != nullptr && min != nullptr && i < shares.size(); ++i, ++cells) {
      summary.gap += ours->at[i] - min->at[i];
      if (lru != nullptr && ours->at[i] - lru->at[i] > summary.over_lru) {
        summary.over_lru = ours->at[i] - lru->at[i];
        summary.worst_cell = fmt::format("{} at {:g} %", table.trace, shares[i]);
      }
    }
  }
  summary.gap /= static_cast<double>(std::max<std::size_t>(cells, 1));
  return summary;
}

}  // namespace tiermem::cli
