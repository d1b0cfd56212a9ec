// Containers of the standard library larger than memory: a std::pmr::memory_resource over the
// buffers of a context. Not part of tiermem.hpp, as it throws what the standard asks for; nothing
// of it is in the shared library.
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

/// Each allocation is a buffer of its own, of at least a page: right for large blocks. For many
/// small ones put a std::pmr::synchronized_pool_resource or monotonic_buffer_resource before it,
/// which asks it for large blocks only; and where these are read at random, give smaller extents
/// than the default 2 MiB, which move whole.
///
/// The buffers are mapped: their bytes move and their addresses do not. Where the kernel has no
/// mapped buffers each is held by a view instead: then its bytes stay in DRAM, and all of them
/// must fit.
///
/// Allocations of 0 bytes get a page. What cannot be had is std::bad_alloc, and last_refusal() says
/// why. Any thread may call; the context must outlive the resource. What was not deallocated is
/// freed with it, as by the resources of the standard library.
class MemoryResource final : public std::pmr::memory_resource {
 public:
  /// `options` are those of every buffer; kMapped is added where it can be.
  explicit MemoryResource(Context& context, const BufferOptions& options = {})
      : context_(context), options_(options) {}
  MemoryResource(const MemoryResource&) = delete;
  MemoryResource& operator=(const MemoryResource&) = delete;
  ~MemoryResource() override = default;

  /// Of any thread's allocations; ok if none was refused.
  Status last_refusal() const {
    const std::lock_guard lock(mutex_);
    return refusal_.clone();
  }
  /// Allocations that were not deallocated yet.
  std::size_t live() const {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }

 private:
  struct Block {
    Buffer buffer;
    View view;  // Only of a buffer that is not mapped. Ends before the buffer.
  };

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    BufferOptions options = options_;
    options.flags |= kMapped;
    if (alignment > kPage) {
      options.alignment = std::bit_ceil(alignment);
      if (options.extent_bytes < options.alignment) {
        options.extent_bytes = options.alignment;
      }
    }
    const std::size_t size = bytes == 0 ? 1 : bytes;
    Block block;
    void* address = nullptr;
    auto made = context_.alloc(size, options);
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
    Block block;  // Freed after the lock.
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
  const BufferOptions options_;  // The label is not copied: the caller's string must live on.
  mutable std::mutex mutex_;     // Guards what follows.
  std::unordered_map<void*, Block> blocks_;
  Status refusal_;
};

}  // namespace tiermem
