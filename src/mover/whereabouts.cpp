// Where an extent is, and since when. The stepping thread only; never waits.

#include "mover/queries.hpp"

namespace tiermem {

// Answers for the extent in which the span of the request begins.
void Queries::describe_location(const Request& request) const {
  const Span& span = request.spans.front();
  const ExtentRef ref = span.first;
  directory_.begin(span, ref);
  const Extent& extent = directory_.at(ref);
  Whereabouts& where = *request.where;
  using State = Whereabouts::State;
  const unsigned holder =
      directory_.readable_elsewhere(ref, kNoSpace);  // The host before any device.
  const Phase host = directory_.word(kHost, ref).load().phase();
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    where.pinned = where.pinned || directory_.bits(space, ref).pinned();
  }
  const std::uint64_t inside = span.offset & ((std::uint64_t{1} << span.shift) - 1);
  const PageMask page = extent.parts >> (inside / kSmallestExtent % kMostParts);
  if (holder != kNoSpace || (page & 1) != 0) {
    const unsigned space = holder != kNoSpace ? holder : kHost;
    where.state = State::resident;
    where.place = memories_.of(space, directory_.frame(space, ref)).tier->place();
    where.dirty = directory_.word(space, ref).load().dirty();
  } else if (extent.transfer != 0 && if_is<Destage>(engine_.transfer_of(ref)) == nullptr) {
    where.state = State::moving;
  } else if (host == Phase::lost) {
    where.state = State::lost;
  } else if (directory_.has_slot_copy(ref)) {
    where.state = State::in_slot;
    where.place = engine_.slots().of(extent.copy()).tier->place();
  }
  // The receipt of the transfer that brought it; if it is in a slot only, of the one by which it
  // left.
  const Receipt* const last = journal_.newest_of(ref, [&](const Receipt& receipt) {
    return !receipt.failed && (where.state != State::resident || receipt.to == where.place);
  });
  if (last != nullptr && where.state != State::zero) {
    where.last = *last;
    where.since_ns = now_ - last->ended_ns;
  }
}

}  // namespace tiermem
