// Homes and lists of the frames of one size.
#include "tier/frame_pool.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/error.hpp"
#include "base/results.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kSegmentBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kLeastFrames = 8;  // Min frames of a segment.
// Homes are made accessible as frames are needed, because the kernel may charge for writable
// memory.
constexpr std::uint64_t kLeastOpened = std::uint64_t{2} << 20;
constexpr std::uint64_t kMostOpened = std::uint64_t{32} << 20;

}  // namespace

FramePool::Shelf::~Shelf() {
  for (std::atomic<Segment*>& segment : segments) {
    delete segment.load();
  }
}

FramePool::FramePool(std::uint64_t bytes, const HomeOptions& homes)
    : bytes_(bytes),
      segment_bytes_(std::max(bytes * kLeastFrames, kSegmentBytes)),
      frames_in_segment_(static_cast<std::uint32_t>(segment_bytes_ / bytes)),
      homes_(homes) {}

FramePool::Segment& FramePool::segment(std::uint32_t index) const {
  const std::uint32_t number = index / frames_in_segment_;
  // Acquire: partner of the releases in grow(). A worker that received the frame through a queue
  // would see them anyway; this keeps the rule local.
  const Shelf* const shelf = shelves_[number / 1024].load(std::memory_order_acquire);
  return *shelf->segments[number % 1024].load(std::memory_order_acquire);
}

Frame& FramePool::frame(std::uint32_t index) const {
  return segment(index).frames[index % frames_in_segment_];
}

std::byte* FramePool::home(std::uint32_t index) const {
  std::byte* const base = segment(index).range.data();
  return base == nullptr ? nullptr : base + (index % frames_in_segment_) * bytes_;
}

bool FramePool::grow() {
  // The last number is kNoFrame.
  if (segments_ / 1024 >= shelves_.size() ||
      (std::uint64_t{segments_} + 1) * frames_in_segment_ >= kNoFrame) {
    return false;
  }
  auto fresh = std::make_unique<Segment>();
  if (homes_.memory) {
    auto range = host::reserve({.bytes = segment_bytes_,
                                .alignment = home_alignment(),
                                .near = next_home_,
                                .accessible = false});
    if (!range.ok()) {
      return false;
    }
    if (dress(range->data(), segment_bytes_) != 0) {
      return false;
    }
    next_home_ = range->data() + segment_bytes_;
    fresh->range = std::move(*range);
  }
  fresh->frames = Vector<Frame>(frames_in_segment_);
  if (segments_ % 1024 == 0) {
    shelf_owner_.push_back(std::make_unique<Shelf>());
    shelves_[segments_ / 1024].store(shelf_owner_.back().get(), std::memory_order_release);
  }
  shelf_owner_.back()->segments[segments_ % 1024].store(fresh.release(), std::memory_order_release);
  ++segments_;
  return true;
}

// Opens as many bytes as are open already, within the newest segment, or one frame if the kernel
// refuses that.
bool FramePool::open_more() {
  const std::uint32_t end = segments_ * frames_in_segment_;
  if (!homes_.memory) {
    opened_ = end;
    return true;
  }
  const std::uint64_t wish = std::clamp(opened_ * bytes_, kLeastOpened, kMostOpened);
  const auto frames =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wish / bytes_, 1, end - opened_));
  for (const std::uint32_t some : {frames, std::uint32_t{1}}) {
    if (homes_.on_file || host::open_range(home(opened_), some * bytes_) == 0) {
      opened_ += some;
      return true;
    }
  }
  return false;
}

int FramePool::dress(std::byte* base, std::uint64_t bytes) const {
  if (homes_.on_file) {
    return 0;
  }
  // A refusal costs only speed, except for the last two.
  best_effort(host::advise(base, bytes, homes_.huge ? host::Advise::huge : host::Advise::no_huge),
              "the kernel's default decides");
  if (!homes_.viewed) {
    best_effort(host::advise(base, bytes, host::Advise::dont_dump), "a core dump is larger");
  }
  if (homes_.node != nullptr) {
    best_effort(homes_.node->prefer_for(base, bytes),
                "new pages are checked, but the kernel may move them later");
  }
  if (!homes_.inherited) {
    if (const int error = host::advise(base, bytes, host::Advise::dont_fork); error != 0) {
      return error;
    }
  }
  return homes_.registered_with == nullptr ? 0
                                           : homes_.registered_with->register_missing(base, bytes);
}

int FramePool::renew(std::uint32_t index) const {
  std::byte* const at = home(index);
  const int error = host::renew(at, bytes_);
  return error != 0 ? error : dress(at, bytes_);
}

void FramePool::close_homes() {
  for (std::uint32_t number = 0; homes_.viewed && number < segments_; ++number) {
    const host::AddressRange& range = segment(number * frames_in_segment_).range;
    host::close_again(range.data(), range.bytes());
  }
}

