// Which bytes stay, and which are read next.
#include "plan.hpp"

#include <algorithm>
#include <numeric>

namespace tiermem::ggml {
namespace {

constexpr std::uint64_t kSlack = 5;  // Extents.

}  // namespace

Plan::Plan(const Gguf& model, tm_context* context, std::span<const Part> parts,
           const Limits& limits)
    : model_(model),
      context_(context),
      parts_(parts),
      unit_(limits.extent_bytes),
      ahead_limit_(limits.ahead_bytes),
      routed_limit_(limits.budget_bytes / 4),
      streamed_((parts.back().begin + parts.back().bytes + unit_ - 1) / unit_, false),
      whole_(model.entries.size(), true),
      seen_(model.entries.size(), false),
      chosen_(model.experts, false) {
  for (std::size_t i = 0; i < model.entries.size(); ++i) {
    const Entry& entry = model.entries[i];
    if (entry.layer) {
      layers_.resize(std::max<std::size_t>(layers_.size(), *entry.layer + 1));
      layers_[*entry.layer].push_back(i);
      expert_bytes_ += entry.bytes;
      whole_[i] = false;
    }
  }
  for (std::vector<std::size_t>& layer : layers_) {  // `down` is used after the others.
    std::stable_partition(layer.begin(), layer.end(), [&](std::size_t i) {
      return model.entries[i].name.find("_down_") == std::string::npos;
    });
  }
  // With a matrix of its own for the output, the embedding is used by rows.
  const auto embedding = model.by_name.find("token_embd.weight");
  if (embedding != model.by_name.end() && model.by_name.count("output.weight") != 0) {
    whole_[embedding->second] = false;
  }
  const std::uint64_t bytes =
      std::accumulate(parts.begin(), parts.end(), std::uint64_t{0},
                      [](std::uint64_t sum, const Part& part) { return sum + part.bytes; });
  if (bytes > limits.budget_bytes) {
    choose_kept(limits);
  }
}

void Plan::choose_kept(const Limits& limits) {
  std::vector<bool> whole(streamed_.size(), false);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < model_.entries.size(); ++i) {
    const Entry& entry = model_.entries[i];
    if (!whole_[i] || entry.bytes == 0) {
      continue;
    }
    for (std::uint64_t at = begin_of(entry) / unit_;
         at <= (begin_of(entry) + entry.bytes - 1) / unit_; ++at) {
      count += whole[at] ? 0 : 1;
      whole[at] = true;
    }
  }
  // Experts need the rest of the memory. Streamed extents need room for those ahead, for those in
  // use, and for frames in transit from one use to the next.
  const std::uint64_t budget = limits.budget_bytes / unit_;
  const std::uint64_t moving =
      expert_bytes_ != 0 ? budget / 2 : ahead_limit_ * 3 / 2 / unit_ + kSlack;
  const std::uint64_t kept = std::min(count, budget - std::min(budget, moving));
  // Every kept extent is followed by (count - kept) / kept streamed ones: Bresenham's line.
  std::uint64_t sum = 0;
  for (std::uint32_t at = 0; at < streamed_.size(); ++at) {
    if (!whole[at]) {
      continue;
    }
    sum += kept;
    const bool stays = sum >= count;
    sum -= stays ? count : 0;
    streamed_[at] = !stays;
    streamed_extents_ += stays ? 0 : 1;
    kept_bytes_ += stays ? unit_ : 0;
    advise(at, stays ? TM_KEEP : TM_STREAMED, stays ? 1 : 0);
  }
}

tm_access Plan::extent_at(std::uint64_t position) const {
  const auto behind =
      std::upper_bound(parts_.begin(), parts_.end(), position,
                       [](std::uint64_t sought, const Part& part) { return sought < part.begin; });
  const Part& part = behind[-1];
  const std::uint64_t offset = position - part.begin;
  return {part.buffer, offset, std::min(unit_, part.bytes - offset), TM_READ, {}, 0};
}

void Plan::advise(std::uint64_t extent, std::uint32_t advice, std::uint64_t value) const {
  const tm_access range = extent_at(extent * unit_);
  (void)tm_advise(context_, &range, 1, advice, value);  // Only a hint.
}

