// The engine between its transfers: completions, times of wake-ups, and checks of its records.
#include "mover/transfer_engine.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.hpp"

namespace tiermem {

TransferEngine::TransferEngine(Residency& residency, Deque<Memory>& memories, Journal& journal,
                               Stock& stock, SlotTier* block, SlotTier* files, Hands& hands,
                               const MoverOptions& options)
    : residency_(residency),
      directory_(residency),
      hands_(hands),
      options_(options),
      block_(block),
      files_(files),
      memories_(memories),
      journal_(journal),
      stock_(stock),
      block_channel_(block),
      files_channel_(files),
      block_slots_(block, hands,
                   {.endurance_bytes_per_day = options.endurance_bytes_per_day,
                    .degraded_ns = options.degraded_ns}),
      file_slots_(files, hands, {.degraded_ns = options.degraded_ns}),
      bounce_(hands, {.area_bytes = options.bounce_area_bytes,
                      .budget_per_area = options.budget_per_bounce_area,
                      .staging_bytes = options.staging_bytes,
                      .staging_frame_bytes = options.staging_frame_bytes}),
      part_size_(options.usual_part) {}

bool TransferEngine::take_completions() {
  bool any = !deserted_.empty();
  end_deserted();
  any = run_drops() || any;
  any = run_own_jobs() || any;
  std::array<Done, 64> jobs;
  for (std::size_t n = hands_.reap(jobs); n > 0; n = hands_.reap(jobs)) {
    any = true;
    for (std::size_t i = 0; i < n; ++i) {
      jobs[i].begun != 0 ? copy_begun(*jobs[i].job, jobs[i].begun) : job_done(*jobs[i].job);
    }
  }
  std::array<SlotCompletion, 64> completions;
  for (Channel* channel : {&block_channel_, &files_channel_}) {
    if (channel->tier() == nullptr) {
      continue;
    }
    for (std::size_t n = channel->tier()->reap(completions); n > 0;
         n = channel->tier()->reap(completions)) {
      any = true;
      for (std::size_t i = 0; i < n; ++i) {
        io_done(completions[i]);
      }
    }
  }
  return any;
}

// Transfers go on by completions. All else that they wait for is here.
std::int64_t TransferEngine::next() const {
  if (!own_jobs_.empty() || !drops_.empty() || !deserted_.empty()) {
    return now_;
  }
  return std::min({block_channel_.next(now_), files_channel_.next(now_), bounce_.next(now_),
                   ended_.next(now_), unmaps_.empty() ? kNever : unmap_backoff_.until()});
}

std::int64_t TransferEngine::next_for_room() const {
  std::int64_t next = block_slots_.next(now_);
  for (const std::int64_t at : {stuck_until_, withdrawals_again_at_, rereads_at_}) {
    next = at > now_ ? std::min(next, at) : next;
  }
  return next;
}

void TransferEngine::unwatch(ExtentRef ref) {
  const auto at = std::find(watched_.begin(), watched_.end(), ref);
  if (at != watched_.end()) {
    watched_.erase(at);
  }
}

unsigned TransferEngine::housekeeping() const {
  const auto trims = std::count_if(memories_.begin(), memories_.end(),
                                   [](const Memory& memory) { return memory.trimming; });
  return static_cast<unsigned>(trims) + bounce_.jobs() + block_slots_.jobs() + file_slots_.jobs();
}

// Where writes are not paused, extents that lacked a slot are tried again, and may find one. Others
// that could not leave are tried again, too. After that time has passed, they may have gone: no
// request waits for them any more.
bool TransferEngine::retries_stuck(const Request& asking) const {
  const bool kept =
      now_ < withdrawals_again_at_ && (stuck_since_ == 0 || now_ - stuck_since_ < kMostStuckNs);
  const bool unread = now_ < rereads_at_ && reread_last_ < asking.admitted_ns;
  return kept || unread || (now_ < lacks_slot_until_ && !block_slots_.paused(now_));
}

void TransferEngine::test_begin_near_wrap(std::uint32_t left) {
  block_slots_.test_begin_near_wrap(left);
  part_size_.test_begin_at(0 - left);
}

void TransferEngine::abandon() {
  for (Transfer& transfer : transfers_) {
    Checksums::destroy(transfer.sums);
    transfer.sums = nullptr;
    SlotPages::destroy(transfer.slot_pages);
    transfer.slot_pages = nullptr;
  }
}

Vector<std::uint64_t> TransferEngine::freeing() const {
  Vector<std::uint64_t> bytes(memories_.size());
  each_transfer([&](const Transfer& transfer) { bytes[frees_in(transfer)] += transfer.freeing; });
  return bytes;
}

std::string TransferEngine::check() const {
  if (free_transfers_.size() + transfers_live_ != transfers_.size()) {
    return fmt::format("{} records of transfers: {} live, {} free", transfers_.size(),
                       transfers_live_, free_transfers_.size());
  }
  unsigned live = 0, prefetches = 0;
  each_transfer([&](const Transfer& transfer) {
    ++live;
    prefetches += transfer.kind == Transfer::Kind::promote && transfer.prefetch ? 1 : 0;
  });
  if (live != transfers_live_) {
    return fmt::format("{} transfers live, {} counted", live, transfers_live_);
  }
  if (prefetches != prefetches_) {
    return fmt::format("{} prefetches are under way, and {} counted", prefetches, prefetches_);
  }
  for (const std::string& wrong :
       {check_channels(), check_bounce(), block_slots_.check(), file_slots_.check()}) {
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return {};
}

// Compares the channels with the transfers: which are queued, and which are at a slot tier.
std::string TransferEngine::check_channels() const {
  std::vector<bool> queued(transfers_.size(), false);
  for (const Channel* channel : {&block_channel_, &files_channel_}) {
    std::string wrong;
    channel->each_queued([&](std::uint32_t number) {
      const Transfer& transfer = transfers_[number];
      if (transfer.kind == Transfer::Kind::idle || queued[number] ||
          (transfer.kind == Transfer::Kind::gather && transfer.gather == nullptr)) {
        wrong = fmt::format("transfer {} is queued twice, or does not exist", number);
      }
      queued[number] = true;
    });
    Channel::InFlight found;
    for (const Transfer& transfer : transfers_) {
      if (transfer.kind == Transfer::Kind::idle || transfer.slot_tier != channel->tier()) {
        continue;
      }
      if (transfer.kind == Transfer::Kind::gather) {
        found.weight += transfer.open * Channel::kGatherWeight;
        found.reads += transfer.open;
      } else if (transfer.at_device) {
        const Channel::Load load = load_of(transfer);
        found.weight += Channel::weight(load.bytes);
        found.reads += load.writes ? 0 : 1;
        found.background_bytes += load.priority > Priority::room ? load.bytes : 0;
      }
    }
    if (wrong.empty()) {
      wrong = channel->check(found);
    }
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return {};
}

// Compares the bounce memory with the transfers and extents that use it.
std::string TransferEngine::check_bounce() const {
  Bounce::Use use;
  for (const Transfer& transfer : transfers_) {
    if (transfer.kind == Transfer::Kind::idle) {
      continue;
    }
    use.staging_bytes +=
        transfer.staging ? bounce_.bytes_of_place(directory_.bytes_of(transfer.ref)) : 0;
    if (transfer.bounce) {
      use.places.push_back(transfer.bounce);
    }
  }
  for (ExtentRef ref = 0; ref < residency_.buffers.used_extents(); ++ref) {
    use.partial += directory_.at(ref).parts != 0 ? 1 : 0;
  }
  return bounce_.check(use);
}

std::uint32_t TransferEngine::read_unit(const BufferRecord& record) const {
  const bool adopted = record.read_only.load(std::memory_order_relaxed) ||
                       (record.flags.load(std::memory_order_relaxed) & kPrivate) != 0;
  const bool checked =
      options_.checksums &&
      (adopted || (record.flags.load(std::memory_order_relaxed) & kNoChecksum) == 0);
  const std::uint64_t extent = std::uint64_t{1}
                               << record.extent_shift.load(std::memory_order_relaxed);
  const std::uint64_t block = checked ? checksum_block(record) : kSmallestExtent;
  return static_cast<std::uint32_t>(std::min(block, extent));
}

}  // namespace tiermem
