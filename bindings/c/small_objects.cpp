// C: objects by pointer.
#include "checks.hpp"
#include "runtime/context_impl.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

/// Allocates from the magazines of the thread. Returns false if the other way is needed, also for
/// arguments that are wrong.
bool take_kept(tm_context* context, tm_place place, std::uint64_t bytes, std::uint64_t alignment,
               void** out) noexcept {
  if (context == nullptr || out == nullptr) {
    return false;
  }
  void* const kept =
      PlacedMemory::take_kept(&context->context->impl(), c_abi::place(place), bytes, alignment);
  if (kept != nullptr) [[likely]] {
    *out = kept;
  }
  return kept != nullptr;
}

/// Checks what all functions that allocate have in common, and stores the object in `out`.
template <typename Allocate>
tm_status allocate(const char* call, tm_context* context, tm_place place, void** out,
                   Allocate&& object) {
  if (tm_status bad = check_not_null(call, context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null(call, out, "out")) {
    return bad;
  }
  if (tm_status bad = check_place(call, "place", place)) {
    return bad;
  }
  return guarded([&]() -> Status {
    Result<void*> block = object(*context->context, c_abi::place(place));
    if (!block.ok()) {
      return std::move(block).status();
    }
    *out = *block;
    return {};
  });
}

}  // namespace

extern "C" tm_status tm_malloc(tm_context* context, tm_place place, uint64_t bytes, void** out) {
  if (take_kept(context, place, bytes, 16, out)) [[likely]] {
    return TM_OK;
  }
  return allocate("malloc", context, place, out,
                  [&](Context& c, Place at) { return c.malloc_at(at, bytes); });
}

extern "C" tm_status tm_malloc_aligned(tm_context* context, tm_place place, uint64_t bytes,
                                       uint64_t alignment, void** out) {
  return allocate("malloc", context, place, out,
                  [&](Context& c, Place at) { return c.malloc_at(at, bytes, alignment); });
}

extern "C" tm_status tm_calloc(tm_context* context, tm_place place, uint64_t count, uint64_t bytes,
                               void** out) {
  return allocate("calloc", context, place, out,
                  [&](Context& c, Place at) { return c.calloc_at(at, count, bytes); });
}

extern "C" tm_status tm_realloc(tm_context* context, tm_place place, void* pointer, uint64_t bytes,
                                void** out) {
  return allocate("realloc", context, place, out,
                  [&](Context& c, Place at) { return c.realloc_at(at, pointer, bytes); });
}

extern "C" tm_status tm_free_ptr(tm_context* context, void* pointer) {
  if (context != nullptr && PlacedMemory::give_kept(&context->context->impl(), pointer))
      [[likely]] {
    return TM_OK;
  }
  if (tm_status bad = check_not_null("free_ptr", context, "context")) {
    return bad;
  }
  return guarded([&] { return context->context->free_ptr(pointer); });
}

extern "C" tm_status tm_free_ptr_after(tm_context* context, void* pointer, tm_stream after) {
  if (tm_status bad = check_not_null("free_ptr", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_stream("free_ptr", after)) {
    return bad;
  }
  return guarded([&] { return context->context->free_ptr(pointer, order(after)); });
}

extern "C" tm_status tm_usable_size(tm_context* context, const void* pointer, uint64_t* out) {
  if (tm_status bad = check_not_null("usable_size", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("usable_size", out, "out")) {
    return bad;
  }
  return guarded([&]() -> Status {
    Result<std::uint64_t> bytes = context->context->usable_size(pointer);
    if (!bytes.ok()) {
      return std::move(bytes).status();
    }
    *out = *bytes;
    return {};
  });
}
