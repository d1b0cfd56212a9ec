// Small frames that never move: 2 MiB chunks cut into frames of 4 KiB to 1 MiB. A chunk is itself a
// frame of the locked 2 MiB pool. That pool therefore charges and caches chunks and returns them to
// the kernel; this file only cuts them. Only whole chunks are freed, never a part of a huge page.
//
// Threads: the mover's thread takes and returns frames. Workers read the slab of a frame that they
// hold, and write its slot's tag and `pages`.
//
//   chunk.in_use == number of slots with `used`;  a chunk with in_use == 0 does not exist.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/arena.hpp"
#include "tier/frame_pool.hpp"

namespace tiermem {

struct SlabSlot {
  std::uint64_t tag = kTagZero;  // [worker]
  std::uint64_t owner = 0;
  bool used = false;
  bool referenced = false;
};

struct SlabChunk : InArena {
  std::uint64_t frame_bytes = 0;
  std::uint32_t in_use = 0;
  bool referenced = false;  // One of its frames was referenced: the chunk is not for reuse.
  /// Set by the first worker that populates the chunk, read by all: the slots share one huge page.
  std::atomic<bool> pages{false};
  Vector<SlabSlot> slots;
  Vector<std::uint16_t> free;
};

/// The frames of one size. The index of a frame is chunk index × frames in a chunk + slot.
class SlabPool : public InArena {
 public:
  /// `chunks` is the locked pool of 2 MiB frames; it outlives this object.
  SlabPool(std::uint64_t frame_bytes, FramePool& chunks);

  /// Takes a slot of an existing chunk, or returns kNoFrame: the caller then calls add(). Slots
  /// with bytes of the domain are preferred. Otherwise the lowest chunk comes first, so that the
  /// others empty.
  std::uint32_t take(std::uint64_t domain);
  /// Cuts a chunk that the caller has acquired.
  void add(std::uint32_t chunk_index);
  /// Releases a slot. Returns its chunk if the chunk is empty now, else kNoFrame. The frame of a
  /// returned chunk has the tag and pages of its content, and belongs to the caller again.
  std::uint32_t give_back(std::uint32_t index);

  std::uint64_t frame_bytes() const { return frame_bytes_; }
  std::uint32_t chunk_of(std::uint32_t index) const { return index / frames_in_chunk_; }
  SlabChunk& chunk(std::uint32_t index) const { return *chunks_.frame(chunk_of(index)).slab; }
  SlabSlot& slot(std::uint32_t index) const { return chunk(index).slots[index % frames_in_chunk_]; }
  std::byte* home(std::uint32_t index) const {
    return chunks_.home(chunk_of(index)) + (index % frames_in_chunk_) * frame_bytes_;
  }

 private:
  const std::uint64_t frame_bytes_;
  const std::uint32_t frames_in_chunk_;
  FramePool& chunks_;
  HashMap<std::uint32_t, std::unique_ptr<SlabChunk>> cut_;
  Set<std::uint32_t> with_room_;
};

}  // namespace tiermem