bool Plan::will_use(std::size_t number) {
  if (!whole_[number]) {
    return false;
  }
  if (seen_[number]) {  // The next evaluation has begun.
    std::swap(cycle_, next_cycle_);
    next_cycle_.clear();
    std::fill(seen_.begin(), seen_.end(), false);
    asked_ -= std::min<std::uint64_t>(asked_, cycle_.size());
    done_ = 0;
  }
  seen_[number] = true;
  const Entry& entry = model_.entries[number];
  const auto last = static_cast<std::uint32_t>((begin_of(entry) + entry.bytes - 1) / unit_);
  for (auto at = static_cast<std::uint32_t>(begin_of(entry) / unit_); at <= last; ++at) {
    if (streamed_[at] && (next_cycle_.empty() || next_cycle_.back() != at)) {
      next_cycle_.push_back(at);
      ++since_report_;
    }
  }
  return since_report_ * unit_ >= ahead_limit_ / 4;
}

void Plan::computed() {
  since_report_ = 0;
  done_ = next_cycle_.size();
  read_ahead();
}

bool Plan::is_large(std::size_t number) const {
  return whole_[number] && model_.entries[number].bytes > ahead_limit_ / 2;
}

void Plan::computed_but(std::size_t number, std::uint64_t bytes) {
  const Entry& entry = model_.entries[number];
  const std::uint64_t begin = begin_of(entry);
  const std::uint64_t first = begin / unit_, reached = (begin + bytes) / unit_;
  // From the end: the extents of the tensor that it has not left yet.
  std::uint64_t done = next_cycle_.size();
  while (done > 0 && next_cycle_[done - 1] >= std::max(first, reached) &&
         next_cycle_[done - 1] <= (begin + entry.bytes - 1) / unit_) {
    --done;
  }
  if (done > done_) {
    done_ = done;
    read_ahead();
  }
}

// Prefetches the extents behind the computed ones, up to the limit. The last evaluation tells which
// ones they are; after its end it begins anew.
void Plan::read_ahead() {
  if (cycle_.empty()) {
    return;
  }
  asked_ = std::max(asked_, done_);
  const std::uint64_t until = done_ + ahead_limit_ / unit_;
  ranges_.clear();
  for (; asked_ < until; ++asked_) {
    const tm_access extent = extent_at(cycle_[asked_ % cycle_.size()] * unit_);
    tm_access* const last = ranges_.empty() ? nullptr : &ranges_.back();
    if (last != nullptr && last->buffer == extent.buffer &&
        last->offset + last->length == extent.offset) {
      last->length += extent.length;
    } else {
      ranges_.push_back(extent);
    }
  }
  prefetch(ranges_);
}

void Plan::routed(std::uint32_t layer, std::span<const std::int32_t> ids) {
  std::fill(chosen_.begin(), chosen_.end(), false);
  for (const std::int32_t id : ids) {
    if (id >= 0 && static_cast<std::size_t>(id) < chosen_.size()) {
      chosen_[static_cast<std::size_t>(id)] = true;
    }
  }
  routed_ += static_cast<std::uint64_t>(std::count(chosen_.begin(), chosen_.end(), true));
  ranges_.clear();
  std::uint64_t room = routed_limit_;
  for (const std::size_t i : layers_[layer]) {
    const Entry& entry = model_.entries[i];
    const std::uint64_t part = entry.bytes / chosen_.size();
    for (std::size_t id = 0; id < chosen_.size() && part <= room; ++id) {
      if (chosen_[id]) {
        ranges_.push_back(
            {parts_[entry.file].buffer, entry.offset + id * part, part, TM_READ, {}, 0});
        room -= part;
      }
    }
  }
  prefetch(ranges_);
}

void Plan::prefetch(std::vector<tm_access>& ranges) {
  if (ranges.empty()) {
    return;
  }
  for (const tm_access& range : ranges) {
    ahead_ += range.length;
  }
  ++ahead_calls_;
  (void)tm_prefetch(context_, ranges.data(), ranges.size(), TM_SOON, nullptr);  // Only a hint.
}

}  // namespace tiermem::ggml
