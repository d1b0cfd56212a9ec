// The mover's accounting and records, derived again from what they describe. For simulation and
// tests.
#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "mover/mover.hpp"

namespace tiermem {
namespace {

// Frames or slots that have one owner each. They are compared at the end: a set would take most of
// the time of a simulation.
class Owners {
 public:
  void add(std::uint64_t what, ExtentRef owner) { list_.emplace_back(what, owner); }
  /// Two owners of the same.
  std::optional<std::pair<ExtentRef, ExtentRef>> clash() {
    std::sort(list_.begin(), list_.end());
    const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
    const auto at = std::adjacent_find(list_.begin(), list_.end(), same);
    return at == list_.end() ? std::nullopt
                             : std::optional(std::pair(at->second, std::next(at)->second));
  }
  /// It has an owner. After clash().
  bool has(std::uint64_t what) const {
    const auto at = std::lower_bound(list_.begin(), list_.end(), std::pair(what, ExtentRef{0}));
    return at != list_.end() && at->first == what;
  }

 private:
  std::vector<std::pair<std::uint64_t, ExtentRef>> list_;
};

// The owner of frames and slots without an extent: bounce memory, and slots of children of fork.
constexpr ExtentRef kMovers = ~ExtentRef{0};

std::string name_of(ExtentRef owner) {
  return owner == kMovers ? "the mover" : fmt::format("extent {}", owner);
}

}  // namespace

std::string Mover::check_invariants() {
  struct Asked {
    std::uint32_t holds = 0, charges = 0;
  };
  std::unordered_map<ExtentRef, Asked> asked;
  std::vector<Owners> frames(memories_.spaces());
  std::vector<std::uint64_t> held_bytes(memories_.count());
  const auto held_in = [&](unsigned space, FrameId frame) -> std::uint64_t& {
    return held_bytes[memories_.of(space, frame).index];
  };
  const auto take = [&](unsigned space, FrameId frame, std::uint64_t bytes, ExtentRef owner) {
    held_in(space, frame) += bytes;
    frames[space].add(frame.value, owner);
    return frame.valid();
  };
  engine_.bounce().each_frame(
      [&](FrameId frame, std::uint64_t bytes) { take(kHost, frame, bytes, kMovers); });
  for (const Request* request : desk_.active()) {
    for (const Need& need : request->needs) {
      Asked& of = asked[need.ref];
      of.holds += need.held ? 1 : 0;
      of.charges += need.charged ? 1 : 0;
      held_in(need.space, directory_.frame(need.space, need.ref)) +=
          need.charged ? bytes_of_pages(need.part) : 0;
      if (need.frame.valid()) {
        take(need.space, need.frame,
             need.part != 0 ? bytes_of_pages(need.part) : directory_.bytes_of(need.ref), need.ref);
      }
    }
  }
  struct Slots {
    Owners owners;
    std::uint64_t bytes = 0;
    std::uint64_t replicated = 0;
    std::uint64_t destaging = 0;
    std::size_t replicas = 0;
    std::vector<SlotId> at_device;  // Slots that a transfer reads or writes.
  };
  std::array<Slots, kMostWritableTiers> slots;
  for (const SlotTiers::Entry* const tier : slots_.writable()) {
    for (const SharedSlots::Kept& kept : tier->ledger.shared().kept()) {
      slots[tier->number].owners.add(kept.slot.value, kMovers);
      slots[tier->number].bytes += tier->tier->bytes_of(kept.slot);
    }
    tier->ledger.each_freed_under_read([&](SlotId slot) {
      slots[tier->number].owners.add(slot.value, kMovers);
      slots[tier->number].bytes += tier->tier->bytes_of(slot);
    });
  }
  const Vector<std::uint64_t> freeing = engine_.freeing();
  std::string wrong_transfer;
  engine_.each_transfer([&](const Transfer& transfer) {
    if (transfer.at_device && !transfer.slot_tier->has_files()) {
      slots[transfer.slot_tier->number].at_device.push_back(transfer.slot);
    }
    if (const auto* const destage = if_is<Destage>(&transfer)) {
      if (!take(kHost, destage->frame, destage->length, kMovers)) {
        wrong_transfer = fmt::format("a destage of extent {} has no frame", transfer.ref);
      }
      slots[destage->source->number].destaging += destage->slot_bytes;
      if (destage->to_slot.valid()) {
        slots[destage->to->number].owners.add(destage->to_slot.value, kMovers);
        slots[destage->to->number].bytes += destage->slot_bytes;
      }
      if (destage->deserted) {
        return;
      }
    }
    if (directory_.at(transfer.ref).transfer != transfer.job.transfer + 1) {
      wrong_transfer = fmt::format("extent {} does not know its transfer", transfer.ref);
    }
    const auto* const whole = if_is<DemoteParts>(&transfer);
    if (whole != nullptr && whole->whole_again && transfer.stage == Stage::write) {
      slots[whole->to->number].owners.add(transfer.slot.value, transfer.ref);
      slots[whole->to->number].bytes += whole->to->tier->bytes_of(transfer.slot);
    }
    if (whole != nullptr &&
        transfer.frame != directory_.frame(transfer.space, transfer.ref)) {  // Its own pages.
      frames[transfer.space].add(transfer.frame.value, transfer.ref);
      if (!engine_.others_stay(transfer)) {
        wrong_transfer = fmt::format("extent {} leaves with a frame of another", transfer.ref);
      }
    }
    const auto* const parts = if_is<PromoteParts>(&transfer);
    const bool topping_up = parts != nullptr && parts->topping_up;
    const bool owns_frame = transfer.promotes() && !topping_up;
    const std::uint64_t bytes =
        transfer.pages != 0 ? bytes_of_pages(transfer.pages) : directory_.bytes_of(transfer.ref);
    held_in(transfer.space, transfer.frame) += topping_up ? bytes : 0;
    if (const auto* const relocate = if_is<Relocate>(&transfer)) {
      take(transfer.space, relocate->to, bytes, transfer.ref);
    }
    if (owns_frame && !take(transfer.space, transfer.frame, bytes, transfer.ref)) {
      wrong_transfer = fmt::format("a transfer of extent {} has no frame", transfer.ref);
    }
  });
  if (!wrong_transfer.empty()) {
    return wrong_transfer;
  }
  for (std::uint32_t index = 0; index < residency_.buffers.used(); ++index) {
    const BufferRecord& record = residency_.buffers.at(index);
    const ExtentRef first = record.first.load();
    const bool live = (record.generation.load() & 1) != 0;
    const bool dying =
        std::any_of(desk_.active().begin(), desk_.active().end(), [&](const Request* request) {
          return request->kind == RequestKind::free && request->index == index;
        });
    const bool spare = !live && !dying && directory_.at(first).buffer == index &&
                       directory_.word(kHost, first).load().phase() != Phase::none;
    for (ExtentRef ref = first; (live || dying || spare) && ref < first + record.extents.load();
         ++ref) {
      const auto of = asked.find(ref);
      if (!directory_.begun(ref)) {
        const std::string used = unused_extent(ref);
        if (!used.empty() || of != asked.end()) {
          return fmt::format("extent {} has not begun, and {}", ref,
                             used.empty() ? "a request needs it" : used);
        }
        continue;
      }
      const Extent& extent = directory_.at(ref);
      const Asked by = of == asked.end() ? Asked{} : of->second;
      if (extent.holds != by.holds) {
        return fmt::format("extent {} has {} holds, {} found", ref, extent.holds, by.holds);
      }
      if (extent.copy().owned()) {
        slots[extent.copy().tier].owners.add(extent.copy().slot.value, ref);
        slots[extent.copy().tier].bytes += engine_.copies().charge_of(ref);
      }
      const SlotPages* const pages = extent.copy().pages;
      if (pages != nullptr && (!extent.copy().owned() || pages->stored == 0 || !pages->saves() ||
                               pages->extent_bytes() != directory_.bytes_of(ref))) {
        return fmt::format("extent {}: {} slot with {} of {} pages", ref,
                           extent.copy().owned() ? "a" : "no", pages->stored, pages->count);
      }
      if (extent.copy().owned() && !slots_.of(extent.copy()).tier->compresses()) {
        const std::uint64_t charged = engine_.copies().charge_of(ref);
        if (engine_.copies().slot_bytes_of(ref) != charged) {
          return fmt::format("extent {}: a slot of {} bytes, for {}", ref, charged,
                             engine_.copies().slot_bytes_of(ref));
        }
      }
      if (directory_.has_replica(ref)) {
        const SlotReplica& replica = directory_.replica(ref);
        if (!extent.copy().owned() || replica.tier <= extent.copy().tier) {
          return fmt::format("extent {} has a replica in tier {}, and {} in tier {}", ref,
                             replica.tier, extent.copy().owned() ? "a slot" : "none",
                             unsigned{extent.copy().tier});
        }
        slots[replica.tier].owners.add(replica.slot.value, ref);
        slots[replica.tier].bytes += engine_.copies().slot_bytes_of(ref);
        slots[extent.copy().tier].replicated += engine_.copies().charge_of(ref);
        ++slots[extent.copy().tier].replicas;
      }
      const Transfer* const transfer = engine_.transfer_of(ref);
      const auto* const promote = if_is<Promote>(transfer);
      const auto* const demote = if_is<Demote>(transfer);
      const bool undone = promote != nullptr && promote->stage == Stage::unmap;
      unsigned exclusive = 0, shared = 0;
      int dirty = -1;
      for (unsigned space = 0; space < directory_.spaces(); ++space) {
        const ExtentBits bits = directory_.word(space, ref).load();
        const bool arriving =
            bits.phase() == Phase::incoming && promote != nullptr && promote->arriving != 0;
        if (bits.pinned() && !bits.readable() && !arriving) {
          return fmt::format("extent {} is pinned in phase {}", ref, phase_name(bits.phase()));
        }
        if (bits.copying() && (transfer == nullptr || transfer->copied != space)) {
          return fmt::format("extent {} is being copied by no transfer", ref);
        }
        if (bits.at_home() && (bits.pinned() || space != kHost || directory_.mapped(ref) ||
                               directory_.window_at(ref, kHost) == nullptr ||
                               (!bits.readable() && extent.transfer == 0))) {
          return fmt::format("extent {} is {} out of its window", ref, phase_name(bits.phase()));
        }
        const bool has_frame = bits.readable() || bits.phase() == Phase::vacant ||
                               extent.parts != 0 ||
                               (bits.phase() == Phase::outgoing && transfer != nullptr && !undone);
        if (has_frame &&
            !take(space, directory_.frame(space, ref), directory_.resident_bytes(ref), ref)) {
          return fmt::format("extent {} is {} and has no frame", ref, phase_name(bits.phase()));
        }
        if (has_frame && !directory_.frame_request(ref, space)
                              .may_be_in(directory_.frame(space, ref).memory())) {
          return fmt::format("extent {} is bound to memory {}, and its frame is in {}", ref,
                             directory_.frame_request(ref, space).only,
                             directory_.frame(space, ref).memory());
        }
        const std::uint64_t ordered = bytes_in_order(space, ref);
        const std::uint64_t held = directory_.resident_bytes(ref);
        if (has_frame && (ordered < held || (extent.transfer == 0 && ordered != held))) {
          return fmt::format("extent {} has {} bytes, of which the policy knows {}", ref, held,
                             ordered);
        }
        if (!has_frame && extent.transfer == 0 && ordered != 0) {
          return fmt::format("extent {} is {}, and the policy knows {} bytes of it", ref,
                             phase_name(bits.phase()), ordered);
        }
        if ((bits.phase() == Phase::incoming || bits.phase() == Phase::outgoing) &&
            extent.transfer == 0) {
          return fmt::format("extent {} is {} with no transfer", ref, phase_name(bits.phase()));
        }
        if (bits.readable()) {
          exclusive += bits.writable() ? 1 : 0;
          shared += bits.writable() ? 0 : 1;
          if (dirty >= 0 && dirty != static_cast<int>(bits.dirty())) {
            return fmt::format("extent {}: its copies do not agree on dirty", ref);
          }
          dirty = static_cast<int>(bits.dirty());
        }
      }
      if (exclusive > 1 || (exclusive == 1 && shared > 0)) {
        return fmt::format("extent {} is exclusive in {} spaces and shared in {}", ref, exclusive,
                           shared);
      }
      if (by.charges != (extent.charged ? 1u : 0u)) {
        return fmt::format("extent {} has {} charges for parts, and says {}", ref, by.charges,
                           static_cast<bool>(extent.charged));
      }
      const bool given_up =
          undone || (transfer != nullptr && transfer->kind == TransferKind::evict);
      if (extent.parts != 0 && !given_up &&
          (exclusive + shared > 0 || !directory_.in_slot_or_file(ref))) {
        return fmt::format("extent {} is in parts {:#x} and {}", ref, extent.parts,
                           exclusive + shared > 0 ? "whole" : "not whole in its slot");
      }
      if (extent.waiters != 0 && extent.transfer == 0) {
        return fmt::format("extent {} is waited for, and nothing is under way", ref);
      }
      const bool in_slot_alone = exclusive + shared == 0 && extent.copy().owned();
      if (extent.zeros != 0 && !given_up &&
          (!in_slot_alone || (extent.zeros & extent.parts) != 0)) {
        return fmt::format("extent {}: pages {:#x} are zeros, and {:#x} in memory", ref,
                           extent.zeros, exclusive + shared > 0 ? ~PageMask{0} : extent.parts);
      }
      // Invariant 1: the newest bytes exist in full somewhere.
      const Phase host = directory_.word(kHost, ref).load().phase();
      const bool in_memory = exclusive + shared > 0;
      const SlotCopy copy = directory_.slot_copy(ref);
      const bool in_slot = copy.exists() && !copy.partial();
      const bool none_yet = host == Phase::zero || host == Phase::lost || host == Phase::vacant ||
                            (promote != nullptr &&
                             (promote->origin == Phase::zero || promote->origin == Phase::lost));
      const bool leaving = given_up || if_is<Relocate>(transfer) != nullptr ||
                           (demote != nullptr && demote->withdrawn) ||
                           (promote != nullptr && promote->took_over);
      if (live && !in_memory && !in_slot && !none_yet && !leaving) {
        return fmt::format("extent {}: its bytes are nowhere (host phase {})", ref,
                           phase_name(host));
      }
      if (live && extent.transfer == 0 && engine_.copies().not_in_order(ref)) {
        return fmt::format("extent {} is droppable, and has no place in the order of its slot tier",
                           ref);
      }
      if (directory_.mapped(ref) && in_memory && dirty == 0) {
        return fmt::format("extent {} is mapped and not dirty", ref);
      }
      if (in_memory && dirty == 0 && extent.copy().partial() && extent.transfer == 0) {
        return fmt::format("extent {} is clean and its slot is stale", ref);
      }
    }
  }
  for (const SlotTiers::Entry* const tier : slots_.writable()) {
    Slots& found = slots[tier->number];
    const std::uint64_t charged = tier->tier->usage().in_use;
    if (!tier->ledger.shared().any_inherited() && found.bytes != charged) {
      return fmt::format("slots of {} bytes are held in tier {}, which charges {}", found.bytes,
                         tier->number, charged);
    }
    if (found.destaging != tier->destaging_bytes) {
      return fmt::format("tier {}: slots of {} bytes are copied, and {} are counted", tier->number,
                         found.destaging, tier->destaging_bytes);
    }
    if (found.replicated != tier->replicated_bytes || found.replicas != tier->replicated.size()) {
      return fmt::format("tier {}: {} slots of {} bytes have replicas, {} of {} bytes are counted",
                         tier->number, found.replicas, found.replicated, tier->replicated.size(),
                         tier->replicated_bytes);
    }
    if (const auto two = found.owners.clash()) {
      return fmt::format("{} and {} have the same slot in tier {}", name_of(two->first),
                         name_of(two->second), tier->number);
    }
    for (const SlotId slot : found.at_device) {
      if (!found.owners.has(slot.value)) {
        return fmt::format("tier {}: a transfer of slot {:x} is at the device, and it was freed",
                           tier->number, slot.value);
      }
    }
  }
  for (unsigned space = 0; space < memories_.spaces(); ++space) {
    if (const auto two = frames[space].clash()) {
      return fmt::format("space {}: {} and {} have the same frame", space, name_of(two->first),
                         name_of(two->second));
    }
  }
  for (const MemoryLedger& memory : memories_) {
    const FrameUsage usage = memory.tier->usage();
    const std::uint64_t held = held_bytes[memory.index];
    if (held > usage.in_use) {
      return fmt::format("memory {}: frames of {} bytes are held, the tier gave out {}",
                         memory.index, held, usage.in_use);
    }
    if (usage.used() > usage.budget && !room_.budget_changes() && !memory.trimming) {
      return fmt::format("memory {}: {} bytes used, budget {}", memory.index, usage.used(),
                         usage.budget);
    }
    const std::uint64_t trim = memory.trimming ? memory.trim.bytes : 0;
    if (memory.freeing != freeing[memory.index] + trim) {
      return fmt::format("memory {}: {} bytes counted as on their way out, {} are", memory.index,
                         memory.freeing, freeing[memory.index] + trim);
    }
    const Status recency = memory.recency.check();
    if (!recency.ok()) {
      return recency.message();
    }
  }
  const std::string wrong = desk_.check();
  return wrong.empty() ? check_counts() : wrong;
}

// Returns the bytes of the extent that the orders of victims of the space know.
std::uint64_t Mover::bytes_in_order(unsigned space, ExtentRef ref) const {
  std::uint64_t bytes = 0;
  for (const MemoryLedger* const memory : memories_.in(space)) {
    bytes += memory->recency.bytes_of(ref);
  }
  return bytes;
}

// Empty, or what an extent is that nothing was done with.
std::string Mover::unused_extent(ExtentRef ref) {
  const Extent& extent = directory_.at(ref);
  if (extent.copy().exists() || extent.transfer != 0 || extent.waiters != 0 || extent.holds != 0 ||
      extent.parts != 0) {
    return "its entry is in use";
  }
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    const ExtentBits bits = directory_.word(space, ref).load();
    if (bits.phase() != Phase::none || bits.dirty() || bits.pinned()) {
      return fmt::format("is {} in space {}", phase_name(bits.phase()), space);
    }
    if (bytes_in_order(space, ref) != 0) {
      return "the policy knows of it";
    }
  }
  return {};
}

// Counts that are kept as they change, counted again.
std::string Mover::check_counts() {
  for (const std::string& wrong : {engine_.check(), journal_.check(), read_ahead_.check()}) {
    if (!wrong.empty()) {
      return wrong;
    }
  }
  if (residency_.spares.count().bytes != residency_.spares.bytes()) {
    return fmt::format("{} bytes are spare, and {} counted", residency_.spares.count().bytes,
                       residency_.spares.bytes());
  }
  if (!residency_.extents.test_consistent(residency_.buffers.used_extents())) {
    return "the counts of groups and blocks of extents are not those of their bits";
  }
  if (!residency_.buffers.test_consistent()) {
    return "the counts of buffers and extents are not those of the records";
  }
  std::uint64_t unused = 0;
  for (ExtentRef ref = 0; ref < residency_.buffers.used_extents(); ++ref) {
    unused += directory_.at(ref).prefetched ? directory_.bytes_of(ref) : 0;
  }
  if (unused != room_.unused_prefetched(kHost)) {
    return fmt::format("{} bytes were fetched ahead and not used, and {} counted", unused,
                       room_.unused_prefetched(kHost));
  }
  return {};
}

}  // namespace tiermem
