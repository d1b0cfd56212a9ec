// C: the context that all users in a process share.
#include <atomic>

#include "checks.hpp"
#include "runtime/context_impl.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

// No lock: a thread that forks must not leave one locked for its child.
std::atomic<tm_context*> shared{nullptr};

// Returns whether the context can be used here: it has not ended, and did not stay with the parent.
bool is_usable(tm_context* context) {
  if (context == nullptr || tm_context_retain(context) != TM_OK) {
    return false;
  }
  const bool usable = context->context->impl().usable("context_default").ok();
  if (!usable) {
    (void)tm_context_release(context);
  }
  return usable;
}

}  // namespace

extern "C" tm_status tm_context_default(tm_context** out) {
  if (tm_status bad = check_not_null("context_default", out, "out")) {
    return bad;
  }
  // Acquire: the context was made by another thread.
  tm_context* found = shared.load(std::memory_order_acquire);
  if (is_usable(found)) {
    *out = found;
    return TM_OK;
  }
  const tm_context_options options{.size = sizeof(tm_context_options), .name = "default"};
  tm_context* made = nullptr;
  if (tm_status bad = tm_context_create(nullptr, &options, &made)) {
    return bad;
  }
  if (shared.compare_exchange_strong(found, made, std::memory_order_acq_rel)) {
    *out = made;
    return tm_context_retain(made);  // One reference stays here, until the process ends.
  }
  (void)tm_context_destroy(made, TM_DESTROY_FORCE, -1);  // Another thread was faster.
  return tm_context_default(out);
}
