// C: where bytes are, by label.
#include <cstring>

#include "checks.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

extern "C" tm_status tm_stats_by_label(tm_context* context, tm_label_counters* list, size_t n,
                                       size_t* out_count) {
  if (tm_status bad = check_list("stats_by_label", context, list, n)) {
    return bad;
  }
  if (tm_status bad = check_not_null("stats_by_label", out_count, "out_count")) {
    return bad;
  }
  if (n != 0) {
    if (tm_status bad = check_info("stats_by_label", list, kLabelCounters1)) {
      return bad;
    }
  }
  const std::size_t size = n != 0 ? list->size : 0;
  return guarded([&]() -> Status {
    const Result<std::vector<LabelStats>> labels = context->context->stats_by_label();
    if (!labels.ok()) {
      return labels.status().clone();
    }
    for (std::size_t i = 0; i < std::min(n, labels->size()); ++i) {
      const LabelStats& from = (*labels)[i];
      tm_label_counters counters{};
      static_assert(sizeof(counters.label) == sizeof(from.label));
      static_assert(sizeof(counters.tiers) == sizeof(from.tiers));
      // A field added to LabelStats also belongs at the end of tm_label_counters, and here.
      static_assert(sizeof(LabelStats) == sizeof(tm_label_counters) - sizeof(size_t));
      std::memcpy(counters.label, from.label, sizeof(counters.label));
      counters.buffers = from.buffers;
      counters.bytes = from.bytes;
      counters.resident = from.resident;
      counters.dirty = from.dirty;
      counters.in_slots = from.in_slots;
      counters.zero = from.zero;
      counters.pinned = from.pinned;
      counters.lost = from.lost;
      std::memcpy(counters.tiers, from.tiers.data(), sizeof(counters.tiers));
      fill_element(list, i, size, counters);
    }
    *out_count = labels->size();
    return {};
  });
}
