// C: buffers by address, and hints by address.
#include "checks.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

extern "C" tm_status tm_find(tm_context* context, const void* address, tm_buffer* out,
                             uint64_t* out_offset) {
  if (tm_status bad = check_not_null("find", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("find", out, "out")) {
    return bad;
  }
  return guarded([&]() -> Status {
    Result<Position> at = context->context->find(address);
    if (!at.ok()) {
      return std::move(at).status();
    }
    *out = at->buffer;
    if (out_offset != nullptr) {
      *out_offset = at->offset;
    }
    return {};
  });
}

extern "C" tm_status tm_prefetch_at(tm_context* context, const void* address, uint64_t bytes,
                                    uint64_t next_use, tm_op* out) {
  if (tm_status bad = check_not_null("prefetch_at", context, "context")) {
    return bad;
  }
  return operate(
      out, [&](Op* op) { return context->context->prefetch_at(address, bytes, next_use, op); });
}

extern "C" tm_status tm_evict_at(tm_context* context, const void* address, uint64_t bytes,
                                 int64_t timeout_ns) {
  if (tm_status bad = check_not_null("evict_at", context, "context")) {
    return bad;
  }
  return guarded([&] { return context->context->evict_at(address, bytes, {timeout_ns}); });
}

extern "C" tm_status tm_advise_at(tm_context* context, const void* address, uint64_t bytes,
                                  uint32_t advice, uint64_t value) {
  if (tm_status bad = check_not_null("advise_at", context, "context")) {
    return bad;
  }
  if (advice > TM_NEXT_USE) {
    return refuse(Code::invalid_argument, "advise_at: unknown advice {}; accepted are 0 to {}",
                  advice, static_cast<unsigned>(TM_NEXT_USE));
  }
  return guarded([&] {
    return context->context->advise_at(address, bytes, static_cast<Advice>(advice), value);
  });
}
