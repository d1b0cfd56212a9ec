// The work of workers on the pages of a host memory: populate frames, clear them, page-lock them. A
// frame belongs to one worker at a time. A mutex guards the population of a slab chunk, because its
// frames may be with several workers.
#include <cassert>

#include "base/log.hpp"
#include "tier/host_memory.hpp"

namespace tiermem {

Status HostMemory::populate(FrameId id, bool clear, std::byte* at) {
  const Parts parts = unpack(id);
  if (is_slab(parts)) {
    return populate_slab(parts, clear);
  }
  const FramePool& of = pool(parts);
  if (!of.homes().memory) {
    // Populate the window itself: without this, a read into fresh pages waits until the kernel has
    // zeroed them.
    return at != nullptr ? homes_.fill(of, at, node()).status() : Status();
  }
  Frame& frame = of.frame(parts.index);
  assert(frame.at == nullptr);
  std::byte* const home = of.home(parts.index);
  if (!frame.pages) {
    auto all_huge = fill(of, home);
    if (!all_huge.ok()) {
      return std::move(all_huge).status();
    }
    frame.huge = *all_huge;
    frame.pages = true;
    frame.tag = kTagZero;
  }
  if (frame.split) {
    repair(frame, home, of.bytes());
  }
  if (frame.tag != kTagZero && (clear || frame.tag != frame.owner)) {
    host::clear(home, of.bytes());
    counters_.cleared_bytes += of.bytes();
  }
  frame.tag = frame.owner;
  return {};
}

// Returns true if all pages are huge.
Result<bool> HostMemory::fill(const FramePool& of, std::byte* home) {
  if (file_ == nullptr) {
    return homes_.fill(of, home, node());
  }
  if (Status filled = file_->fill(home, of.bytes()); !filled.ok()) {
    return filled;
  }
  counters_.populated += 1;
  counters_.populated_bytes += of.bytes();
  return false;
}

// Collects small pages into a huge one in place. A home has all its pages, so its registration does
// not prevent this.
void HostMemory::repair(Frame& frame, std::byte* home, std::uint64_t bytes) {
  frame.split = false;
  frame.huge = host::advise(home, bytes, host::Advise::collapse) == 0;
  counters_.repaired += frame.huge ? 1 : 0;
}

Status HostMemory::populate_slab(const Parts& parts, bool clear) {
  const SlabPool& of = slab(parts);
  SlabChunk& chunk = of.chunk(parts.index);
  if (!chunk.pages.load()) {
    const std::lock_guard lock(slab_pages_mutex_);
    if (!chunk.pages.load()) {
      const FramePool& chunks = pool(Parts{Pool::locked, kLog2Chunk, 0});
      auto brought = fill(chunks, chunks.home(of.chunk_of(parts.index)));
      if (!brought.ok()) {
        return std::move(brought).status();
      }
      chunk.pages.store(true);
    }
  }
  SlabSlot& slot = of.slot(parts.index);
  if (slot.tag != kTagZero && (clear || slot.tag != slot.owner)) {
    host::clear(of.home(parts.index), of.frame_bytes());
    counters_.cleared_bytes += of.frame_bytes();
  }
  slot.tag = slot.owner;
  return {};
}

// For a slab's frame, locks the whole chunk. A copy that arrives while a chunk is being locked uses
// memory that is not locked, and does not wait.
bool HostMemory::lock_pages(FrameId id) {
  if (locker_ == nullptr || file_ != nullptr) {
    return false;  // Pages of a file are not locked: their file system may refuse it.
  }
  if (node_ && node_->movable()) {
    if (!told_of_page_locks_.exchange(true)) {
      log_warn(
          "node {}: its pages are not locked for devices, because that would move them to "
          "another node; copies of such memory take the slower way",
          node_->node());
    }
    return false;
  }
  const Parts parts = unpack(id);
  const FramePool& of = is_slab(parts) ? pool(Parts{Pool::locked, kLog2Chunk, 0}) : pool(parts);
  const std::uint32_t index = is_slab(parts) ? slab(parts).chunk_of(parts.index) : parts.index;
  if (!of.homes().memory || of.frame(index).at != nullptr) {
    return false;  // It is in a window.
  }
  std::atomic<Frame::PageLock>& state = of.frame(index).page_lock;
  auto none = Frame::PageLock::none;
  if (!state.compare_exchange_strong(none, Frame::PageLock::taken)) {
    return none == Frame::PageLock::locked;
  }
  const Status locked = locker_->lock(of.home(index), of.bytes());
  state.store(locked.ok() ? Frame::PageLock::locked : Frame::PageLock::refused);
  if (!locked.ok() && !told_of_page_locks_.exchange(true)) {
    log_warn("{}; copies of such memory take the slower way", locked.message());
  }
  return locked.ok();
}

bool HostMemory::has_locked_pages(FrameId id) const {
  const Parts parts = unpack(id);
  return !is_slab(parts) &&
         pool(parts).frame(parts.index).page_lock.load() != Frame::PageLock::none;
}

void HostMemory::unlock_pages(const FramePool& of, std::uint32_t index) {
  if (of.frame(index).page_lock.exchange(Frame::PageLock::none) == Frame::PageLock::locked) {
    locker_->unlock(of.home(index));
  }
}

}  // namespace tiermem
