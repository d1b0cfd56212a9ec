// Slabs: a bit for each block.
#include "heap/chunk.hpp"

#include <algorithm>

namespace tiermem::heap {

Slab::Slab(Chunk* of, std::uint32_t first, unsigned its_class)
    : chunk(of),
      first_page(first),
      size_class(its_class),
      block_bytes(class_bytes(its_class)),
      inverse(static_cast<std::uint32_t>((std::uint64_t{1} << 32) / block_bytes + 1)),
      blocks(slab_pages(its_class) * static_cast<std::uint32_t>(kPage) / block_bytes),
      free(blocks) {
  for (std::uint32_t i = 0; i < blocks; i += 64) {
    const std::uint32_t in_word = std::min(64u, blocks - i);
    free_bits[i / 64] = ~std::uint64_t{0} >> (64 - in_word);
  }
}

std::byte* Slab::take(std::byte* begin) {
  std::uint32_t word = 0;
  while (free_bits[word] == 0) {
    ++word;
  }
  const auto bit = static_cast<std::uint32_t>(std::countr_zero(free_bits[word]));
  free_bits[word] &= free_bits[word] - 1;
  --free;
  return begin + first_page * kPage + std::size_t{word * 64 + bit} * block_bytes;
}

void Slab::give_back(std::uint32_t index) {
  free_bits[index / 64] |= std::uint64_t{1} << (index % 64);
  ++free;
}

}  // namespace tiermem::heap
