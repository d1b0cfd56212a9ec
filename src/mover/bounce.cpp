// Areas and staging: taking, granting and returning them.
#include "mover/bounce.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "residency/buffers.hpp"

namespace tiermem {
namespace {

// Enough for touches, and for a scan at the rate of a fast device.
constexpr std::uint64_t kAreasMax = 8;
constexpr std::uint64_t kAreasForScans = 64;
// The wish for more has ended when this many places were given back without it.
constexpr unsigned kPlacesAfterScan = 4096;

// The pages of a place begin at a multiple of their number, which is a power of two.
PageMask group_mask(unsigned pages) {
  return static_cast<PageMask>((std::uint64_t{1} << std::bit_ceil(pages)) - 1);
}

}  // namespace

void Bounce::attach(MemoryLedger& host, bool with_devices) {
  host_ = &host;
  if (!with_devices) {
    return;
  }
  for (std::uint64_t n = options_.staging_bytes / options_.staging_frame_bytes; n > 0; --n) {
    const FrameId frame =
        host.tier->acquire_frame({Pool::locked, options_.staging_frame_bytes, kOwnDomain});
    if (!frame.valid()) {
      return;
    }
    staging_.add(frame, host.tier->space().bytes_at(frame, nullptr));
  }
}

// ---- Areas

bool Bounce::any_ready() const {
  return std::any_of(areas_.begin(), areas_.end(), [](const Area& area) { return area.ready; });
}

// A few hundredths of the memory, taken before it is full.
std::uint64_t Bounce::areas_for_budget(std::uint64_t least) const {
  const std::uint64_t budget = host_->tier->usage().budget;
  return std::clamp(budget / options_.budget_per_area, least, scans_ ? kAreasForScans : kAreasMax);
}

void Bounce::prepare() {
  if (budget_changes_ && queue_.empty()) {
    return;
  }
  const std::uint64_t wanted = areas_for_budget(queue_.empty() ? 0 : 1);
  while (areas_.size() < wanted) {
    const FrameId frame =
        host_->tier->acquire_frame({Pool::small, options_.area_bytes, kOwnDomain});
    if (!frame.valid()) {
      return;
    }
    Area& area = areas_.emplace_back();
    area.frame = frame;
    populate(area);
  }
}

void Bounce::populate(Area& area) {
  area.job = Job{};
  area.job.transfer = ~std::uint32_t{0};
  area.job.steps = kPopulate;
  area.job.tier = host_->tier;
  area.job.frame = area.frame;
  area.populating = true;
  ++jobs_;
  workers_.submit(&area.job);
}

std::uint64_t Bounce::restore() {
  if (!areas_.empty() || (queue_.empty() && !lost_areas_)) {
    return 0;
  }
  lost_areas_ = false;
  prepare();
  return areas_.empty() && !queue_.empty() ? options_.area_bytes : 0;
}

bool Bounce::job_done(const Job& job, std::int64_t now) {
  const auto area = std::find_if(areas_.begin(), areas_.end(),
                                 [&](const Area& each) { return &each.job == &job; });
  if (area == areas_.end()) {
    return false;
  }
  --jobs_;
  area->populating = false;
  area->ready = job.status.ok();
  area->data = job.tier->space().bytes_at(area->frame, nullptr);
  freed_ = freed_ || area->ready;
  area->ready ? populate_backoff_.worked() : populate_backoff_.failed(now);
  return true;
}

void Bounce::retry_areas(std::int64_t now) {
  for (Area& area : areas_) {
    if (area.unpopulated() && populate_backoff_.over(now)) {
      populate(area);
    }
  }
}

void Bounce::shrink() {
  const bool idle = std::all_of(areas_.begin(), areas_.end(),
                                [](const Area& area) { return area.ready && area.used == 0; });
  idle&& partial_ == 0 ? return_all() : trim();
}

// Returns the areas that a larger budget had, if they are free. A place names its area by position,
// so only the last areas can go. A used one goes when its transfers have ended.
void Bounce::trim() {
  const std::uint64_t wanted = areas_for_budget(1);
  while (areas_.size() > wanted && areas_.back().ready && areas_.back().used == 0) {
    host_->give_frame(areas_.back().frame, options_.area_bytes);
    areas_.pop_back();
  }
}

void Bounce::lose_areas() {
  lost_areas_ = !areas_.empty();
  return_all();
}

void Bounce::return_all() {
  for (const Area& area : areas_) {
    host_->give_frame(area.frame, options_.area_bytes);
  }
  areas_.clear();
}

Bounce::Place Bounce::find(unsigned pages) const {
  const unsigned group = std::bit_ceil(pages);
  const PageMask mask = group_mask(pages);
  const auto area_pages = static_cast<unsigned>(options_.area_bytes / kSmallestExtent);
  for (std::uint32_t i = 0; i < areas_.size(); ++i) {
    for (unsigned first = 0; areas_[i].ready && first < area_pages; first += group) {
      if ((areas_[i].used & mask << first) == 0) {
        return {i + 1, first, mask << first};
      }
    }
  }
  return {};
}

void Bounce::wish_more() {
  scans_ = true;
  since_wish_ = 0;
}

// A transfer never passes one that waits, which would starve if it needs many pages.
Bounce::Place Bounce::take(std::uint32_t transfer, unsigned pages) {
  const Place place = queue_.empty() ? find(pages) : Place{};
  if (place) {
    areas_[place.area - 1].used |= place.pages;
  } else {
    queue_.push_back({transfer, pages});
  }
  return place;
}

void Bounce::give(const Place& place) {
  areas_[place.area - 1].used &= ~place.pages;
  freed_ = true;
  scans_ = scans_ && ++since_wish_ <= kPlacesAfterScan;
  if (queue_.empty()) {
    trim();
  }
}

std::optional<Bounce::Grant<Bounce::Place>> Bounce::grant() {
  const Place place = queue_.empty() ? Place{} : find(queue_.front().pages);
  freed_ = freed_ && place;
  if (!place) {
    return {};
  }
  areas_[place.area - 1].used |= place.pages;
  const std::uint32_t transfer = queue_.front().transfer;
  queue_.pop_front();
  return Grant<Place>{transfer, place};
}

// ---- Staging

Staging::Place Bounce::take_staging(std::uint32_t transfer, std::uint64_t bytes) {
  const Staging::Place place = staging_queue_.empty() ? staging_.take(bytes) : Staging::Place();
  if (!place) {
    staging_queue_.push_back({transfer, bytes});
  }
  return place;
}

void Bounce::give_staging(Staging::Place place, std::uint64_t bytes) {
  staging_.give(place, bytes);
  freed_staging_ = true;
}

std::int64_t Bounce::next(std::int64_t now) const {
  const bool grants = (freed_ && !queue_.empty()) || (freed_staging_ && !staging_queue_.empty());
  if (grants) {
    return now;
  }
  const bool retries = std::any_of(areas_.begin(), areas_.end(),
                                   [](const Area& area) { return area.unpopulated(); });
  return retries ? populate_backoff_.until() : kNever;
}

std::optional<Bounce::Grant<Staging::Place>> Bounce::grant_staging() {
  const Staging::Place place =
      staging_queue_.empty() ? Staging::Place() : staging_.take(staging_queue_.front().bytes);
  freed_staging_ = freed_staging_ && place;
  if (!place) {
    return {};
  }
  const std::uint32_t transfer = staging_queue_.front().transfer;
  staging_queue_.pop_front();
  return Grant<Staging::Place>{transfer, place};
}

std::string Bounce::check(const Use& found) const {
  if (found.staging_bytes != staging_.taken()) {
    return fmt::format("transfers have {} bytes of the staging, and {} are taken",
                       found.staging_bytes, staging_.taken());
  }
  Vector<PageMask> used(areas_.size());
  for (const Place& place : found.places) {
    if (place.area > areas_.size() || (used[place.area - 1] & place.pages) != 0) {
      return fmt::format("pages {:#x} of area {} have two transfers, or no area", place.pages,
                         place.area);
    }
    used[place.area - 1] |= place.pages;
  }
  unsigned jobs = 0;
  for (std::size_t i = 0; i < areas_.size(); ++i) {
    jobs += areas_[i].populating ? 1 : 0;
    if (areas_[i].used != used[i] || (!areas_[i].ready && used[i] != 0)) {
      return fmt::format("pages {:#x} of area {} are used, and {:#x} taken", used[i], i + 1,
                         areas_[i].used);
    }
  }
  if (jobs != jobs_) {
    return fmt::format("{} areas are being populated, and {} counted", jobs, jobs_);
  }
  if (!queue_.empty() && find(queue_.front().pages)) {
    return fmt::format("transfer {} waits for an area, and there is one", queue_.front().transfer);
  }
  if (found.partial != partial_) {
    return fmt::format("{} extents are partial, and {} counted", found.partial, partial_);
  }
  return {};
}

}  // namespace tiermem
