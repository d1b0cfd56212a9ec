#include "mover/carrier.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "mover/page_mask.hpp"

namespace tiermem {

Carrier::Carrier(Residency& residency, Memories& memories, Journal& journal, Bounce& bounce,
                 SlotTiers& slots, Copies& copies, Workers& workers, const MoverOptions& options)
    : residency_(residency),
      directory_(residency),
      memories_(memories),
      journal_(journal),
      bounce_(bounce),
      slots_(slots),
      copies_(copies),
      workers_(workers),
      options_(options) {}

// Returns the number of a free record.
std::uint32_t Carrier::new_record() {
  if (!free_.empty()) {
    const std::uint32_t number = free_.back();
    free_.pop_back();
    return number;
  }
  records_.emplace_back();
  heads_.push_back(nullptr);
  return static_cast<std::uint32_t>(records_.size() - 1);
}

void Carrier::begin(Transfer& transfer, std::uint32_t number, ExtentRef ref, unsigned space,
                    Priority priority) {
  heads_[number] = &transfer;
  transfer.ref = ref;
  transfer.space = static_cast<std::uint8_t>(space);
  transfer.priority = priority;
  transfer.job.transfer = number;
  transfer.begun_ns = now_;
  transfer.prefetch = transfer.promotes() && priority == Priority::prefetch;
  prefetches_ += transfer.prefetch ? 1 : 0;
  const bool comes = transfer.promotes() && priority != Priority::room;
  transfer.reason = !comes              ? journal_.reason()
                    : transfer.prefetch ? Reason::prefetch
                                        : Reason::demand;
  directory_.at(ref).transfer = number + 1;
  ++live_;
}

void Carrier::end(Transfer& transfer) {
  journal_.note_activity();
  journal_.note_end(transfer);
  give_staging(transfer);
  if (transfer.bounce) {
    bounce_.give(transfer.bounce);
  }
  free_nothing(transfer);
  drop_prefetch(transfer);
  if (transfer.copied != kNoSpace) {
    directory_.word(transfer.copied, transfer.ref).end_copy();
  }
  const auto* const destage = if_is<Destage>(&transfer);
  if (destage == nullptr || !destage->deserted) {
    directory_.at(transfer.ref).transfer = 0;
  }
  const std::uint32_t number = transfer.job.transfer;
  heads_[number] = nullptr;
  records_[number].emplace<std::monostate>();
  free_.push_back(number);
  --live_;
}

void Carrier::drop_prefetch(Transfer& transfer) {
  prefetches_ -= transfer.prefetch ? 1 : 0;
  transfer.prefetch = false;
}

bool Carrier::comes_back(ExtentRef ref) const {
  const Transfer* const transfer = transfer_of(ref);
  if (transfer != nullptr && transfer->kind == Transfer::Kind::relocate) {
    return true;
  }
  const auto* const demote = if_is<Demote>(transfer);
  return demote != nullptr && demote->withdrawn && !demote->evict_after;
}

void Carrier::abandon() {
  heads_.clear();
  records_.clear();
}

bool Carrier::start_copy(Transfer& transfer, unsigned space) {
  transfer.copied = static_cast<std::uint8_t>(space);
  (void)directory_.bits(space, transfer.ref);  // Ends the bias.
  return directory_.word(space, transfer.ref).start_copy();
}

void Carrier::submit(Transfer& transfer, JobStep steps) {
  Job& job = transfer.job;
  job.steps = steps;
  job.tier = memory_of(transfer).tier;
  job.frame = transfer.frame;
  job.host_tier = memories_.of(kHost, job.host).tier;
  job.at = directory_.address_in_window(transfer.ref, transfer.space);
  job.bytes = directory_.bytes_of(transfer.ref);
  job.pages = transfer.pages;
  job.zeros = 0;
  const Extent& extent = directory_.at(transfer.ref);
  const auto* const parts = if_is<DemoteParts>(&transfer);
  if (parts != nullptr && parts->whole_again && transfer.stage == Stage::copy) {
    job.pages = pages_of(job.bytes) & ~transfer.pages;
    job.zeros = zero_pages(extent) & job.pages;
  } else if (transfer.kind == Transfer::Kind::promote_parts) {
    job.zeros = zero_pages(extent) & job.pages;
  } else if (transfer.kind == Transfer::Kind::promote) {
    job.zeros = extent.zeros;
  }
  if (&job == given_) {
    return;
  }
  if (is_own_job(job)) {
    own_jobs_.push_back(&job);
  } else {
    workers_.submit(&job);
  }
}

bool Carrier::is_own_job(const Job& job) const {
  // One short call moves up to four pages: inline for a single request, and on workers if many wait
  // (docs/decisions/own-jobs.md). Other calls may take long.
  constexpr JobStep kOut = kWithdraw | kWithdrawTo, kIn = kRestore | kRestoreFrom;
  constexpr JobStep kCalls = ~(kHash | kVerify | kPopulate | kClear | kOut | kIn | kInsert |
                               kMergePages | kEmpty | kSpread | kPack | kMeasure);
  if ((job.steps & kIn) != 0 && job.tier->has_locked_pages(job.frame)) {
    return false;
  }
  if (job.steps == kRestore && own_jobs_.empty() &&
      job.tier->space().restores_at_once(job.frame, job.at)) {
    return true;
  }
  const bool moves = (job.steps & (kOut | kIn | kInsert | kEmpty)) != 0;
  const FrameId leaves = (job.steps & kWithdrawTo) != 0 ? job.other : job.frame;
  const unsigned most_moves = options_.workers_move && requests_ > 1 ? 0 : 6;
  return job.bytes <= options_.own_job_bytes && (job.steps & kCalls) == 0 &&
         (!moves || own_jobs_.size() < most_moves) &&
         ((job.steps & kOut) == 0 || !job.tier->space().withdraws_slowly(leaves)) &&
         ((job.steps & kPopulate) == 0 ||
          (job.tier->space().host_addressable() && !job.tier->needs_populate(job.frame)));
}

std::size_t Carrier::take_drops(std::span<std::uint32_t> numbers) {
  const std::size_t taken = std::min(drops_.size(), numbers.size());
  for (std::size_t i = 0; i < taken; ++i) {
    numbers[i] = drops_.front();
    drops_.pop_front();
  }
  return taken;
}

Job* Carrier::run_own_job(std::uint64_t& done) {
  constexpr std::uint64_t kMost = std::uint64_t{512} << 10;
  if (own_jobs_.empty() || done >= kMost) {
    return nullptr;
  }
  Job& job = *own_jobs_.front();
  own_jobs_.pop_front();
  done += job.bytes + (job.bytes < kMost / 64 ? kMost / 64 - job.bytes : 0);
  begin_job(job, nullptr);
  (void)run_job(job);  // Copies of opaque memory are none of these.
  return &job;
}

bool Carrier::unmapped(Transfer& transfer) {
  if (transfer.job.status.ok()) {
    unmap_backoff_.worked();
    return true;
  }
  free_nothing(transfer);  // Until the kernel is willing others make room.
  unmaps_.push_back(transfer.job.transfer);
  unmap_backoff_.failed(now_);
  return false;
}

void Carrier::retry_unmaps() {
  if (unmaps_.empty() || !unmap_backoff_.over(now_)) {
    return;
  }
  for (const std::uint32_t number : std::exchange(unmaps_, {})) {
    submit(*heads_[number], kUnmap);
  }
}

void Carrier::extent_changed(ExtentRef ref, unsigned space, Status error, Ended::Failed failed) {
  if (directory_.at(ref).waiters != 0) {
    ended_.add({.ref = ref,
                .space = static_cast<std::uint8_t>(space),
                .failed = failed,
                .error = std::move(error)});
  }
}

void Carrier::copy_begun(ExtentRef ref, unsigned space) {
  if (directory_.at(ref).waiters != 0) {
    ended_.add({.ref = ref, .space = static_cast<std::uint8_t>(space), .begun = true});
  }
}

std::int64_t Carrier::next(std::int64_t now) const {
  if (!own_jobs_.empty() || !drops_.empty()) {
    return now;
  }
  std::int64_t next = std::min(ended_.next(now), unmaps_.empty() ? kNever : unmap_backoff_.until());
  for (const SlotTiers::Entry& slots : slots_) {
    next = std::min(next, slots.channel.next(now));
  }
  return next;
}

std::string Carrier::check() const {
  if (free_.size() + live_ != records_.size()) {
    return fmt::format("{} records of transfers: {} live, {} free", records_.size(), live_,
                       free_.size());
  }
  unsigned live = 0, prefetches = 0;
  std::string wrong;
  each([&](const Transfer& transfer) {
    ++live;
    prefetches += transfer.prefetch ? 1 : 0;
    const bool by_page = transfer.kind == Transfer::Kind::promote_parts ||
                         transfer.kind == Transfer::Kind::demote_parts ||
                         transfer.kind == Transfer::Kind::empty;
    if (by_page != (transfer.pages != 0) && transfer.kind != Transfer::Kind::evict) {
      wrong = fmt::format("a {} moves pages {:#x}", kind_name(transfer.kind), transfer.pages);
    }
  });
  if (!wrong.empty()) {
    return wrong;
  }
  if (live != live_) {
    return fmt::format("{} transfers live, {} counted", live, live_);
  }
  if (prefetches != prefetches_) {
    return fmt::format("{} prefetches are under way, and {} counted", prefetches, prefetches_);
  }
  if (!next_.empty()) {
    return "the engine has not taken what comes next";
  }
  wrong = check_channels();
  return wrong.empty() ? check_bounce() : wrong;
}

// Compares the channels with the transfers: which are queued, and which are at a slot tier.
std::string Carrier::check_channels() const {
  std::vector<bool> queued(heads_.size(), false);
  for (const SlotTiers::Entry& slots : slots_) {
    std::string wrong;
    slots.channel.each_queued([&](std::uint32_t number) {
      const auto* const gather = if_is<Gather>(heads_[number]);
      if (heads_[number] == nullptr || queued[number] ||
          (gather != nullptr && gather->request == nullptr)) {
        wrong = fmt::format("transfer {} is queued twice, or does not exist", number);
      }
      queued[number] = true;
    });
    Channel::InFlight found;
    each([&](const Transfer& transfer) {
      if (transfer.slot_tier != &slots) {
        return;
      }
      if (const auto* const gather = if_is<Gather>(&transfer)) {
        found.weight += gather->weight;
        found.reads += gather->open;
      } else if (transfer.at_device) {
        const Channel::Load load = load_of(transfer);
        found.weight += Channel::weight(load.bytes);
        found.reads += load.writes ? 0 : 1;
        found.background_bytes += load.priority > Priority::room ? load.bytes : 0;
      }
    });
    if (wrong.empty()) {
      wrong = slots.channel.check(found);
    }
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return {};
}

// Compares the bounce memory with the transfers and extents that use it.
std::string Carrier::check_bounce() const {
  Bounce::Use use;
  each([&](const Transfer& transfer) {
    use.staging_bytes +=
        transfer.staging ? bounce_.bytes_of_place(directory_.bytes_of(transfer.ref)) : 0;
    if (transfer.bounce) {
      use.places.push_back(transfer.bounce);
    }
  });
  for (ExtentRef ref = 0; ref < residency_.buffers.used_extents(); ++ref) {
    use.partial += directory_.at(ref).parts != 0 ? 1 : 0;
  }
  return bounce_.check(use);
}

}  // namespace tiermem
