// Filling homes, and making them whole.
#include "tier/home_pages.hpp"

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "base/results.hpp"

namespace tiermem {

Status HomePages::open() {
  if (facts_.mapped != Mechanism::uffd_move) {
    return {};
  }
  auto huge = Nursery::create(userfault_, facts_.huge_pages);
  auto small = Nursery::create(userfault_, false);
  if (!huge.ok() || !small.ok()) {
    return huge.ok() ? std::move(small).status() : std::move(huge).status();
  }
  huge_nursery_ = std::move(*huge);
  small_nursery_ = std::move(*small);
  return {};
}

HomeOptions HomePages::options_of(Pool pool, std::uint64_t bytes,
                                  const host::NodePages* node) const {
  HomeOptions homes;
  homes.node = node;
  homes.huge = facts_.huge_pages && bytes >= host::kHugePage;
  // A child that follows the fork has no buffer with such frames.
  homes.inherited = pool == Pool::locked && !follow_forks_;
  homes.viewed = pool == Pool::locked;
  if (pool != Pool::locked) {
    const Mechanism mechanism = facts_.mechanism_of(pool);
    homes.memory = mechanism != Mechanism::in_place;
    homes.registered_with = mechanism == Mechanism::uffd_move ? &userfault_ : nullptr;
  }
  return homes;
}

Result<bool> HomePages::fill(const FramePool& of, std::byte* address, const host::NodePages* node) {
  const bool huge = of.homes().huge;
  std::uint64_t got = 0;
  const host::NodePreference preference(node);
  if (of.homes().registered_with != nullptr) {
    Nursery& nursery = of.bytes() >= host::kHugePage ? *huge_nursery_ : *small_nursery_;
    auto filled = nursery.fill(address, of.bytes(), huge && require_huge_);
    if (!filled.ok()) {
      return std::move(filled).status();
    }
    got = filled->huge;
  } else {
    auto brought = bring_pages(address, of.bytes(), huge, huge && require_huge_);
    if (!brought.ok()) {
      return std::move(brought).status();
    }
    got = *brought;
  }
  settle_on(node, address, of.bytes());
  counters_.populated += 1;
  counters_.populated_bytes += of.bytes();
  if (huge) {
    counters_.huge_asked += of.bytes() / host::kHugePage;
    counters_.huge_got += got;
  }
  return huge && got == of.bytes() / host::kHugePage;
}

void HomePages::settle_on(const host::NodePages* node, std::byte* address, std::uint64_t bytes) {
  if (node == nullptr || node->sample(address, bytes) == 0) {
    return;
  }
  const host::NodePages::Brought brought = node->bring(address, bytes);
  counters_.pages_brought += brought.moved;
  counters_.pages_misplaced += brought.stayed;
  if (brought.stayed != 0) {
    best_effort(host::populate(address, bytes), "a touch brings the page");
  }
  if (brought.stayed != 0 && !told_of_nodes_.exchange(true)) {
    log_warn(
        "node {} has no room for its budget: new memory of it came from another node ({}); "
        "lower the budget, or free memory on the node",
        node->node(), std::strerror(brought.error));
  }
}

void HomePages::add_cuts(Frame& frame, unsigned cuts) {
  const auto most = static_cast<std::uint8_t>(std::min(cuts, 255U));
  if (most > frame.cuts) {
    mapper_.cut(most - frame.cuts);
    frame.cuts = most;
  }
}

bool HomePages::mend(const FramePool& of, std::uint32_t index, bool always) {
  Frame& frame = of.frame(index);
  if (frame.cuts == 0 || !(always || mapper_.many_cuts()) || of.renew(index) != 0) {
    return false;
  }
  mapper_.mended(frame.cuts);
  frame.cuts = 0;
  return true;
}

Status HomePages::follow_fork() {
  for (Nursery* nursery : {huge_nursery_.get(), small_nursery_.get()}) {
    if (Status again = nursery == nullptr ? Status() : nursery->follow_fork(); !again.ok()) {
      return again;
    }
  }
  return {};
}

}  // namespace tiermem
