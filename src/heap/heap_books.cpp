// The accounting of a heap, its derivation from the blocks for tests, and its fork handling.
#include <bit>

#include "heap/heap.hpp"

namespace tiermem::heap {

HeapBooks Heap::books() {
  HeapBooks all;
  for (unsigned i = 0; i < options_.shards; ++i) {
    const std::lock_guard lock(shards_[i].mutex);
    all.used += shards_[i].books.used;
    all.held += shards_[i].books.held;
  }
  return all;
}

void Heap::before_fork() {
  for (unsigned i = 0; i < options_.shards; ++i) {
    shards_[i].mutex.lock();
  }
}

void Heap::after_fork() {
  for (unsigned i = 0; i < options_.shards; ++i) {
    shards_[i].mutex.unlock();
  }
}

bool Heap::test_consistent() {
  bool good = true;
  for (unsigned i = 0; i < options_.shards; ++i) {
    Shard& shard = shards_[i];
    const std::lock_guard lock(shard.mutex);
    HeapBooks found;
    for (const std::unique_ptr<Chunk>& chunk : shard.records) {
      found.held += chunk->piece.bytes;
      if (!chunk->pages.has_value()) {
        found.used += chunk->piece.bytes;
        good = good && (chunk->live == 1) == (chunk->piece.begin != nullptr);
        continue;
      }
      const Chunk::Pages& pages = *chunk->pages;
      std::uint32_t live = 0;
      for (std::uint32_t page = 0; page < pages.runs.pages(); ++page) {
        const Slab* const slab = pages.slabs[page];
        live += pages.block[page] != 0 ? 1 : 0;
        found.used += pages.block[page] * kPage;
        good = good && (slab == nullptr || (pages.runs.is_taken(page) && pages.block[page] == 0));
        if (slab != nullptr && slab->first_page == page) {
          std::uint32_t free = 0;
          for (const std::uint64_t word : slab->free_bits) {
            free += static_cast<std::uint32_t>(std::popcount(word));
          }
          good = good && free == slab->free;
          live += slab->blocks - free;
          found.used += std::uint64_t{slab->blocks - free} * slab->block_bytes;
        }
      }
      const unsigned list = std::bit_width(pages.runs.longest());
      good = good && live == chunk->live && chunk->list == list &&
             (live != 0 || shard.idle == chunk.get());
    }
    good = good && found.used == shard.books.used && found.held == shard.books.held;
  }
  return good;
}

}  // namespace tiermem::heap
