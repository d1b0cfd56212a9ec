// What hands do with a DRAM frame: bring its pages, clear it, put it into a window and take it out;
// and the windows themselves, for any thread. A frame belongs to one hand at a time; of a slab
// chunk the pages are brought under a mutex, since its frames may be in several hands.
#include <cassert>

#include "base/error.hpp"
#include "tier/dram.hpp"

namespace tiermem {

Result<bool> DramTier::bring(const FramePool& of, std::byte* address) {
  const bool huge = of.homes().huge;
  std::uint64_t got = 0;
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
  counters_.populated += 1;
  counters_.populated_bytes += of.bytes();
  if (huge) {
    counters_.huge_asked += of.bytes() / host::kHugePage;
    counters_.huge_got += got;
  }
  return huge && got == of.bytes() / host::kHugePage;
}

Status DramTier::populate(FrameId id, bool clear, std::byte* at) {
  const Parts parts = unpack(id);
  if (is_slab(parts)) {
    return populate_slab(parts, clear);
  }
  const FramePool& of = pool(parts);
  if (!of.homes().memory) {
    // Fresh pages, in the window itself: without this whoever reads into them waits for the
    // kernel's zeros.
    return at != nullptr ? bring(of, at).status() : Status();
  }
  Frame& frame = of.frame(parts.index);
  assert(frame.at == nullptr);
  std::byte* const home = of.home(parts.index);
  if (!frame.pages) {
    auto all_huge = bring(of, home);
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

// Small pages are gathered into a huge one where they are: a home is whole, so its registration is
// no obstacle.
void DramTier::repair(Frame& frame, std::byte* home, std::uint64_t bytes) {
  frame.split = false;
  frame.huge = host::advise(home, bytes, host::Advise::collapse) == 0;
  counters_.repaired += frame.huge ? 1 : 0;
}

// What became of a frame that was mapped or unmapped.
void DramTier::settle(Frame& frame, std::byte* at, const MapResult& result) {
  frame.at = result.end == MapEnd::window ? at : nullptr;
  if (result.end == MapEnd::dropped) {
    frame.pages = false;
    frame.split = false;
  } else if (frame.huge && !result.huge) {
    frame.split = true;
    counters_.split += 1;
  }
  frame.huge = result.huge;
}

Status DramTier::populate_slab(const Parts& parts, bool clear) {
  const SlabPool& of = slab(parts);
  SlabChunk& chunk = of.chunk(parts.index);
  if (!chunk.pages.load()) {
    const std::lock_guard lock(slab_pages_mutex_);
    if (!chunk.pages.load()) {
      const FramePool& chunks = pool(Parts{Pool::locked, kLog2Chunk, 0});
      auto brought = bring(chunks, chunks.home(of.chunk_of(parts.index)));
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

// Windows.

Pool DramTier::window_pool(std::uint64_t extent_bytes) const {
  return extent_bytes >= host::kHugePage ? Pool::movable : Pool::small;
}

Result<std::byte*> DramTier::reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                            bool mapped) {
  const bool huge = extent_bytes >= host::kHugePage;
  if (mapped && (huge ? facts_.windows : facts_.small_windows) != Mechanism::uffd_move) {
    return fail(
        Code::unsupported,
        "a mapped buffer needs userfaultfd with UFFDIO_MOVE (Linux 6.8; a container's seccomp "
        "profile may refuse it): {}",
        facts_.move_reason[0] != '\0' ? facts_.move_reason : "another mechanism was asked for");
  }
  Arenas& arenas = mapped ? mapped_ : windows_;
  // A large mapped window begins at a huge page whatever its extents are: the preload library tells
  // blocks of their own by that.
  const std::uint64_t alignment =
      mapped && bytes >= host::kHugePage ? std::max(extent_bytes, host::kHugePage) : extent_bytes;
  return (huge ? arenas.huge : arenas.small).reserve(bytes, alignment);
}

void DramTier::release_window(std::byte* window, std::uint64_t) {
  for (WindowArena* arena : {&windows_.huge, &windows_.small, &mapped_.huge, &mapped_.small}) {
    const std::uint64_t bytes = arena->size_of(window);
    if (bytes == 0) {
      continue;
    }
    mapper_.forget(window, bytes);
    host::drop(window, bytes);
    const bool small = arena == &windows_.small || arena == &mapped_.small;
    if ((small ? facts_.small_windows : facts_.windows) == Mechanism::uffd_move) {
      userfault_.wake(window, bytes);
    }
    arena->release(window);
    return;
  }
}

std::byte* DramTier::landing(FrameId frame, std::byte* at) const {
  const Parts parts = unpack(frame);
  if (is_slab(parts)) {
    return slab(parts).home(parts.index);
  }
  const FramePool& of = pool(parts);
  return of.homes().memory ? of.home(parts.index) : at;
}

Status DramTier::map(FrameId id, std::byte* at, Mechanism& used) {
  used = Mechanism::in_place;
  if (at == nullptr) {
    return {};
  }
  const Parts parts = unpack(id);
  if (parts.pool == Pool::locked) {
    return fail(Code::internal, "a locked frame never appears in a window");
  }
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (frame.at != nullptr || (of.homes().memory && !frame.pages)) {
    return fail(Code::internal, "a frame that is {} cannot be mapped",
                frame.at != nullptr ? "in a window already" : "fresh");
  }
  MapResult result =
      mapper_.in(mechanism_of(parts.pool), {of.home(parts.index), at, of.bytes(), frame.huge});
  used = result.used;
  settle(frame, at, result);
  return std::move(result.status);
}

Status DramTier::unmap(FrameId id, std::byte* at) {
  const Parts parts = unpack(id);
  if (at == nullptr || parts.pool == Pool::locked) {
    return {};
  }
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (of.homes().memory && frame.at == nullptr) {
    return {};
  }
  assert(frame.at == nullptr || frame.at == at);
  MapResult result =
      mapper_.out(mechanism_of(parts.pool), {of.home(parts.index), at, of.bytes(), frame.huge});
  settle(frame, at, result);
  return std::move(result.status);
}

Status DramTier::withdraw(FrameId id, std::byte* at) {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (frame.at != at || mechanism_of(parts.pool) != Mechanism::uffd_move) {
    return fail(Code::internal, "a frame cannot be withdrawn from a window that it is not in");
  }
  MapResult result = mapper_.withdraw(
      {of.home(parts.index), at, of.bytes(), frame.huge, frame.forks != forks_.load()});
  settle(frame, at, result);
  return std::move(result.status);
}

bool DramTier::withdraws_slowly(FrameId id) const {
  const Parts parts = unpack(id);
  return pool(parts).frame(parts.index).forks != forks_.load();
}

Status DramTier::restore(FrameId id, std::byte* at) {
  const Parts parts = unpack(id);
  const FramePool& of = pool(parts);
  Frame& frame = of.frame(parts.index);
  if (frame.at != nullptr || !frame.pages || mechanism_of(parts.pool) != Mechanism::uffd_move) {
    return fail(Code::internal, "a frame that is {} cannot appear in a mapped window",
                frame.at != nullptr ? "in a window already" : "fresh");
  }
  frame.forks = forks_.load();  // Before: a fork in between is one more.
  const MapResult result = mapper_.restore({of.home(parts.index), at, of.bytes(), frame.huge});
  settle(frame, at, result);
  return {};
}

}  // namespace tiermem
