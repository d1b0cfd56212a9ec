// Allocation and freeing of blocks.
#include "heap/heap.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <new>
#include <span>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "os/memory_limits.hpp"

namespace tiermem::heap {
namespace {

template <typename Item>
void link(Item*& head, Item* item) {
  item->previous = nullptr;
  item->next = head;
  if (head != nullptr) {
    head->previous = item;
  }
  head = item;
}

template <typename Item>
void unlink(Item*& head, Item* item) {
  (item->previous != nullptr ? item->previous->next : head) = item->next;
  if (item->next != nullptr) {
    item->next->previous = item->previous;
  }
  item->previous = item->next = nullptr;
}

Status no_records() {
  constexpr std::uint64_t kRecords = std::uint64_t{1} << 20;  // The arena uses this many bytes.
  return host::refused(ENOMEM, kRecords, host::Wanted::memory, "malloc: the records of a heap");
}

}  // namespace

// ---- Allocating --------------------------------------------------------------------------------

Heap::Heap(Source& source, ChunkTable& table, const HeapOptions& options)
    : source_(source),
      table_(table),
      options_(options),
      shards_(std::make_unique<Shard[]>(options.shards)) {
  assert(std::has_single_bit(options.chunk_bytes) && options.chunk_bytes <= kMostPages * kPage &&
         options.chunk_bytes >= std::uint64_t{2} * slab_pages(kClasses - 1) * kPage);
}

Heap::~Heap() {
  end_magazines();
  for (unsigned i = 0; i < options_.shards; ++i) {
    for (const std::unique_ptr<Chunk>& chunk : shards_[i].records) {
      if (chunk->pages.has_value()) {
        for (std::uint32_t page = 0; page < chunk->pages->runs.pages(); ++page) {
          Slab* const slab = chunk->slab_at(chunk->piece.begin + page * kPage);
          if (slab != nullptr) {
            page += slab_pages(slab->size_class) - 1;
            Slab::destroy(slab);
          }
        }
      }
    }
    for (Slab* ended : shards_[i].ended) {
      while (ended != nullptr) {
        Slab::destroy(std::exchange(ended, ended->next));
      }
    }
  }
}

Heap::Want Heap::plan(std::uint64_t bytes, std::uint64_t align) const {
  Want want;
  want.size_class = aligned_class(bytes, align);
  if (want.size_class == kClasses) {
    const std::uint64_t rounded = round_up(bytes, kPage);
    if (rounded <= options_.chunk_bytes / 2 && align <= kPage) {
      want.pages = static_cast<std::uint32_t>(rounded / kPage);
    } else {
      want.large = std::max<std::uint64_t>(rounded, kPage);
      want.align = std::max(align, kGranule);
    }
  }
  return want;
}

Shard& Heap::home() noexcept {
  static std::atomic<unsigned> next{0};
  static __thread unsigned t_turn __attribute__((tls_model("initial-exec"))) = 0;  // + 1
  if (t_turn == 0) {
    t_turn = next.fetch_add(1, std::memory_order_relaxed) % 1024 + 1;
  }
  return shards_[(t_turn - 1) % options_.shards];
}

Result<void*> Heap::allocate(std::uint64_t bytes, std::uint64_t align) {
  const Want want = plan(bytes, align);
  if (want.large != 0) {
    Result<void*> block = allocate_large(want);
    if (block.code() == Code::no_capacity && give_back_kept()) {
      block = allocate_large(want);
    }
    return block;
  }
  if (want.size_class < kKeptClasses) {
    if (Magazines* const mine = Magazines::of_thread(*this)) {
      if (void* const block = allocate_batch(want.size_class, *mine)) [[likely]] {
        return block;
      }
    }
  }
  Shard& shard = home();
  try {
    {
      const std::lock_guard lock(shard.mutex);
      if (void* const block = take(shard, want)) [[likely]] {
        return block;
      }
    }
    Result<void*> block = allocate_in_new_chunk(want, shard);
    if (!block.ok() && block.code() == Code::no_capacity) {
      void* elsewhere = allocate_anywhere(want);
      if (elsewhere == nullptr) {
        (void)Magazines::empty_all(*this, Magazines::kNoLimit);
        elsewhere = allocate_anywhere(want);
      }
      if (elsewhere != nullptr) {
        return elsewhere;
      }
    }
    return block;
  } catch (const std::bad_alloc&) {
    return no_records();
  }
}

// Takes a block for the program, and more for the thread's magazine. Returns null if the shard has
// none.
void* Heap::allocate_batch(unsigned size_class, Magazines& mine) {
  // Calls that need an alignment come here although the magazine has blocks.
  if (void* const kept = mine.take(size_class, options_.owner)) {
    return kept;
  }
  Batch batch;
  {
    Shard& shard = home();
    const std::lock_guard lock(shard.mutex);
    batch.n = take_small(shard, size_class, batch.blocks.data(), magazine_blocks(size_class) / 2);
  }
  if (batch.n == 0) {
    return nullptr;
  }
  void* const block = batch.blocks[--batch.n].use();
  mine.fill(batch, size_class, options_.owner);
  (void)put_back(batch);  // Another thread has begun to empty the magazines.
  return block;
}

// If two threads find the shard full at once, both add a chunk; the one that stays without blocks
// is returned.
Result<void*> Heap::allocate_in_new_chunk(const Want& want, Shard& shard) {
  Result<Piece> piece = source_.take(options_.chunk_bytes, kGranule, false);
  if (!piece.ok()) {
    return std::move(piece).status();
  }
  void* block = nullptr;
  try {
    const std::lock_guard lock(shard.mutex);
    block = take(shard, want);
    if (Chunk* const chunk = block == nullptr ? add_record(shard, *piece) : nullptr) {
      try {
        chunk->pages.emplace(static_cast<std::uint32_t>(options_.chunk_bytes / kPage));
      } catch (const std::bad_alloc&) {
        (void)end_chunk(shard, *chunk);  // Otherwise the table would still name the chunk.
        throw;
      }
      chunk->list = std::bit_width(chunk->pages->runs.longest());
      link(shard.chunks[chunk->list], chunk);
      block = take(shard, want);
      if (block != nullptr) {
        return block;
      }
      // The slab's record could not be allocated: return the whole chunk.
      (void)end_chunk(shard, *chunk);
    }
  } catch (const std::bad_alloc&) {  // The allocation of the record failed.
  }
  source_.give_back(*piece);
  if (block != nullptr) {
    return block;
  }
  return no_records();
}

Result<void*> Heap::allocate_large(const Want& want) {
  Result<Piece> piece = source_.take(want.large, want.align, true);
  if (!piece.ok()) {
    return std::move(piece).status();
  }
  Shard& shard = home();
  try {
    const std::lock_guard lock(shard.mutex);
    if (Chunk* const chunk = add_record(shard, *piece)) {
      chunk->live = 1;
      shard.books.used += piece->bytes;
      return static_cast<void*>(piece->begin);
    }
  } catch (const std::bad_alloc&) {  // The allocation of the record failed.
  }
  source_.give_back(*piece);
  return no_records();
}

// As a last resort, takes memory from other threads' shards.
void* Heap::allocate_anywhere(const Want& want) {
  for (unsigned i = 0; i < options_.shards; ++i) {
    const std::lock_guard lock(shards_[i].mutex);
    if (void* const block = take(shards_[i], want)) {
      return block;
    }
  }
  return nullptr;
}

bool Heap::give_back_kept() {
  const bool gave = Magazines::empty_all(*this, Magazines::kNoLimit);
  return give_back_idle() || gave;
}

bool Heap::press(bool on) {
  constexpr std::int64_t kPatienceNs = 10'000'000;
  Magazines::allow(*this, !on);
  if (!on) {
    return false;
  }
  const bool gave = Magazines::empty_all(*this, kPatienceNs);
  return give_back_idle() || gave;
}

void Heap::end_magazines() {
  Magazines::allow(*this, false);
  (void)Magazines::empty_all(*this, Magazines::kNoLimit);
  Magazines::await_ending(*this);
}

// Returns false if there was none.
bool Heap::give_back_idle() {
  bool any = false;
  for (unsigned i = 0; i < options_.shards; ++i) {
    Shard& shard = shards_[i];
    Piece piece;
    {
      const std::lock_guard lock(shard.mutex);
      if (shard.idle == nullptr) {
        continue;
      }
      piece = end_chunk(shard, *shard.idle);
    }
    source_.give_back(piece);
    any = true;
  }
  return any;
}

// Returns null if the table cannot be allocated; throws if the record cannot be allocated.
Chunk* Heap::add_record(Shard& shard, const Piece& piece) {
  if (shard.spare == nullptr) {
    shard.records.push_back(std::make_unique<Chunk>(this, &shard));
    link(shard.spare, shard.records.back().get());
  }
  Chunk* const chunk = shard.spare;
  if (!table_.enter(piece.begin, entered(piece), chunk)) {
    return nullptr;
  }
  unlink(shard.spare, chunk);
  chunk->piece = piece;
  shard.books.held += piece.bytes;
  return chunk;
}

void* Heap::take(Shard& shard, const Want& want) {
  if (want.size_class != kClasses) {
    KeptBlock block;
    return take_small(shard, want.size_class, &block, 1) != 0 ? block.use() : nullptr;
  }
  Chunk* chunk = nullptr;
  std::byte* const block = take_run(shard, want.pages, chunk);
  if (block == nullptr) {
    return nullptr;
  }
  const auto first = static_cast<std::size_t>(block - chunk->piece.begin) / kPage;
  chunk->pages->block[first] = static_cast<std::uint16_t>(want.pages);
  begin_blocks(shard, *chunk, 1, want.pages * kPage);
  return block;
}

// Returns how many blocks there were, up to `n`. They are kept.
std::uint32_t Heap::take_small(Shard& shard, unsigned size_class, KeptBlock* to, std::uint32_t n) {
  std::uint32_t taken = 0;
  while (taken < n) {
    Slab* slab = shard.slabs[size_class];
    if (slab == nullptr) [[unlikely]] {
      slab = new_slab(shard, size_class);
      if (slab == nullptr) {
        break;
      }
    }
    const std::uint32_t from_slab = slab->take(to + taken, n - taken);
    taken += from_slab;
    begin_blocks(shard, *slab->chunk, from_slab, std::uint64_t{from_slab} * slab->block_bytes);
    if (slab->free == 0) {
      unlink(shard.slabs[size_class], slab);
    }
  }
  return taken;
}

void Heap::begin_blocks(Shard& shard, Chunk& chunk, std::uint32_t n, std::uint64_t bytes) {
  if (shard.idle == &chunk) {
    shard.idle = nullptr;
  }
  chunk.live += n;
  shard.books.used += bytes;
}

std::byte* Heap::take_run(Shard& shard, std::uint32_t pages, Chunk*& chunk) {
  for (unsigned list = std::bit_width(pages); list < kRunLists; ++list) {
    // Some chunks of the first list may be too small, so only a few are examined.
    unsigned looked = 0;
    for (Chunk* at = shard.chunks[list]; at != nullptr && looked < 8; at = at->next, ++looked) {
      const std::uint32_t first = at->pages->runs.take(pages);
      if (first != PageRuns::kNone) {
        relist(shard, *at);
        chunk = at;
        return at->piece.begin + first * kPage;
      }
    }
  }
  return nullptr;
}

Slab* Heap::new_slab(Shard& shard, unsigned size_class) {
  Chunk* chunk = nullptr;
  const std::byte* const run = take_run(shard, slab_pages(size_class), chunk);
  if (run == nullptr) {
    return nullptr;
  }
  const auto first = static_cast<std::uint32_t>((run - chunk->piece.begin) / kPage);
  Slab* slab = shard.ended[size_class];
  if (slab != nullptr) {
    shard.ended[size_class] = slab->next;
  } else {
    try {
      slab = Slab::make(size_class);
    } catch (const std::bad_alloc&) {
      end_run(shard, *chunk, first, slab_pages(size_class));
      return nullptr;
    }
  }
  slab->begin_at(*chunk, first, chunk->piece.begin + first * kPage);
  chunk->set_slab(first, slab_pages(size_class), slab);
  link(shard.slabs[size_class], slab);
  return slab;
}

void Heap::relist(Shard& shard, Chunk& chunk) {
  const unsigned list = std::bit_width(chunk.pages->runs.longest());
  if (list != chunk.list) {
    unlink(shard.chunks[chunk.list], &chunk);
    chunk.list = list;
    link(shard.chunks[list], &chunk);
  }
}

// ---- Freeing -----------------------------------------------------------------------------------

Found Heap::look(const Chunk& chunk, const void* address, Spot& spot) {
  const auto* const at = static_cast<const std::byte*>(address);
  const std::byte* const begin = chunk.piece.begin;
  if (begin == nullptr || at < begin || at >= begin + chunk.piece.bytes) {
    return Found::foreign;  // The memory was returned after the lookup in the table.
  }
  const auto offset = static_cast<std::uint64_t>(at - begin);
  if (!chunk.pages.has_value()) {
    spot.bytes = chunk.piece.bytes;
    return offset == 0 ? Found::block : Found::inside;
  }
  spot.page = static_cast<std::uint32_t>(offset / kPage);
  Slab* const slab = chunk.slab_at(address);
  if (slab == nullptr) {
    if (offset % kPage != 0) {
      return Found::inside;
    }
    spot.bytes = chunk.pages->block[spot.page] * kPage;
    return spot.bytes != 0                         ? Found::block
           : chunk.pages->runs.is_taken(spot.page) ? Found::inside
                                                   : Found::freed;
  }
  spot.slab = slab;
  spot.bytes = slab->block_bytes;
  const std::byte* from = nullptr;
  spot.index = slab->find(address, from);
  return spot.index == Slab::kNoBlock ? Found::inside
         : slab->is_out(spot.index)   ? Found::block
                                      : Found::freed;
}

Found Heap::measure(Chunk& chunk, const void* block, std::uint64_t& bytes) {
  const std::lock_guard lock(chunk.shard->mutex);
  Spot spot;
  const Found found = look(chunk, block, spot);
  bytes = spot.bytes;
  return found;
}

Found Heap::free(Chunk& chunk, void* block, std::uint64_t& bytes) {
  Shard& shard = *chunk.shard;
  Slab* slab = nullptr;
  KeptBlock kept;
  Piece done;
  {
    const std::lock_guard lock(shard.mutex);
    Spot spot;
    const Found found = look(chunk, block, spot);
    bytes = spot.bytes;
    if (found != Found::block) {
      return found;
    }
    slab = spot.slab;
    if (slab != nullptr) {
      // Another thread may free it at the same time, without the mutex.
      if (!slab->end_use(spot.index, slab->begin.load(std::memory_order_relaxed))) {
        return Found::freed;
      }
      kept = {static_cast<std::byte*>(block), &slab->out()[spot.index]};
    } else {
      shard.books.used -= spot.bytes;
      if (chunk.pages.has_value()) {
        chunk.pages->block[spot.page] = 0;
        end_run(shard, chunk, spot.page, static_cast<std::uint32_t>(spot.bytes / kPage));
      }
      done = end_blocks(shard, chunk, 1);
    }
  }
  if (slab != nullptr) {
    chunk.heap->keep(kept, slab->size_class);
  } else if (done.begin != nullptr) {
    chunk.heap->source_.give_back(done);
  }
  return Found::block;
}

// Keeps a block in the thread's magazine if it has one, otherwise frees it.
void Heap::keep(const KeptBlock& block, unsigned size_class) {
  Batch batch;
  Magazines* const mine = size_class < kKeptClasses ? Magazines::of_thread(*this) : nullptr;
  if (mine != nullptr) {
    mine->keep(block, size_class, options_.owner, batch);
  } else {
    batch.add(block);
  }
  (void)put_back(batch);
}

// Frees kept blocks. Returns whether a chunk went back to the source.
bool Heap::put_back(const Batch& batch) {
  bool gave = false;
  const std::span blocks = std::span(batch.blocks).first(batch.n);
  for (std::size_t i = 0; i < blocks.size();) {
    Piece done;
    {
      Chunk* chunk = table_.find(blocks[i].begin);
      Shard& shard = *chunk->shard;
      const std::lock_guard lock(shard.mutex);
      while (chunk != nullptr && chunk->shard == &shard && done.begin == nullptr) {
        Slab& slab = *chunk->slab_at(blocks[i].begin);
        // Neighbours in a magazine are mostly of one slab.
        std::size_t end = i + 1;
        while (end < blocks.size() && slab.has(blocks[end].out)) {
          ++end;
        }
        done = put_back(shard, slab, blocks.subspan(i, end - i));
        i = end;
        chunk = i < blocks.size() ? table_.find(blocks[i].begin) : nullptr;
      }
    }
    if (done.begin != nullptr) {
      source_.give_back(done);
      gave = true;
    }
  }
  return gave;
}

Piece Heap::put_back(Shard& shard, Slab& slab, std::span<const KeptBlock> blocks) {
  Chunk& chunk = *slab.chunk;
  const auto n = static_cast<std::uint32_t>(blocks.size());
  shard.books.used -= std::uint64_t{n} * slab.block_bytes;
  const bool was_full = slab.free == 0;
  slab.put_back(blocks);
  if (was_full) {
    link(shard.slabs[slab.size_class], &slab);
  }
  // A slab without blocks is kept while it is the only one of its class with room.
  if (slab.free == slab.blocks && (slab.previous != nullptr || slab.next != nullptr)) {
    end_slab(shard, slab);
  }
  return end_blocks(shard, chunk, n);
}

// `n` blocks of the chunk have ended. Returns the memory of the chunk if they were the last ones
// and the shard keeps another chunk; the caller returns it to the source.
Piece Heap::end_blocks(Shard& shard, Chunk& chunk, std::uint32_t n) {
  chunk.live -= n;
  if (chunk.live != 0) {
    return {};
  }
  if (chunk.pages.has_value() && shard.idle == nullptr) {
    shard.idle = &chunk;
    return {};
  }
  return end_chunk(shard, chunk);
}

void Heap::end_run(Shard& shard, Chunk& chunk, std::uint32_t first, std::uint32_t n) {
  chunk.pages->runs.give_back(first, n);
  relist(shard, chunk);
}

void Heap::end_slab(Shard& shard, Slab& slab) {
  Chunk& chunk = *slab.chunk;
  const std::uint32_t n = slab_pages(slab.size_class);
  unlink(shard.slabs[slab.size_class], &slab);
  chunk.set_slab(slab.first_page, n, nullptr);
  end_run(shard, chunk, slab.first_page, n);
  slab.next = shard.ended[slab.size_class];
  shard.ended[slab.size_class] = &slab;
}

// For a chunk without blocks. The record becomes spare, and the caller returns the memory.
Piece Heap::end_chunk(Shard& shard, Chunk& chunk) {
  if (chunk.pages.has_value()) {
    for (std::uint32_t page = 0; page < chunk.pages->runs.pages(); ++page) {
      if (Slab* const slab = chunk.slab_at(chunk.piece.begin + page * kPage)) {
        end_slab(shard, *slab);
      }
    }
    unlink(shard.chunks[chunk.list], &chunk);
    chunk.pages.reset();
  }
  if (shard.idle == &chunk) {
    shard.idle = nullptr;
  }
  const Piece piece = chunk.piece;
  chunk.piece = {};
  shard.books.held -= piece.bytes;
  // Remove it before the memory is returned: another chunk may get its addresses at once.
  chunk.heap->table_.remove(piece.begin, chunk.heap->entered(piece));
  link(shard.spare, &chunk);
  return piece;
}

}  // namespace tiermem::heap
