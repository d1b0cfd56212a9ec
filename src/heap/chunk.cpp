// Slabs: a bit and a byte for each block.
#include "heap/chunk.hpp"

#include <algorithm>
#include <new>

namespace tiermem::heap {
namespace {

std::uint32_t blocks_of(unsigned size_class) {
  return slab_pages(size_class) * static_cast<std::uint32_t>(kPage) / class_bytes(size_class);
}

std::size_t record_bytes(unsigned size_class) {
  const std::size_t blocks = blocks_of(size_class);
  return sizeof(Slab) + (blocks + 7) / 8 * 8 + (blocks + 63) / 64 * 8;
}

}  // namespace

Slab::Slab(unsigned its_class)
    : inverse(static_cast<std::uint32_t>((std::uint64_t{1} << 32) / class_bytes(its_class) + 1)),
      block_bytes(class_bytes(its_class)),
      blocks(blocks_of(its_class)),
      size_class(its_class) {
  for (std::uint32_t i = 0; i < blocks; ++i) {
    new (&out()[i]) std::atomic<std::uint8_t>(0);
  }
  std::fill_n(bits(), words(), std::uint64_t{0});
}

Slab* Slab::make(unsigned size_class) {
  void* const memory = arena_allocate(record_bytes(size_class));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return new (memory) Slab(size_class);
}

void Slab::destroy(Slab* slab) noexcept {
  arena_free(slab, record_bytes(slab->size_class));
}

void Slab::begin_at(Chunk& its_chunk, std::uint32_t its_first_page, std::byte* its_begin) {
  chunk = &its_chunk;
  first_page = its_first_page;
  free = blocks;
  for (std::uint32_t i = 0; i < blocks; i += 64) {
    const std::uint32_t in_word = std::min(64u, blocks - i);
    bits()[i / 64] = ~std::uint64_t{0} >> (64 - in_word);
  }
  begin.store(its_begin, std::memory_order_release);
}

std::uint32_t Slab::take(KeptBlock* to, std::uint32_t n) {
  std::byte* const from = begin.load(std::memory_order_relaxed);
  const std::uint32_t taken = std::min(n, free);
  std::uint32_t word = 0;
  for (std::uint32_t i = 0; i < taken; ++i) {
    while (bits()[word] == 0) {
      ++word;
    }
    const std::uint32_t index =
        word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits()[word]));
    bits()[word] &= bits()[word] - 1;
    to[i] = {from + std::size_t{index} * block_bytes, &out()[index]};
  }
  free -= taken;
  return taken;
}

void Slab::put_back(std::span<const KeptBlock> blocks_of_it) {
  for (const KeptBlock& block : blocks_of_it) {
    const auto index = static_cast<std::uint32_t>(block.out - out());
    bits()[index / 64] |= std::uint64_t{1} << (index % 64);
  }
  free += static_cast<std::uint32_t>(blocks_of_it.size());
}

}  // namespace tiermem::heap
