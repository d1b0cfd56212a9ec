// The mover's work in progress as text, for messages about a mover that does not come to rest.
#include "base/error.hpp"
#include "mover/mover.hpp"

namespace tiermem {

std::string Mover::describe() const {
  std::string text = desk_.describe_queues();
  for (const MemoryLedger& memory : memories_) {
    const FrameUsage usage = memory.tier->usage();
    text += fmt::format(
        "  space {} memory {}: budget {} in use {} cached {} freeing {} ahead {}{}{}, paused to "
        "{}, short to "
        "{}, {} remain\n",
        memory.space, memory.rank(), usage.budget, usage.in_use, usage.cached, memory.freeing,
        memory.ahead, memory.searching ? " searching" : "",
        memory.recency.exhausted() ? " exhausted" : "", memory.exit_backoff.until(),
        memory.short_until, memory.remains.size());
  }
  text += fmt::format("  now {}, {} fruitless steps, writes paused to {}, stuck since {} to {}\n",
                      now_, room_.fruitless(), slots_.paused_until(), engine_.stuck().since(),
                      engine_.stuck().until());
  for (const SlotTiers::Entry& slots : slots_) {
    const Channel::InFlight& in_flight = slots.channel.in_flight();
    text += fmt::format(
        "  slot tier {}: {} in flight, {} of them reads, {} background bytes, paused to {}, {}\n",
        slots.number, in_flight.weight, in_flight.reads, in_flight.background_bytes,
        slots.ledger.paused_until(), slots.ledger.last_error().text);
  }
  text += desk_.describe_requests();
  engine_.each_transfer([&](const Transfer& transfer) {
    const auto* const parts = if_is<PromoteParts>(&transfer);
    text += fmt::format("  transfer {}: {} in stage {}, extent {} space {}{}\n",
                        transfer.job.transfer, kind_name(transfer.kind), stage_name(transfer.stage),
                        transfer.ref, transfer.space,
                        parts != nullptr && parts->by_toucher ? ", by its toucher" : "");
  });
  unsigned listed = 0;  // The first of the resident extents.
  for (std::uint32_t index = 0; index < residency_.buffers.used() && listed < 64; ++index) {
    const BufferRecord& record = residency_.buffers.at(index);
    const ExtentRef first = record.first.load();
    for (ExtentRef ref = first; ref < first + record.extents.load() && listed < 64; ++ref) {
      const Extent& extent = directory_.at(ref);
      for (unsigned space = 0; space < memories_.spaces(); ++space) {
        const ExtentBits bits = directory_.word(space, ref).load();
        if (!directory_.has_frame(ref, space)) {
          continue;
        }
        ++listed;
        text += fmt::format("  extent {} in space {}: {}{}{}{}{}{}, parts {:x}, holds {}\n", ref,
                            space, phase_name(bits.phase()), bits.dirty() ? " dirty" : "",
                            bits.pinned() ? " pinned" : "",
                            directory_.owns_slot(ref) ? " slot" : "", extent.stuck ? " stuck" : "",
                            extent.prefetched ? " ahead" : "", extent.parts, extent.holds);
      }
    }
  }
  return text;
}

}  // namespace tiermem
