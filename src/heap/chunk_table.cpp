// The table of addresses. All-zero memory is an empty table.
#include "heap/chunk_table.hpp"

#include <new>

namespace tiermem::heap {

// A table is small, and addresses arrive in any order, so all of it is made writable at once.
ChunkTable::Leaf::Leaf() {
  if (!chunks.commit(chunks.size())) {
    throw std::bad_alloc();
  }
}

ChunkTable::ChunkTable() : leaves_(kLeaves) {
  if (!leaves_.commit(kLeaves)) {
    throw std::bad_alloc();
  }
}

ChunkTable::~ChunkTable() {
  for (std::uint64_t i = 0; i < kLeaves; ++i) {
    delete leaves_[i].load(std::memory_order_relaxed);
  }
}

bool ChunkTable::enter(const std::byte* begin, std::uint64_t bytes, Chunk* chunk) {
  const std::uint64_t first = reinterpret_cast<std::uintptr_t>(begin) >> kGranuleBits;
  const std::uint64_t end = first + (bytes + kGranule - 1) / kGranule;
  if ((end - 1) >> kLeafBits >= kLeaves) {
    return false;
  }
  for (std::uint64_t leaf = first >> kLeafBits; leaf <= (end - 1) >> kLeafBits; ++leaf) {
    const std::lock_guard lock(mutex_);
    if (leaves_[leaf].load(std::memory_order_relaxed) == nullptr) {
      try {
        leaves_[leaf].store(new Leaf, std::memory_order_release);
      } catch (const std::bad_alloc&) {
        return false;
      }
    }
  }
  for (std::uint64_t granule = first; granule < end; ++granule) {
    slot(granule)->store(chunk, std::memory_order_release);
  }
  return true;
}

void ChunkTable::remove(const std::byte* begin, std::uint64_t bytes) {
  const std::uint64_t first = reinterpret_cast<std::uintptr_t>(begin) >> kGranuleBits;
  for (std::uint64_t at = first; at < first + (bytes + kGranule - 1) / kGranule; ++at) {
    slot(at)->store(nullptr, std::memory_order_release);
  }
}

}  // namespace tiermem::heap
