// Worker over: extents of one buffer become extents of another. If they are in their slots only, no
// byte is read or written. The stepping thread only; never waits.
#include <utility>

#include "mover/queries.hpp"

namespace tiermem {

// Nothing under way, and no copy in memory: the phase of the host's word says what there is.
bool Queries::at_rest_below(ExtentRef ref) const {
  const Extent& extent = directory_.at(ref);
  if (extent.transfer != 0 || extent.holds != 0 || extent.waiters != 0 || extent.parts != 0 ||
      extent.charged) {
    return false;
  }
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    const Phase phase = directory_.word(space, ref).load().phase();
    if (phase != Phase::none && (space != kHost || phase != Phase::zero)) {
      return false;
    }
  }
  return true;
}

// The i-th extent of the first span becomes the i-th of the second, which was never written, and is
// never written itself afterwards. Those that cannot now are left to the caller.
void Queries::move_slots(const Request& request, bool resting) const {
  const Span& from = request.spans[0];
  const Span& to = request.spans[1];
  const bool zeros = !from.record->adopted() && !to.record->adopted();
  for (std::uint32_t i = 0; i < from.count; ++i) {
    if (zeros && !directory_.begun(from.first + i) && !directory_.begun(to.first + i)) {
      request.moved[i] = !resting ? 1 : 0;
      continue;
    }
    directory_.begin(from, from.first + i);
    directory_.begin(to, to.first + i);
    engine_.desert_destage(from.first + i);
    request.moved[i] = !resting && move_slots(from.first + i, to.first + i) ? 1 : 0;
  }
}

bool Queries::move_slots(ExtentRef from, ExtentRef to) const {
  Extent& source = directory_.at(from);
  Extent& target = directory_.at(to);
  ExtentWord& source_word = directory_.word(kHost, from);
  ExtentWord& target_word = directory_.word(kHost, to);
  if (!at_rest_below(from) || !at_rest_below(to) || directory_.owns_slot(to) ||
      target_word.load().phase() != Phase::zero) {
    return false;
  }
  if (!directory_.owns_slot(from)) {
    return source_word.load().phase() == Phase::zero;
  }
  if (source.copy().partial()) {
    return false;
  }
  (void)source_word.note_known_elsewhere();
  (void)target_word.note_known_elsewhere();
  engine_.copies().move_slot(from, to);
  target.zeros = std::exchange(source.zeros, PageMask{0});
  target.part_size = source.part_size;
  target.bad_once = source.bad_once;
  source_word.set_phase(Phase::zero);
  target_word.set_phase(Phase::none);
  engine_.copies().note_in_slot(to);
  return true;
}

}  // namespace tiermem
