// C: views, and operations that make them. tm_acquire and tm_release are the hot path: they check
// arguments in registers with two tests, and write thread-local memory only on failure.
#include <cstring>

#include "checks.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

// Separate from tm_acquire, because one range needs neither this code nor its stack.
[[gnu::noinline]] Status acquire_several(tm_context& context, const tm_access* list, std::size_t n,
                                         tm_stream stream, Timeout timeout, tm_view* out) {
  ViewScratch scratch(context.scratch, n);
  Status status =
      context.context->acquire(accesses(list, n), timeout, scratch.views(), order(stream));
  if (status.ok()) {
    std::memcpy(out, scratch.views().data(), n * sizeof(tm_view));
  }
  return status;
}

}  // namespace

extern "C" tm_status tm_acquire(tm_context* context, const tm_access* list, size_t n,
                                tm_stream stream, int64_t timeout_ns, tm_view* out) {
  // The common case in one test: the range is resident and the call has no unusual argument.
  if (n == 1 && context != nullptr && list != nullptr && out != nullptr && is_host_order(stream) &&
      context->context->hit(*accesses(list, 1).data(), *views(out, 1).data())) [[likely]] {
    return TM_OK;
  }
  if (tm_status bad = check_list("acquire", context, list, n)) [[unlikely]] {
    return bad;
  }
  if (tm_status bad = check_not_null("acquire", out, "out")) [[unlikely]] {
    return bad;
  }
  if (tm_status bad = check_stream("acquire", stream)) [[unlikely]] {
    return bad;
  }
  return guarded([&]() -> Status {
    // A single range writes its view only when it is pinned.
    return n == 1 ? context->context->acquire(accesses(list, 1), {timeout_ns}, views(out, 1),
                                              order(stream))
                  : acquire_several(*context, list, n, stream, {timeout_ns}, out);
  });
}

extern "C" tm_status tm_release(tm_context* context, const tm_view* list, size_t n,
                                tm_stream after) {
  if (n == 1 && context != nullptr && list != nullptr && is_host_order(after) &&
      context->context->end_view(*views(list, 1).data())) [[likely]] {
    return TM_OK;
  }
  if (tm_status bad = check_list("release", context, list, n)) [[unlikely]] {
    return bad;
  }
  if (tm_status bad = check_stream("release", after)) [[unlikely]] {
    return bad;
  }
  return guarded([&] { return context->context->release(views(list, n), order(after)); });
}

extern "C" tm_status tm_acquire_async(tm_context* context, const tm_access* list, size_t n,
                                      tm_stream stream, tm_view* out_views, tm_op* out) {
  if (tm_status bad = check_list("acquire_async", context, list, n)) {
    return bad;
  }
  if (tm_status bad = check_not_null("acquire_async", out_views, "out_views")) {
    return bad;
  }
  if (tm_status bad = check_not_null("acquire_async", out, "out")) {
    return bad;
  }
  if (tm_status bad = check_stream("acquire_async", stream)) {
    return bad;
  }
  return guarded([&]() -> Status {
    Result<Op> op =
        context->context->acquire_async(accesses(list, n), views(out_views, n), order(stream));
    if (!op.ok()) {
      return std::move(op).status();
    }
    *out = op->detach();
    return {};
  });
}

extern "C" tm_status tm_prefetch(tm_context* context, const tm_access* list, size_t n,
                                 uint64_t next_use, tm_op* out) {
  if (tm_status bad = check_list("prefetch", context, list, n)) {
    return bad;
  }
  return operate(
      out, [&](Op* op) { return context->context->prefetch(accesses(list, n), next_use, op); });
}
