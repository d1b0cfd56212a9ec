// C: rows of buffers.
#include "checks.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

tm_status check_rows(const char* call, const tm_context* context, const tm_rows* rows,
                     const void* memory) {
  if (tm_status bad = check_not_null(call, context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null(call, rows, "rows")) {
    return bad;
  }
  return rows->count == 0 ? TM_OK : check_not_null(call, memory, "memory");
}

Rows ours(const tm_rows& rows) {
  return {rows.buffer, rows.offset, rows.row_bytes, rows.stride, rows.index, rows.count};
}

}  // namespace

extern "C" tm_status tm_gather(tm_context* context, const tm_rows* rows, void* to,
                               int64_t timeout_ns, tm_op* out) {
  if (tm_status bad = check_rows("gather", context, rows, to)) {
    return bad;
  }
  return operate(
      out, [&](Op* op) { return context->context->gather(ours(*rows), to, {timeout_ns}, op); });
}

extern "C" tm_status tm_gather_into(tm_context* context, const tm_rows* rows, tm_buffer to,
                                    uint64_t offset, int64_t timeout_ns, tm_op* out) {
  if (tm_status bad = check_rows("gather_into", context, rows, rows)) {
    return bad;
  }
  return operate(out, [&](Op* op) {
    return context->context->gather_into(ours(*rows), to, offset, {timeout_ns}, op);
  });
}

extern "C" tm_status tm_scatter(tm_context* context, const tm_rows* rows, const void* from,
                                int64_t timeout_ns, tm_op* out) {
  if (tm_status bad = check_rows("scatter", context, rows, from)) {
    return bad;
  }
  return operate(
      out, [&](Op* op) { return context->context->scatter(ours(*rows), from, {timeout_ns}, op); });
}
