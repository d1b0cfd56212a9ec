// A std::pmr::memory_resource over the buffers of a context: standard containers larger than
// memory. tiermem.hpp does not include it, because it throws as the standard requires. It is
// header-only: the shared library has no part of it.
#pragma once

#include <bit>
#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "tiermem/context.hpp"

namespace tiermem {

/// Allocates one buffer of at least a page for each allocation, which suits large blocks. For many
/// small blocks, put a std::pmr::synchronized_pool_resource or monotonic_buffer_resource in front,
/// which asks this resource for large blocks only. If the small blocks are read at random, choose
/// extents smaller than the default of 2 MiB, because an extent moves as a whole.
///
/// The buffers are mapped: their bytes move and their addresses do not. Where the kernel does not
/// support mapped buffers, a view pins each buffer: its bytes stay in DRAM, so all of them must
/// fit.
///
/// An allocation of 0 bytes gets a page.
///
/// - Ownership: the context must outlive the resource. The destructor frees blocks that were not
///   deallocated, as the standard library's resources do.
/// - Threads: any.
/// - Errors: std::bad_alloc; last_refusal() returns the reason.
class MemoryResource final : public std::pmr::memory_resource {
 public:
  /// - `options`: the options of every buffer. kMapped is added where it is supported.
  explicit MemoryResource(Context& context, const BufferOptions& options = {})
      : context_(context), options_(options) {}
  MemoryResource(const MemoryResource&) = delete;
  MemoryResource& operator=(const MemoryResource&) = delete;
  ~MemoryResource() override = default;

  /// Returns why the last refused allocation of any thread failed, or ok if none was refused.
  Status last_refusal() const {
    const std::lock_guard lock(mutex_);
    return refusal_.clone();
  }
  /// Returns the number of allocations that have not been deallocated.
  std::size_t live() const {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }

 private:
  struct Block {
    Buffer buffer;
    View view;  // Only for a buffer that is not mapped. It ends before the buffer.
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    BufferOptions options = options_;
    options.flags |= kMapped;
    if (alignment > kPage) {
      options.alignment = std::bit_ceil(alignment);
    }
    const std::size_t size = bytes == 0 ? 1 : bytes;
    Block block;
    void* address = nullptr;
    auto made = context_.alloc(size, options);
    if (made.code() == Code::invalid_argument && options.extent_bytes < options.alignment) {
      options.extent_bytes = options.alignment;  // The extent was smaller than the alignment.
      made = context_.alloc(size, options);
    }
    if (made.ok()) {
      block.buffer = std::move(*made);
      auto mapped = block.buffer.address();
      if (!mapped.ok()) {
        refuse(std::move(mapped).status());
      }
      address = *mapped;
    } else if (made.code() == Code::unsupported) {
      options.flags &= ~static_cast<std::uint32_t>(kMapped);
      auto plain = context_.alloc(size, options);
      if (!plain.ok()) {
        refuse(std::move(plain).status());
      }
      block.buffer = std::move(*plain);
      auto view = block.buffer.acquire(kRead | kWrite, 0, 0, Timeout::seconds(10));
      if (!view.ok()) {
        refuse(std::move(view).status());
      }
      block.view = std::move(*view);
      address = block.view.data();
    } else {
      refuse(std::move(made).status());
    }
    const std::lock_guard lock(mutex_);
    blocks_.emplace(address, std::move(block));
    return address;
  }

  void do_deallocate(void* address, std::size_t, std::size_t) override {
    Block block;  // Freed after the lock is released.
    const std::lock_guard lock(mutex_);
    const auto at = blocks_.find(address);
    if (at != blocks_.end()) {
      block = std::move(at->second);
      blocks_.erase(at);
    }
  }

  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  [[noreturn]] void refuse(Status why) {
    {
      const std::lock_guard lock(mutex_);
      refusal_ = std::move(why);
    }
    throw std::bad_alloc();
  }

  static constexpr std::size_t kPage = 4096;

  Context& context_;
  const BufferOptions options_;  // The label is not copied: the caller keeps the string alive.
  mutable std::mutex mutex_;     // Guards the members below.
  std::unordered_map<void*, Block> blocks_;
  Status refusal_;
};

}  // namespace tiermem
