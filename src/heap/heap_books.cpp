// The accounting of a heap, its derivation from the blocks for tests, and its fork handling.
#include <algorithm>
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
  // The sums are of different moments while threads allocate.
  all.used -= std::min(all.used, Magazines::bytes_in(*this));
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

void Heap::recover() {
  for (unsigned i = 0; i < options_.shards; ++i) {
    Shard& shard = shards_[i];
    for (std::size_t record = 0; record < shard.records.size(); ++record) {
      recover(shard, *shard.records[record]);
    }
  }
}

// A block that is neither free nor out is one that a thread kept.
void Heap::recover(Shard& shard, Chunk& chunk) {
  Piece done;
  {
    const std::lock_guard lock(shard.mutex);
    const std::uint32_t pages = chunk.pages.has_value() ? chunk.pages->runs.pages() : 0;
    for (std::uint32_t page = 0; page < pages && done.begin == nullptr; ++page) {
      Slab* const slab = chunk.slab_at(chunk.piece.begin + page * kPage);
      if (slab == nullptr || slab->first_page != page) {
        continue;
      }
      for (std::uint32_t index = 0; index < slab->blocks && done.begin == nullptr; ++index) {
        if (!slab->is_free(index) && !slab->is_out(index)) {
          const KeptBlock kept{nullptr, &slab->out()[index]};
          done = put_back(shard, *slab, {&kept, 1});
        }
      }
    }
  }
  if (done.begin != nullptr) {
    source_.give_back(done);
  }
}

bool Heap::test_consistent() {
  bool good = true;
  std::uint64_t kept = 0;
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
        const Slab* const slab = chunk->slab_at(chunk->piece.begin + page * kPage);
        live += pages.block[page] != 0 ? 1 : 0;
        found.used += pages.block[page] * kPage;
        good = good && (slab == nullptr || (pages.runs.is_taken(page) && pages.block[page] == 0));
        if (slab != nullptr && slab->first_page == page) {
          std::uint32_t free = 0;
          for (std::uint32_t index = 0; index < slab->blocks; ++index) {
            free += slab->is_free(index) ? 1 : 0;
            kept += slab->is_free(index) || slab->is_out(index) ? 0 : slab->block_bytes;
            good = good && !(slab->is_free(index) && slab->is_out(index));
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
  return good && kept == Magazines::bytes_in(*this);
}

}  // namespace tiermem::heap
