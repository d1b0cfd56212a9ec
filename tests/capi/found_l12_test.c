/* Fault L12: contexts that several owners share, and calls after the contexts have ended. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

static void last_reference_ends_it(void) {
  tm_context* context = open_context("");
  tm_buffer buffer = 0;
  OK(tm_context_retain(context));
  OK(tm_alloc(context, 65536, NULL, &buffer));
  OK(tm_context_release(context));
  OK(tm_free(context, buffer));
  OK(tm_context_release(context));
  SAYS(TM_SHUT_DOWN, "has ended", tm_free(context, buffer));
  SAYS(TM_SHUT_DOWN, "has ended", tm_context_release(context));
  SAYS(TM_SHUT_DOWN, "has ended", tm_context_retain(context));
}

static void destroy_ends_it_under_other_owners(void) {
  tm_context* context = open_context("");
  tm_buffer buffer = 0;
  tm_op op = 0;
  tm_view view;
  OK(tm_alloc(context, 65536, NULL, &buffer));
  tm_access access = {.buffer = buffer, .mode = TM_WRITE};
  OK(tm_context_retain(context));
  OK(tm_prefetch(context, &access, 1, 0, &op));
  OK(tm_acquire(context, &access, 1, TM_HOST_ORDER, -1, &view));
  IS(TM_BUSY, tm_context_destroy(context, 0, 10000000000));
  OK(tm_context_destroy(context, TM_DESTROY_FORCE, 10000000000));
  SAYS(TM_SHUT_DOWN, "has ended", tm_release(context, &view, 1, TM_HOST_ORDER));
  SAYS(TM_SHUT_DOWN, "has ended", tm_op_wait(context, &op, 1, -1));
  tm_error_info info = {.size = sizeof info};
  IS(TM_SHUT_DOWN, tm_error(context, op, &info));
  SAYS(TM_SHUT_DOWN, "has ended", tm_free(context, buffer));
  SAYS(TM_SHUT_DOWN, "has ended", tm_context_destroy(context, 0, -1));
  OK(tm_context_release(context)); /* Releases the other owner's reference. */
  IS(TM_SHUT_DOWN, tm_context_release(context));
}

static void one_context_for_all(void) {
  tm_context *first = NULL, *second = NULL, *third = NULL;
  tm_buffer buffer = 0;
  setenv("TIERMEM_TIERS", "dram=64G; nvme=off; no such option", 1);
  IS(TM_INVALID_ARGUMENT, tm_context_default(&first));
  setenv("TIERMEM_TIERS", "dram=16M; nvme=off", 1);
  OK(tm_context_default(&first));
  OK(tm_context_default(&second));
  CHECK(first == second);
  OK(tm_alloc(first, 65536, NULL, &buffer));
  OK(tm_context_release(first));
  OK(tm_context_release(second));
  OK(tm_free(second, buffer)); /* It lives on without users. */
  /* A caller that destroys it nevertheless: the next caller gets another one. */
  OK(tm_context_destroy(first, TM_DESTROY_FORCE, -1));
  OK(tm_context_default(&third));
  CHECK(third != first);
  OK(tm_alloc(third, 65536, NULL, &buffer));
  OK(tm_context_release(third));
}

int main(void) {
  IS(TM_INVALID_ARGUMENT, tm_context_default(NULL));
  one_context_for_all();
  IS(TM_INVALID_ARGUMENT, tm_context_retain(NULL));
  IS(TM_INVALID_ARGUMENT, tm_context_release(NULL));
  last_reference_ends_it();
  destroy_ends_it_under_other_owners();
  return finish();
}
