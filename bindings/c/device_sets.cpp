// C: sets of device memory.
#include "checks.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

extern "C" tm_status tm_gpu_tag(const char* tag) {
  Context::gpu_tag(tag);
  return TM_OK;
}

extern "C" tm_status tm_gpu_pause(tm_context* context, const char* tag, uint64_t bytes,
                                  tm_stream after, tm_op* out) {
  if (tm_status bad = check_not_null("gpu_pause", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_stream("gpu_pause", after)) {
    return bad;
  }
  return operate(out,
                 [&](Op* op) { return context->context->gpu_pause(tag, bytes, op, order(after)); });
}

extern "C" tm_status tm_gpu_resume(tm_context* context, const char* tag, uint64_t bytes,
                                   tm_op* out) {
  if (tm_status bad = check_not_null("gpu_resume", context, "context")) {
    return bad;
  }
  return operate(out, [&](Op* op) { return context->context->gpu_resume(tag, bytes, op); });
}