Status FramePool::follow_fork() {
  close_homes();
  for (std::uint32_t number = 0; homes_.memory && number < segments_; ++number) {
    assert(!homes_.inherited);
    host::AddressRange& range = segment(number * frames_in_segment_).range;
    if (Status again = host::reserve_again(range, home_alignment()); !again.ok()) {
      return again;
    }
    if (const int error = dress(range.data(), segment_bytes_); error != 0) {
      return fail_native(Code::unavailable, error, "homes of frames: {}", std::strerror(error));
    }
    for (std::uint32_t i = 0; i < frames_in_segment_; ++i) {
      frame(number * frames_in_segment_ + i).cuts = 0;
    }
  }
  return {};
}

std::uint32_t FramePool::take_cached(std::uint64_t domain) {
  std::uint32_t index = age_.oldest;
  if (const auto kin = kin_.find(domain); kin != kin_.end()) {
    index = kin->second.youngest;  // Its cache lines may still be in the processor's cache.
  }
  if (index != kNoFrame) {
    unlink(index);
    Frame& taken = frame(index);
    taken.state = Frame::State::in_use;
    taken.owner = domain;
  }
  return index;
}

std::uint32_t FramePool::take_fresh(std::uint64_t domain) {
  std::uint32_t index = kNoFrame;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    if ((used_once_ == segments_ * frames_in_segment_ && !grow()) ||
        (used_once_ == opened_ && !open_more())) {
      return kNoFrame;
    }
    index = used_once_++;
  }
  Frame& taken = frame(index);
  assert(taken.state == Frame::State::free && !taken.pages && taken.at == nullptr);
  taken.state = Frame::State::in_use;
  taken.owner = domain;
  return index;
}

void FramePool::cache(std::uint32_t index, std::uint64_t stamp) {
  Frame& kept = frame(index);
  assert(kept.at == nullptr && kept.pages && !kept.referenced);
  kept.state = Frame::State::cached;
  kept.stamp = stamp;
  link(index);
}

void FramePool::give_back(std::uint32_t index) {
  Frame& gone = frame(index);
  assert(gone.at == nullptr && !gone.pages);
  gone.state = Frame::State::free;
  gone.tag = kTagZero;
  gone.huge = false;
  gone.split = false;
  gone.referenced = false;
  free_.push_back(index);
}

std::uint32_t FramePool::take_coldest() {
  const std::uint32_t index = age_.oldest;
  if (index != kNoFrame) {
    unlink(index);
    frame(index).state = Frame::State::leaving;
  }
  return index;
}

void FramePool::link(std::uint32_t index) {
  Frame& added = frame(index);
  added.older = age_.youngest;
  added.younger = kNoFrame;
  (age_.youngest == kNoFrame ? age_.oldest : frame(age_.youngest).younger) = index;
  age_.youngest = index;

  List& kin = kin_[added.tag];
  added.kin_older = kin.youngest;
  added.kin_younger = kNoFrame;
  (kin.youngest == kNoFrame ? kin.oldest : frame(kin.youngest).kin_younger) = index;
  kin.youngest = index;
}

void FramePool::unlink(std::uint32_t index) {
  Frame& removed = frame(index);
  (removed.older == kNoFrame ? age_.oldest : frame(removed.older).younger) = removed.younger;
  (removed.younger == kNoFrame ? age_.youngest : frame(removed.younger).older) = removed.older;

  const auto kin = kin_.find(removed.tag);
  List& list = kin->second;
  (removed.kin_older == kNoFrame ? list.oldest : frame(removed.kin_older).kin_younger) =
      removed.kin_younger;
  (removed.kin_younger == kNoFrame ? list.youngest : frame(removed.kin_younger).kin_older) =
      removed.kin_older;
  if (list.oldest == kNoFrame) {
    kin_.erase(kin);
  }
}

bool FramePool::test_consistent() const {
  std::uint64_t cached = 0;
  std::uint64_t free = 0;
  for (std::uint32_t i = 0; i < used_once_; ++i) {
    const Frame& f = frame(i);
    cached += f.state == Frame::State::cached ? 1 : 0;
    free += f.state == Frame::State::free ? 1 : 0;
    if (f.state == Frame::State::free && (f.pages || f.at != nullptr || f.tag != kTagZero ||
                                          f.huge || f.split || f.referenced || f.in_parts)) {
      return false;
    }
  }
  std::uint64_t by_age = 0;
  for (std::uint32_t i = age_.oldest; i != kNoFrame; i = frame(i).younger) {
    ++by_age;
  }
  std::uint64_t by_kin = 0;
  for (const auto& [tag, list] : kin_) {
    for (std::uint32_t i = list.oldest; i != kNoFrame; i = frame(i).kin_younger) {
      if (frame(i).tag != tag) {
        return false;
      }
      ++by_kin;
    }
  }
  return cached == by_age && cached == by_kin && free == free_.size();
}

std::uint64_t FramePool::test_bytes(Frame::State state) const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < used_once_; ++i) {
    const Frame& f = frame(i);
    sum += f.state == state ? (f.in_parts ? f.charged * kSmallestExtent : bytes_) : 0;
  }
  return sum;
}

}  // namespace tiermem
