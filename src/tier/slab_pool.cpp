// Cuts chunks into frames.
#include "tier/slab_pool.hpp"

#include <algorithm>
#include <cassert>

namespace tiermem {
namespace {

// Max number of free slots that are searched for one with bytes of the domain. Clearing a small
// frame costs about a microsecond; a search of all 512 would cost as much.
constexpr std::size_t kLook = 16;

std::uint64_t common_tag(const SlabChunk& chunk) {
  std::uint64_t tag = kTagZero;
  for (const SlabSlot& slot : chunk.slots) {
    if (slot.tag == kTagZero || slot.tag == tag) {
      continue;
    }
    if (tag != kTagZero) {
      return kTagMixed;
    }
    tag = slot.tag;
  }
  return tag;
}

}  // namespace

SlabPool::SlabPool(std::uint64_t frame_bytes, FramePool& chunks)
    : frame_bytes_(frame_bytes),
      frames_in_chunk_(static_cast<std::uint32_t>(chunks.bytes() / frame_bytes)),
      chunks_(chunks) {}

void SlabPool::add(std::uint32_t chunk_index) {
  Frame& frame = chunks_.frame(chunk_index);
  auto chunk = std::make_unique<SlabChunk>();
  chunk->frame_bytes = frame_bytes_;
  chunk->pages.store(frame.pages);
  chunk->slots.resize(frames_in_chunk_);
  chunk->free.reserve(frames_in_chunk_);
  for (std::uint32_t i = frames_in_chunk_; i > 0; --i) {
    chunk->free.push_back(static_cast<std::uint16_t>(i - 1));
    chunk->slots[i - 1].tag = frame.pages ? frame.tag : kTagZero;
  }
  frame.slab = chunk.get();
  cut_[chunk_index] = std::move(chunk);
  with_room_.insert(chunk_index);
}

std::uint32_t SlabPool::take(std::uint64_t domain) {
  if (with_room_.empty()) {
    return kNoFrame;
  }
  const std::uint32_t chunk_index = *with_room_.begin();
  SlabChunk& chunk = *chunks_.frame(chunk_index).slab;
  Vector<std::uint16_t>& free = chunk.free;
  const std::size_t look = std::min(kLook, free.size());
  for (std::size_t back = 1; back <= look; ++back) {
    std::uint16_t& candidate = free[free.size() - back];
    if (chunk.slots[candidate].tag == domain) {
      std::swap(candidate, free.back());
      break;
    }
  }
  const std::uint16_t slot = free.back();
  free.pop_back();
  ++chunk.in_use;
  chunk.slots[slot].used = true;
  chunk.slots[slot].owner = domain;
  if (free.empty()) {
    with_room_.erase(chunk_index);
  }
  return chunk_index * frames_in_chunk_ + slot;
}

std::uint32_t SlabPool::give_back(std::uint32_t index) {
  const std::uint32_t chunk_index = chunk_of(index);
  Frame& frame = chunks_.frame(chunk_index);
  SlabChunk& chunk = *frame.slab;
  SlabSlot& slot = chunk.slots[index % frames_in_chunk_];
  assert(slot.used);
  slot.used = false;
  chunk.referenced = chunk.referenced || slot.referenced;
  chunk.free.push_back(static_cast<std::uint16_t>(index % frames_in_chunk_));
  with_room_.insert(chunk_index);
  if (--chunk.in_use > 0) {
    return kNoFrame;
  }
  frame.pages = chunk.pages.load();
  frame.tag = common_tag(chunk);
  frame.referenced = chunk.referenced;
  frame.slab = nullptr;
  with_room_.erase(chunk_index);
  cut_.erase(chunk_index);
  return chunk_index;
}

}  // namespace tiermem
