/* Shared by the C tests that delay operations: a buffer that takes all room while a view holds it.
 */
#ifndef TIERMEM_TESTS_CAPI_HOG_H
#define TIERMEM_TESTS_CAPI_HOG_H

#include "check.h"

#define MIB ((uint64_t)1 << 20)
#define SECOND ((int64_t)1000000000)

static tm_context* c;
static tm_buffer hog, other;
static tm_access hog_all, other_all;
static tm_view hog_view;

/* Opens the context, with two buffers that do not fit together. */
static inline void open_hog(void) {
  c = open_context("");
  OK(tm_alloc(c, 12 * MIB, &(tm_buffer_options){.size = sizeof(tm_buffer_options), .label = "hog"},
              &hog));
  OK(tm_alloc(c, 12 * MIB, NULL, &other));
  hog_all = (tm_access){.buffer = hog, .mode = TM_WRITE};
  other_all = (tm_access){.buffer = other, .mode = TM_WRITE};
}

/* Takes all room until let_go(). */
static inline void hold(void) {
  OK(tm_acquire(c, &hog_all, 1, TM_HOST_ORDER, 10 * SECOND, &hog_view));
}
static inline void let_go(void) {
  OK(tm_release(c, &hog_view, 1, TM_HOST_ORDER));
}

#endif
