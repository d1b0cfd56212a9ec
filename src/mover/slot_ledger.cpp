// Growth, wear and failures of one slot tier.
#include "mover/slot_ledger.hpp"

#include <algorithm>
#include <cassert>

#include "base/error.hpp"

namespace tiermem {
namespace {

constexpr std::uint32_t kMostFailures = 3;  // In a row: then a device is degraded.

}  // namespace

SlotLedger::SlotLedger(SlotTier* tier, Workers& workers, const Options& options)
    : tier_(tier),
      workers_(workers),
      options_(options),
      degraded_backoff_(options.degraded_ns, 32 * options.degraded_ns),
      wear_left_(static_cast<double>(options.endurance_bytes_per_day)) {
  device_failures_.resize(64);
}

Result<SlotId> SlotLedger::allocate(std::uint64_t bytes, std::uint64_t avoid) {
  Result<SlotId> slot = tier_->allocate(bytes, avoid);
  if (full_at_ != kNoLimit && slot.ok() && tier_->usage().in_use > full_at_) {
    full_at_ = kNoLimit;  // The devices have more room now.
  }
  return slot;
}

std::uint64_t SlotLedger::room() const {
  return std::min(tier_->usage().budget, full_at_);
}

void SlotLedger::pause(std::int64_t now, bool no_slot) {
  write_backoff_.failed(now);
  no_slot_ = no_slot;
  if (no_slot) {
    full_at_ = tier_->usage().in_use;
  }
}

bool SlotLedger::is_full(std::uint64_t bytes, std::uint64_t avoid) {
  const Result<SlotId> slot = tier_->allocate(bytes, avoid);
  if (slot.ok()) {
    tier_->free(*slot);
  }
  return slot.code() == Code::no_capacity;
}

void SlotLedger::give_up(SlotId slot, std::uint32_t stamp) {
  if (shared_.give_up(slot, stamp)) {
    free(slot);
  }
}

void SlotLedger::child_ended(std::uint32_t child) {
  shared_.ended(child, [&](SlotId slot) { free(slot); });
}

void SlotLedger::free(SlotId slot) {
  if (Read* const read = read_of(slot)) {
    read->freed = true;
  } else {
    tier_->free(slot);
  }
}

void SlotLedger::begin_read(SlotId slot) {
  Read* const unused = read_of({});
  assert(unused != nullptr);
  *unused = {.slot = slot};
}

bool SlotLedger::end_read(SlotId slot) {
  Read* const read = read_of(slot);
  assert(read != nullptr);
  const bool freed = std::exchange(*read, {}).freed;
  if (freed) {
    free(slot);  // Perhaps another read of it goes on.
  }
  return freed && read_of(slot) == nullptr;
}

SlotLedger::Read* SlotLedger::read_of(SlotId slot) {
  const auto read = std::find_if(reads_.begin(), reads_.end(),
                                 [&](const Read& each) { return each.slot == slot; });
  return read == reads_.end() ? nullptr : &*read;
}

// Writes that were refused for want of budget are tried again now.
void SlotLedger::set_budget(std::uint64_t bytes) {
  tier_->set_budget(bytes);
  full_at_ = kNoLimit;
  write_backoff_.end();
  last_error_ = {};
}

void SlotLedger::grow(std::uint32_t transfer, std::uint64_t bytes) {
  growing_queue_.push_back(transfer);
  if (growing_) {
    return;
  }
  growing_ = true;
  grow_ = Job{};
  grow_.transfer = ~std::uint32_t{0};
  grow_.steps = kGrow;
  grow_.bytes = bytes;
  grow_.slots = tier_;
  workers_.submit(&grow_);
}

bool SlotLedger::job_done(const Job& job) {
  if (&job != &grow_) {
    return false;
  }
  growing_ = false;
  return true;
}

bool SlotLedger::slots_came() {
  const bool refused = last_error_.code == Code::no_capacity;
  if (refused) {
    write_backoff_.end();
  }
  return refused;
}

bool SlotLedger::may_wear(std::uint64_t bytes, std::int64_t now) {
  if (options_.endurance_bytes_per_day == 0) {
    return true;
  }
  constexpr double kDay = 86400e9;
  const auto per_day = static_cast<double>(options_.endurance_bytes_per_day);
  const auto need = static_cast<double>(bytes);
  const auto passed = static_cast<double>(now - wear_counted_at_);
  wear_left_ = std::min(wear_left_ + passed / kDay * per_day, std::max(per_day, need));
  wear_counted_at_ = now;
  if (wear_left_ >= need) {
    wear_left_ -= need;
    return true;
  }
  last_error_ =
      error_info(Code::no_capacity,
                 "block tier: the {} that may be written in a day are used up; raise endurance",
                 human_bytes(options_.endurance_bytes_per_day));
  set_text(last_error_.setting, "endurance");
  no_slot_ = true;
  write_backoff_.wait(
      now + std::max<std::int64_t>(
                1'000'000, static_cast<std::int64_t>((need - wear_left_) / per_day * kDay)));
  return false;
}

void SlotLedger::write_failed(std::uint16_t device, const char* why, std::int64_t now) {
  if (++failures_of(device) == kMostFailures) {
    tier_->degrade(device, why);
    degraded_backoff_.failed(now);
  }
}

void SlotLedger::write_worked(SlotId slot) {
  if (std::exchange(failures_of(tier_->device_of(slot)), 0) >= kMostFailures - 1) {
    degraded_backoff_.worked();  // It was tried again, as retry_degraded() leaves it.
  }
  write_backoff_.worked();
}

// A device that refused writes may work again: a network, or a volume that was full.
void SlotLedger::retry_degraded(std::int64_t now) {
  if (!degraded_backoff_.over(now) || tier_->degraded() == 0) {
    return;
  }
  for (std::uint32_t& failures : device_failures_) {
    failures = std::min(failures, kMostFailures - 1);
  }
  tier_->trust_again();
}

void SlotLedger::forget_error(std::int64_t now) {
  if (!paused(now)) {
    last_error_ = {};
  }
}

void SlotLedger::direct_worked(SlotId slot, std::uint64_t bytes, bool wrote) {
  direct_backoff_.worked();
  tier_->went_past(slot, bytes, wrote);
}

std::string SlotLedger::check() const {
  if (!growing_ && !growing_queue_.empty()) {
    return "transfers wait for the slots to grow, without a job for it";
  }
  for (const SharedSlots::Kept& parked : shared_.kept()) {
    if (!shared_.is_read(parked)) {
      return fmt::format("a slot stamped {} is kept for no child", parked.stamp);
    }
  }
  return {};
}

}  // namespace tiermem
