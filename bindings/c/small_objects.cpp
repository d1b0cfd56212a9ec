// C: objects by pointer.
#include "checks.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

extern "C" tm_status tm_malloc(tm_context* context, tm_place place, uint64_t bytes, void** out) {
  if (tm_status bad = check_not_null("malloc", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("malloc", out, "out")) {
    return bad;
  }
  if (tm_status bad = check_place("malloc", "place", place)) {
    return bad;
  }
  return guarded([&]() -> Status {
    Result<void*> block = context->context->malloc_at(c_abi::place(place), bytes);
    if (!block.ok()) {
      return std::move(block).status();
    }
    *out = *block;
    return {};
  });
}

extern "C" tm_status tm_free_ptr(tm_context* context, void* pointer) {
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
