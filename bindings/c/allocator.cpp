// C: a table of functions for objects in one place.
#include <cerrno>

#include "checks.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/in_call.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

AllocatorState& state_of(void* state) {
  return *static_cast<AllocatorState*>(state);
}

/// Returns the object that `make` puts in its argument, or null with errno.
template <typename Make>
void* object(Make&& make) {
  void* made = nullptr;
  const tm_status status = make(&made);
  if (status != TM_OK) {
    errno = status == TM_INVALID_ARGUMENT ? EINVAL : ENOMEM;
  }
  return made;
}

void* allocate(void* state, std::size_t bytes) {
  AllocatorState& of = state_of(state);
  return object([&](void** out) { return tm_malloc(of.context, place(of.place), bytes, out); });
}

void* allocate_aligned(void* state, std::size_t alignment, std::size_t bytes) {
  AllocatorState& of = state_of(state);
  return object([&](void** out) {
    return tm_malloc_aligned(of.context, place(of.place), bytes, alignment, out);
  });
}

void* allocate_zeros(void* state, std::size_t count, std::size_t bytes) {
  AllocatorState& of = state_of(state);
  return object(
      [&](void** out) { return tm_calloc(of.context, place(of.place), count, bytes, out); });
}

void* reallocate(void* state, void* pointer, std::size_t bytes) {
  AllocatorState& of = state_of(state);
  return object(
      [&](void** out) { return tm_realloc(of.context, place(of.place), pointer, bytes, out); });
}

void release(void* state, void* pointer) {
  const int before = errno;  // As free() does.
  (void)tm_free_ptr(state_of(state).context, pointer);
  errno = before;
}

std::size_t usable(void* state, const void* pointer) {
  std::uint64_t bytes = 0;
  if (pointer != nullptr) {
    (void)tm_usable_size(state_of(state).context, pointer, &bytes);
  }
  return bytes;
}

}  // namespace

extern "C" tm_status tm_allocator_init(tm_context* context, tm_place place, tm_allocator* out) {
  if (tm_status bad = check_not_null("allocator_init", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_info("allocator_init", out, kAllocator1)) {
    return bad;
  }
  if (tm_status bad = check_place("allocator_init", "place", place)) {
    return bad;
  }
  return guarded([&]() -> Status {
    const InCall call(*context->context);
    Status status = call->usable("allocator_init");
    if (status.ok()) {
      tm_allocator table{};
      table.state = context->allocators.of(*context, c_abi::place(place));
      table.malloc = allocate;
      table.aligned = allocate_aligned;
      table.calloc = allocate_zeros;
      table.realloc = reallocate;
      table.free = release;
      table.usable = usable;
      fill_info(out, table);
    }
    return status;
  });
}
