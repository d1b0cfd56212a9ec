// Which bytes stay, and which are read next.
#include "plan.hpp"

#include <algorithm>

namespace tiermem::ggml {
namespace {

constexpr std::uint64_t kSlack = 5;  // Extents.

}  // namespace

Plan::Plan(const Gguf& file, tm_context* context, tm_buffer buffer, std::uint64_t file_bytes,
           const Limits& limits)
    : file_(file),
      context_(context),
      buffer_(buffer),
      bytes_(file_bytes),
      unit_(limits.extent_bytes),
      ahead_limit_(limits.ahead_bytes),
      routed_limit_(limits.budget_bytes / 4),
      streamed_((file_bytes + limits.extent_bytes - 1) / limits.extent_bytes, false),
      whole_(file.entries.size(), true),
      seen_(file.entries.size(), false),
      chosen_(file.experts, false) {
  for (std::size_t i = 0; i < file.entries.size(); ++i) {
    const Entry& entry = file.entries[i];
    if (entry.layer) {
      layers_.resize(std::max<std::size_t>(layers_.size(), *entry.layer + 1));
      layers_[*entry.layer].push_back(i);
      expert_bytes_ += entry.bytes;
      whole_[i] = false;
    }
  }
  for (std::vector<std::size_t>& layer : layers_) {  // `down` is used after the others.
    std::stable_partition(layer.begin(), layer.end(), [&](std::size_t i) {
      return file.entries[i].name.find("_down_") == std::string::npos;
    });
  }
  // With a matrix of its own for the output, the embedding is used by rows.
  const auto embedding = file.by_name.find("token_embd.weight");
  if (embedding != file.by_name.end() && file.by_name.count("output.weight") != 0) {
    whole_[embedding->second] = false;
  }
  if (file_bytes > limits.budget_bytes) {
    choose_kept(limits);
  }
}

void Plan::choose_kept(const Limits& limits) {
  std::vector<bool> whole(streamed_.size(), false);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < file_.entries.size(); ++i) {
    const Entry& entry = file_.entries[i];
    if (!whole_[i] || entry.bytes == 0) {
      continue;
    }
    for (std::uint64_t at = entry.offset / unit_; at <= (entry.offset + entry.bytes - 1) / unit_;
         ++at) {
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
    advise(at, 1, stays ? TM_KEEP : TM_STREAMED, stays ? 1 : 0);
  }
}

void Plan::advise(std::uint32_t first, std::uint32_t count, std::uint32_t advice,
                  std::uint64_t value) const {
  const std::uint64_t begin = first * unit_, end = std::min(bytes_, (first + count) * unit_);
  const tm_access range{buffer_, begin, end - begin, TM_READ, {}, 0};
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
  const Entry& entry = file_.entries[number];
  const auto last = static_cast<std::uint32_t>((entry.offset + entry.bytes - 1) / unit_);
  for (auto at = static_cast<std::uint32_t>(entry.offset / unit_); at <= last; ++at) {
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
  return whole_[number] && file_.entries[number].bytes > ahead_limit_ / 2;
}

void Plan::computed_but(std::size_t number, std::uint64_t bytes) {
  const Entry& entry = file_.entries[number];
  const std::uint64_t first = entry.offset / unit_, reached = (entry.offset + bytes) / unit_;
  // From the end: the extents of the tensor that it has not left yet.
  std::uint64_t done = next_cycle_.size();
  while (done > 0 && next_cycle_[done - 1] >= std::max(first, reached) &&
         next_cycle_[done - 1] <= (entry.offset + entry.bytes - 1) / unit_) {
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
    const std::uint64_t begin = cycle_[asked_ % cycle_.size()] * unit_;
    const std::uint64_t length = std::min(unit_, bytes_ - begin);
    if (!ranges_.empty() && ranges_.back().offset + ranges_.back().length == begin) {
      ranges_.back().length += length;
    } else {
      ranges_.push_back({buffer_, begin, length, TM_READ, {}, 0});
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
    const Entry& entry = file_.entries[i];
    const std::uint64_t part = entry.bytes / chosen_.size();
    for (std::size_t id = 0; id < chosen_.size() && part <= room; ++id) {
      if (chosen_[id]) {
        ranges_.push_back({buffer_, entry.offset + id * part, part, TM_READ, {}, 0});
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
