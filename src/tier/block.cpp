// Space in the block tier: placement of slots, budgets, growth, degraded devices. The transfers are
// in block_transfer.cpp.

#include "tier/block.hpp"

#include <algorithm>
#include <cassert>

#include "base/error.hpp"

namespace tiermem {
namespace {

constexpr const char* kSetting = "nvme=DIR:SIZE";
constexpr std::uint64_t kLargestPiece = std::uint64_t{1} << 30;  // A request's length has 32 bits.

}  // namespace

BlockTier::BlockTier(IoPort& port, const BlockOptions& options)
    : port_(port),
      options_(options),
      slots_(std::span<const std::uint64_t>()),
      budget_(options.budget) {
  options_.depth = std::max(options.depth, 1U);
  add_devices();
}

/// Adds the devices of the port that this tier does not know yet.
void BlockTier::add_devices() {
  std::uint64_t unit = kSmallestExtent;  // Unit of pieces: a cut is never inside a block.
  for (auto d = static_cast<std::uint16_t>(devices_.size()); d < port_.devices(); ++d) {
    const DeviceFacts facts = port_.facts(d);
    Device& device = devices_.emplace_back();
    slots_.add_device(facts.limit);
    most_ += facts.limit;
    set_text(device.name, facts.name);
    device.block = std::max(facts.block_bytes, 1U);
    unit = std::max<std::uint64_t>(unit, device.block);
    device.writable = facts.writable;
    device.counters.direct = facts.direct;
    set_text(device.counters.reason, facts.reason);
    slots_.extend(d, std::min(facts.size, slots_.limit(d)) / kSmallestExtent * kSmallestExtent);
  }
  budget_ = std::min(budget_, most_);
  options_.piece_bytes = std::clamp(options_.piece_bytes / unit * unit, unit, kLargestPiece);
  const unsigned records = depth();
  for (std::uint32_t i = records; i-- > pieces_.size();) {
    free_pieces_.push_back(i);
  }
  for (std::uint32_t i = records; i-- > transfers_.size();) {
    free_transfers_.push_back(i);
  }
  pieces_.resize(records);
  transfers_.resize(std::max<std::size_t>(transfers_.size(), records));
}

void BlockTier::follow_fork(const char* why_none) {
  for (Device& device : devices_) {
    device.inherited = true;
    device.promised = 0;
  }
  const std::uint64_t asked = budget_ == most_ ? options_.budget : budget_;
  most_ = 0;
  budget_ = asked;
  why_none_ = why_none;
  add_devices();
}

BlockTier::~BlockTier() = default;

bool BlockTier::may_hold_slots(std::uint16_t d, std::uint64_t avoid) const {
  return devices_[d].writable && !devices_[d].degraded && !devices_[d].inherited &&
         (avoid >> d & 1) == 0;
}

std::uint64_t BlockTier::in_use() const {
  std::uint64_t bytes = 0;
  for (std::uint16_t d = 0; d < devices_.size(); ++d) {
    bytes += devices_[d].inherited ? 0 : slots_.in_use(d);
  }
  return bytes;
}

/// Includes growth in progress, so that two workers cannot both take the last of the budget.
std::uint64_t BlockTier::physical() const {
  std::uint64_t bytes = growing_bytes_;
  for (std::uint16_t d = 0; d < devices_.size(); ++d) {
    bytes += devices_[d].inherited ? 0 : slots_.size(d);
  }
  return bytes;
}

/// Returns the size at which the device has room for one more slot; 0: it cannot have it.
std::uint64_t BlockTier::growth_for(std::uint16_t d, std::uint64_t bytes) const {
  const std::uint64_t used = physical();
  if (used >= budget_) {
    return 0;
  }
  return slots_.growth_for(d, bytes, options_.grow_bytes, slots_.size(d) + (budget_ - used));
}

Result<SlotId> BlockTier::allocate(std::uint64_t bytes, std::uint64_t avoid) {
  if (!SlotAllocator::is_slot_size(bytes)) {
    return fail(Code::invalid_argument,
                "block tier {}: a slot of {} bytes; accepted are powers of two from {} to {}",
                options_.index, bytes, kSmallestExtent, kLargestExtent);
  }
  const std::lock_guard lock(mutex_);
  if (in_use() + bytes > budget_) {
    return no_capacity(bytes, avoid);
  }
  // Prefer the shortest queue, including promised writes, and then the emptiest device. A faster
  // device drains its queue sooner and so gets more slots, without a measurement of rates.
  std::uint64_t growable = 0;
  const Device* best = nullptr;
  std::uint16_t best_number = 0;
  const auto load = [](const Device& device) { return device.outstanding + device.promised; };
  for (std::uint16_t d = 0; d < devices_.size(); ++d) {
    Device& device = devices_[d];
    if (!may_hold_slots(d, avoid)) {
      continue;
    }
    if (slots_.has_room(d, bytes)) {
      if (best == nullptr || load(device) < load(*best) ||
          (load(device) == load(*best) && slots_.in_use(d) < slots_.in_use(best_number))) {
        best = &device;
        best_number = d;
      }
    } else if (device.growing) {
      growable |= std::uint64_t{1} << d;
    } else if (device.growth_pause > 0) {
      --device.growth_pause;
    } else if (growth_for(d, bytes) != 0) {
      growable |= std::uint64_t{1} << d;
    }
  }
  if (best != nullptr) {
    devices_[best_number].promised += bytes;
    return slots_.allocate(best_number, bytes);
  }
  if (growable != 0) {
    wanted_ = growable;
    return Code::busy;
  }
  return no_capacity(bytes, avoid);
}

void BlockTier::free(SlotId slot) {
#ifndef NDEBUG
  for (const Transfer& transfer : transfers_) {
    assert(!transfer.live || transfer.what.slot != slot);
  }
#endif
  const std::lock_guard lock(mutex_);
  slots_.free(slot);
}

SlotUsage BlockTier::usage() const {
  const std::lock_guard lock(mutex_);
  return {budget_, in_use(), physical()};
}

void BlockTier::set_budget(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  budget_ = std::min(bytes, most_);
  for (Device& device : devices_) {
    device.growth_pause = 0;
  }
}

void BlockTier::degrade(std::uint16_t d, const char* why) {
  const std::lock_guard lock(mutex_);
  devices_[d].degraded = true;
  devices_[d].degraded_why = why;
  devices_[d].degraded_native = devices_[d].last_native;
  devices_[d].counters.degraded = true;
  set_text(devices_[d].counters.reason, why);
}

void BlockTier::trust_again() {
  const std::lock_guard lock(mutex_);
  for (std::uint16_t d = 0; d < devices_.size(); ++d) {
    if (devices_[d].degraded) {
      devices_[d].degraded = devices_[d].counters.degraded = false;
      set_text(devices_[d].counters.reason, port_.facts(d).reason);
    }
  }
}

unsigned BlockTier::degraded() const {
  const std::lock_guard lock(mutex_);
  return static_cast<unsigned>(std::count_if(devices_.begin(), devices_.end(),
                                             [](const Device& device) { return device.degraded; }));
}

DeviceCounters BlockTier::counters(std::uint16_t device) const {
  return devices_[device].counters;
}

/// Every device is degraded: no budget would help, so the message names the failures instead.
Status BlockTier::given_up(unsigned devices) const {
  const Device& last = devices_.back();
  ErrorInfo info = error_info(
      Code::io_error, "{} of {} devices take no writes for now: {}; tiermem tries them again",
      devices, devices, last.degraded_why);
  info.native = last.degraded_native;
  info.tier = place();
  set_text(info.setting, kSetting);
  return Status(info);
}

Status BlockTier::no_capacity(std::uint64_t bytes, std::uint64_t avoid) const {
  unsigned own = 0;
  unsigned unusable = 0;
  unsigned broken = 0;
  String why = why_none_;
  for (std::uint16_t d = 0; d < devices_.size(); ++d) {
    if (devices_[d].inherited) {
      continue;
    }
    ++own;
    unusable += may_hold_slots(d, avoid) ? 0 : 1;
    broken += devices_[d].degraded ? 1 : 0;
    if (why.empty()) {
      why = devices_[d].degraded ? devices_[d].degraded_why : devices_[d].growth_error;
    }
  }
  if (own != 0 && broken == own) {
    return given_up(own);
  }
  // The cause comes first, because a message that includes this one may cut it at its end.
  const String out_of_use =
      unusable == 0 ? String() : text("; {} of {} devices avoided or degraded", unusable, own);
  ErrorInfo info = error_info(
      Code::no_capacity,
      "block tier {}: no room for a slot of {}: {}{}budget {}, slots {}, files {}{}; raise {}",
      options_.index, human_bytes(bytes), why, why.empty() ? "" : "; ", human_bytes(budget_),
      human_bytes(in_use()), human_bytes(physical()), out_of_use, kSetting);
  info.tier = place();
  info.needed = bytes;
  info.budget = budget_;
  info.used = in_use();
  set_text(info.setting, kSetting);
  return Status(info);
}

Status BlockTier::grow(std::uint64_t bytes) {
  if (!SlotAllocator::is_slot_size(bytes)) {
    return fail(Code::invalid_argument,
                "block tier {}: slots of {} bytes; accepted are powers of two from {} to {}",
                options_.index, bytes, kSmallestExtent, kLargestExtent);
  }
  std::unique_lock lock(mutex_);
  // First the devices that the mover asked for; the others only if those cannot grow.
  const std::uint64_t rounds[] = {wanted_, ~wanted_};
  Status refusal;
  bool room = false;
  for (const std::uint64_t mask : rounds) {
    for (std::uint16_t d = 0; d < devices_.size() && (mask != 0); ++d) {
      if (!may_hold_slots(d, ~mask)) {
        continue;
      }
      Status status = grow_device(d, bytes, lock);
      room = room || status.ok();
      if (!status.ok() && (refusal.ok() || refusal.info() == nullptr)) {
        refusal = std::move(status);
      }
    }
    if (room) {
      return Code::ok;
    }
  }
  return refusal.ok() || refusal.info() == nullptr ? no_capacity(bytes, 0) : std::move(refusal);
}

/// Grows one device. Returns ok if it has room now, or a plain no_capacity if its limit or the
/// budget does not allow growth.
Status BlockTier::grow_device(std::uint16_t d, std::uint64_t bytes,
                              std::unique_lock<std::mutex>& lock) {
  Device& device = devices_[d];
  // Another worker may be growing this device, which may be enough.
  grown_.wait(lock, [&] { return !device.growing; });
  if (slots_.has_room(d, bytes)) {
    return Code::ok;
  }
  const std::uint64_t size = slots_.size(d);
  const std::uint64_t target = growth_for(d, bytes);
  if (target == 0) {
    return Code::no_capacity;
  }
  device.growing = true;
  growing_bytes_ += target - size;
  std::uint64_t reached = target;
  Status status;
  // An almost full file system may still have some room: halve the step each time, down to one
  // slot.
  for (std::uint64_t step = target - size; reached != 0; step /= 2) {
    lock.unlock();
    status = port_.grow(d, reached);
    lock.lock();
    if (status.code() != Code::no_capacity) {
      break;
    }
    reached = slots_.growth_for(d, bytes, 0, size + step / 2);
  }
  device.growing = false;
  growing_bytes_ -= target - size;
  if (status.ok()) {
    slots_.extend(d, reached);
    device.growth_pause = 0;
    device.growth_error.clear();
  } else {
    device.growth_pause = kGrowthPause;
    device.growth_error = status.message();
  }
  grown_.notify_all();
  return status;
}

}  // namespace tiermem
