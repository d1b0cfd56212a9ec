/* The counted parts of buffers and views: see native.h. */
#include <stdlib.h>

#include "native.h"

context_core* context_core_new(void) {
  context_core* core = malloc(sizeof *core);
  if (core != NULL) {
    atomic_init(&core->users, 1);
    atomic_init(&core->exports, 0);
    core->ended = false;
  }
  return core;
}

context_core* context_core_retain(context_core* core) {
  atomic_fetch_add_explicit(&core->users, 1, memory_order_relaxed);
  return core;
}

void context_core_release(context_core* core) {
  if (atomic_fetch_sub_explicit(&core->users, 1, memory_order_acq_rel) == 1) {
    free(core);
  }
}

buffer_core* buffer_core_retain(buffer_core* core) {
  atomic_fetch_add_explicit(&core->users, 1, memory_order_relaxed);
  return core;
}

/* The results do not matter: after the end of the context, and in a child of fork, both calls only
 * report that there is no context. */
void buffer_core_release(buffer_core* core) {
  /* Acquire and release: what each user has written comes before the end. */
  if (atomic_fetch_sub_explicit(&core->users, 1, memory_order_acq_rel) != 1) {
    return;
  }
  (void)tm_free(core->context, core->buffer);
  (void)tm_context_release(core->context);
  context_core_release(core->home);
  free(core);
}

view_core* view_core_new(buffer_core* of, const tm_view* view, bool writable) {
  view_core* core = malloc(sizeof *core);
  if (core == NULL) {
    return NULL;
  }
  atomic_init(&core->users, 1);
  core->of = buffer_core_retain(of);
  core->view = *view;
  core->writable = writable;
  return core;
}

view_core* view_core_retain(view_core* core) {
  atomic_fetch_add_explicit(&core->users, 1, memory_order_relaxed);
  return core;
}

void view_core_release(view_core* core) {
  if (atomic_fetch_sub_explicit(&core->users, 1, memory_order_acq_rel) != 1) {
    return;
  }
  (void)tm_release(core->of->context, &core->view, 1, TM_HOST_ORDER);
  buffer_core_release(core->of);
  free(core);
}
