// Temporary views of a list. A list that fails half way must leave the caller's records unchanged,
// so the views are made here and copied to the caller on success. A short list uses the stack; a
// long one uses a block that the context keeps.
//
// Threads: any. A block belongs to one call at a time. A second long list at the same time
// allocates its own block.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>
#include <span>

#include "base/arena.hpp"
#include "tiermem/types.hpp"

namespace tiermem::c_abi {

/// The block that the long lists of a context share, one at a time.
class ScratchBlock {
 public:
  ScratchBlock() = default;
  ~ScratchBlock() { clear(); }
  void clear() noexcept { give(spare_.exchange(nullptr, std::memory_order_acq_rel)); }
  ScratchBlock(const ScratchBlock&) = delete;
  ScratchBlock& operator=(const ScratchBlock&) = delete;

 private:
  friend class ViewScratch;
  // Precedes the records in the block.
  struct alignas(16) Header {
    std::size_t bytes = 0;
  };
  static void give(Header* block) noexcept {
    if (block != nullptr) {
      arena_free(block, block->bytes);
    }
  }
  // The thread that exchanges the pointer to null owns the block. Acquire and release order
  // successive uses of its bytes.
  std::atomic<Header*> spare_{nullptr};
};

/// Uninitialised room for the views of one list.
class ViewScratch {
 public:
  static constexpr std::size_t kOnStack = 32;

  /// Throws std::bad_alloc if the block for a long list cannot be allocated.
  ViewScratch(ScratchBlock& blocks, std::size_t n) : blocks_(blocks), n_(n) {
    if (n > kOnStack) {
      take_block();
    }
  }
  ~ViewScratch() {
    if (block_ != nullptr) {
      ScratchBlock::give(blocks_.spare_.exchange(block_, std::memory_order_acq_rel));
    }
  }
  ViewScratch(const ViewScratch&) = delete;
  ViewScratch& operator=(const ViewScratch&) = delete;

  std::span<ViewRecord> views() noexcept {
    void* first = block_ != nullptr ? static_cast<void*>(block_ + 1) : static_cast<void*>(stack_);
    return {static_cast<ViewRecord*>(first), n_};
  }

 private:
  using Header = ScratchBlock::Header;

  void take_block() {
    if (n_ > (static_cast<std::size_t>(-1) / 2 - sizeof(Header)) / sizeof(ViewRecord)) {
      throw std::bad_alloc();
    }
    const std::size_t bytes = sizeof(Header) + n_ * sizeof(ViewRecord);
    block_ = blocks_.spare_.exchange(nullptr, std::memory_order_acq_rel);
    if (block_ != nullptr && block_->bytes >= bytes) {
      return;
    }
    ScratchBlock::give(block_);
    block_ = nullptr;
    void* fresh = arena_allocate(bytes);
    if (fresh == nullptr) {
      throw std::bad_alloc();
    }
    block_ = new (fresh) Header{bytes};
  }

  ScratchBlock& blocks_;
  const std::size_t n_;
  Header* block_ = nullptr;
  alignas(ViewRecord) std::byte stack_[kOnStack * sizeof(ViewRecord)];
};

}  // namespace tiermem::c_abi
