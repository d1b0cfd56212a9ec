// C: operations.
#include "operations.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include "checks.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/in_call.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

// Waits for all operations, consumes them, and returns the first failure in the order of the list.
// After an error of its own it consumes none.
Status wait_for_all(Context& context, std::span<const OpHandle> list, Timeout timeout) {
  const SlowCall call(context);
  if (!call->has_operations()) {
    return call->usable("op_wait");
  }
  for (const OpHandle op : list) {
    Ops::Outcome seen = call->ops.look("op_wait", op);
    if (seen.state == Ops::State::none) {
      return std::move(seen.status);
    }
  }
  const std::int64_t deadline = timeout.ns == 0 ? 0 : deadline_of(timeout);
  for (const OpHandle op : list) {
    Status status = call->ops.await(op, deadline);
    if (status.code() == Code::busy && status.info() == nullptr) {
      return fail(Code::timed_out, "op_wait: operation {:#x} is still under way; wait again", op);
    }
    if (!status.ok()) {
      return status;
    }
  }
  Status first;
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::optional<Status> outcome = call->ops.consume(list[i]);
    const std::span before = list.first(i);
    if (!outcome && std::ranges::find(before, list[i]) == before.end()) {
      // Not one that the list names twice: another thread has consumed it since, with its result.
      outcome = Ops::waited_for("op_wait", list[i]);
    }
    if (outcome && first.ok()) {
      first = std::move(*outcome);
    }
  }
  return first;
}

}  // namespace

namespace tiermem::c_abi {

Ops::Outcome look_at(const char* call, tm_context& context, OpHandle op) {
  const InCall inside(*context.context);
  return inside->has_operations() ? inside->ops.look(call, op)
                                  : Ops::Outcome{Ops::State::none, inside->usable(call)};
}

}  // namespace tiermem::c_abi

extern "C" tm_status tm_op_poll(tm_context* context, tm_op op) {
  if (tm_status bad = check_not_null("op_poll", context, "context")) {
    return bad;
  }
  return guarded([&] { return look_at("op_poll", *context, op).status; });
}

extern "C" tm_status tm_op_wait(tm_context* context, const tm_op* ops, size_t n,
                                int64_t timeout_ns) {
  if (tm_status bad = check_list("op_wait", context, ops, n)) {
    return bad;
  }
  return guarded([&] { return wait_for_all(*context->context, {ops, n}, {timeout_ns}); });
}

extern "C" tm_status tm_op_fd(tm_context* context, tm_op op, int* out) {
  if (tm_status bad = check_not_null("op_fd", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("op_fd", out, "out")) {
    return bad;
  }
  return guarded([&]() -> Status {
    const Result<int> theirs = context->context->op_fd(op);
    if (!theirs.ok()) {
      return theirs.status().clone();
    }
    *out = *theirs;
    return {};
  });
}

extern "C" tm_status tm_op_cancel(tm_context* context, tm_op op) {
  if (tm_status bad = check_not_null("op_cancel", context, "context")) {
    return bad;
  }
  return guarded([&] { return context->context->op_cancel(op); });
}
