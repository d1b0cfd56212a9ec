// C: device memory in the form that frameworks load by name.
//
// Threads: any. One mutex guards the current context and the blocks; no call of a context is made
// under it, because a framework may allocate in a callback.
#include <mutex>
#include <utility>

#include "base/immortal.hpp"
#include "checks.hpp"
#include "runtime/in_call.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

std::mutex mutex;
using Blocks = Map<void*, tm_context*>;  // A record that was taken out is put back without memory.

// Guarded by the mutex. The current context, or null; and the context of each block. Both have a
// reference.
tm_context* current = nullptr;
Immortal<Blocks> blocks;

// Returns the context for the next block, with a reference. Null: it has ended, or there is none;
// the thread's last error says why.
tm_context* take_context() {
  {
    const std::lock_guard lock(mutex);
    if (current != nullptr) {
      return tm_context_retain(current) == TM_OK ? current : nullptr;
    }
  }
  tm_context* shared = nullptr;
  return tm_context_default(&shared) == TM_OK ? shared : nullptr;
}

}  // namespace

extern "C" tm_status tm_cuda_context(tm_context* context) {
  if (context != nullptr) {
    if (tm_status bad = tm_context_retain(context)) {
      return bad;
    }
    const tm_status bad = guarded([&] {
      const SlowCall call(*context->context);
      return call->usable_gpus("cuda_context");
    });
    if (bad != TM_OK) {
      (void)tm_context_release(context);
      return bad;
    }
  }
  tm_context* before = nullptr;
  {
    const std::lock_guard lock(mutex);
    before = std::exchange(current, context);
  }
  if (before != nullptr) {
    (void)tm_context_release(before);
  }
  return TM_OK;
}

extern "C" void* tm_cuda_malloc(int64_t bytes, int device, void*) {
  if (bytes == 0) {
    return nullptr;
  }
  if (bytes < 0 || device < 0 || device > 0xffff) {
    (void)refuse(Code::invalid_argument,
                 "cuda_malloc: {} bytes on GPU {}; accepted are 1 byte and more, and the numbers "
                 "of the option gpu",
                 bytes, device);
    return nullptr;
  }
  tm_context* const context = take_context();
  if (context == nullptr) {
    return nullptr;
  }
  void* block = nullptr;
  const tm_place place{TM_GPU, static_cast<std::uint16_t>(device)};
  if (tm_malloc(context, place, static_cast<std::uint64_t>(bytes), &block) == TM_OK) {
    const tm_status noted = guarded([&]() -> Status {
      const ArenaScope inside;
      const std::lock_guard lock(mutex);
      (*blocks)[block] = context;
      return {};
    });
    if (noted == TM_OK) {
      return block;
    }
    (void)tm_free_ptr(context, block);
    (void)refuse(Code::no_capacity, "cuda_malloc: no memory for the record of a block");
  }
  (void)tm_context_release(context);
  return nullptr;
}

extern "C" void tm_cuda_free(void* block, size_t, int, void* stream) {
  if (block == nullptr) {
    return;
  }
  Blocks::node_type record;
  {
    const ArenaScope inside;
    const std::lock_guard lock(mutex);
    record = blocks->extract(block);
  }
  if (record.empty()) {
    (void)refuse(Code::invalid_argument,
                 "cuda_free: {} was not allocated by cuda_malloc; free it where it was allocated",
                 block);
    return;
  }
  tm_context* const context = record.mapped();
  const tm_stream after{TM_STREAM_CUDA, 0, stream};
  const tm_status freed = tm_free_ptr_after(context, block, after);
  const ArenaScope inside;
  if (freed != TM_OK && freed != TM_SHUT_DOWN) {
    // The stream cannot be followed, so the device may still use the block.
    const std::lock_guard lock(mutex);
    blocks->insert(std::move(record));
    return;
  }
  record = {};
  (void)tm_context_release(context);
}
