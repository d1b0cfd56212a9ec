// Temporary troubles of the machine, and callers that only query.
#include "tests/sim/simulation.hpp"

namespace tiermem::sim {

// A device hangs, disappears or fills up, and recovers; a worker is delayed. Mostly this lasts as
// long as requests wait, sometimes much longer, and a device may be gone permanently.
void Simulation::trouble() {
  const auto while_ns =
      static_cast<std::int64_t>(1 + world_.below(world_.one_in(8) ? 4'000'000'000 : 8'000'000));
  if (world_.one_in(4)) {
    note("a worker stalls for {} ns", while_ns);
    workers_.stall(world_.now + while_ns);
    return;
  }
  const auto device = static_cast<std::uint16_t>(world_.below(swarm_.disks));
  const auto what = static_cast<Trouble>(world_.below(3));
  const bool for_good = what == Trouble::gone && world_.one_in(16);
  const unsigned tier = some_tier();
  note("disk{} of tier {} {} for {} ns{}", device, tier,
       what == Trouble::hangs  ? "hangs"
       : what == Trouble::gone ? "is gone"
                               : "is full",
       while_ns, for_good ? ", and for good" : "");
  port(tier).befall(device, what, for_good ? FakePort::kForGood : world_.now + while_ns);
}

// Information for callers must match the records: buffers' bytes add up, and budgets hold.
void Simulation::inspect() {
  Stats stats;
  Pending& all = new_pending(RequestKind::stats);
  all.request.stats = &stats;
  mover_.post(&all.request);
  finish(all);
  for (std::size_t number = 0; number <= swarm_.further_frames.size(); ++number) {
    const TierStats* const memory = stats.tier(host_.memory(static_cast<unsigned>(number)).place());
    check(memory != nullptr, "a memory of the host is not among the tiers");
    check(memory->used <= memory->budget || budget_refused_,
          fmt::format("memory {}: {} bytes of {} are used", number, memory->used, memory->budget));
  }
  check(stats.buffers >= live_.size() - views_of_freed(), "live buffers are not counted");
  Live* live = pick();
  if (live == nullptr) {
    return;
  }
  BufferInfo info;
  Pending& one = new_pending(RequestKind::info);
  one.request.index = Buffers::index_of(live->handle);
  one.request.info = &info;
  mover_.post(&one.request);
  finish(one);
  check(info.bytes == live->bytes && info.extent_bytes == live->extent_bytes, "another buffer");
  const std::uint64_t whole = std::uint64_t{info.extents} * info.extent_bytes;
  check(info.resident <= whole && info.dirty <= info.resident && info.pinned <= info.resident &&
            info.in_slots <= whole && info.resident + info.zero + info.lost <= whole,
        fmt::format("buffer{}: of {} bytes {} are resident, {} zero, {} lost, {} in slots",
                    serial_of(*live), whole, info.resident, info.zero, info.lost, info.in_slots));
}

std::size_t Simulation::views_of_freed() const {
  return static_cast<std::size_t>(std::count_if(
      live_.begin(), live_.end(), [&](const auto& entry) { return freed(entry.first); }));
}

// For the block tier any budget is valid: stored bytes stay.
void Simulation::set_block_budget(unsigned tier, std::uint64_t bytes) {
  Pending& p = new_pending(RequestKind::set_budget);
  p.request.tier = {Kind::block, static_cast<std::uint16_t>(tier)};
  p.request.value = bytes;
  note("set_budget of block tier {} {}", tier, bytes);
  mover_.post(&p.request);
  finish(p);
  check(p.request.status.ok(), p.request.status.message());
}

}  // namespace tiermem::sim
