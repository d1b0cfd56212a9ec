// A source of heaps that counts and can refuse, and a heap over it.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "heap/heap.hpp"

namespace tiermem::heap {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;

/// Memory from the kernel at the requested alignment. Refuses to hold more than `limit` bytes, and
/// refuses the `refuse`th call from now.
class PlainSource : public Source {
 public:
  ~PlainSource() override { EXPECT_EQ(held, 0u) << "pieces were not given back"; }

  Result<Piece> take(std::uint64_t bytes, std::uint64_t align, bool) override {
    const std::lock_guard lock(mutex_);
    ++asked;
    EXPECT_EQ(bytes % kPage, 0u);
    if (held + bytes > limit || (refuse != 0 && --refuse == 0)) {
      return fail(Code::no_capacity, "the source has {} of {} bytes", held, limit);
    }
    void* const all = ::mmap(nullptr, bytes + align, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    Piece piece;
    const auto number = reinterpret_cast<std::uintptr_t>(all);
    piece.begin = reinterpret_cast<std::byte*>((number + align - 1) / align * align);
    piece.bytes = bytes;
    mappings_[piece.begin] = {all, bytes + align};
    held += bytes;
    return piece;
  }
  void give_back(const Piece& piece) override {
    const std::lock_guard lock(mutex_);
    const auto found = mappings_.find(piece.begin);
    ASSERT_NE(found, mappings_.end());
    ::munmap(found->second.first, found->second.second);
    mappings_.erase(found);
    held -= piece.bytes;
  }
  /// Unmaps the memory that a closed heap has left to its source.
  void end_all() {
    for (const auto& [begin, mapping] : mappings_) {
      ::munmap(mapping.first, mapping.second);
    }
    mappings_.clear();
    held = 0;
  }

  std::uint64_t held = 0, limit = ~std::uint64_t{0} / 2;
  unsigned refuse = 0, asked = 0;

 private:
  std::mutex mutex_;
  std::map<std::byte*, std::pair<void*, std::uint64_t>> mappings_;
};

struct Heaps : ::testing::Test {
  void make(HeapOptions options) { heap = std::make_unique<Heap>(source, table, options); }
  void SetUp() override { make({.chunk_bytes = 256 * kKiB, .shards = 1}); }
  void TearDown() override {
    EXPECT_TRUE(heap->test_consistent());
    heap->end_magazines();
    source.end_all();
  }
  void* allocate(std::uint64_t bytes, std::uint64_t align = kLeastAlign) {
    Result<void*> block = heap->allocate(bytes, align);
    EXPECT_TRUE(block.ok()) << block.message();
    return block.ok() ? *block : nullptr;
  }
  Found free(void* block) {
    Chunk* const chunk = table.find(block);
    std::uint64_t bytes = 0;
    return chunk == nullptr ? Found::foreign : Heap::free(*chunk, block, bytes);
  }
  std::uint64_t size_of(const void* block) {
    Chunk* const chunk = table.find(block);
    std::uint64_t bytes = 0;
    const Found found = chunk == nullptr ? Found::foreign : Heap::measure(*chunk, block, bytes);
    EXPECT_EQ(found, Found::block);
    return bytes;
  }
  PlainSource source;
  ChunkTable table;
  std::unique_ptr<Heap> heap;
};

}  // namespace tiermem::heap
