/* Droppable buffers through the C interface, without a block tier. */
#include <stdint.h>

#include "check.h"

#define MIB ((uint64_t)1 << 20)
#define SECOND ((int64_t)1000000000)

int main(void) {
  tm_context* c = NULL;
  tm_buffer first = 0, second = 0;
  tm_buffer_options options = {.size = sizeof options, .flags = TM_DROPPABLE, .label = "first"};
  tm_residency info = {.size = sizeof info};
  tm_error_info error = {.size = sizeof error};
  tm_view v = {.length = 55};
  OK(tm_context_create("dram=16M; nvme=off", NULL, &c));
  OK(tm_alloc(c, 12 * MIB, &options, &first));
  OK(tm_alloc(c, 12 * MIB, &options, &second));
  tm_access all = {.buffer = first, .mode = TM_DISCARD};
  OK(tm_acquire(c, &all, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  memset(v.data, 1, v.length);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));

  /* The second buffer needs the room. The first one's bytes are dropped, and a read reports it. */
  tm_access other = {.buffer = second, .mode = TM_DISCARD};
  OK(tm_acquire(c, &other, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  memset(v.data, 2, v.length);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  const tm_view untouched = v;
  all.mode = TM_READ;
  SAYS(TM_DISCARDED, "'first'", tm_acquire(c, &all, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  CHECK(memcmp(&v, &untouched, sizeof v) == 0);
  OK(tm_error(c, 0, &error));
  CHECK(error.status == TM_DISCARDED);
  OK(tm_buffer_info(c, first, &info));
  CHECK(info.lost > 0 && info.lost + info.resident == 12 * MIB);

  /* After it is overwritten, it has bytes again. */
  OK(tm_free(c, second));
  all.mode = TM_DISCARD;
  OK(tm_acquire(c, &all, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  memset(v.data, 3, v.length);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  all.mode = TM_READ;
  OK(tm_acquire(c, &all, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  CHECK(v.length == 12 * MIB && *(unsigned char*)v.data == 3);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  OK(tm_buffer_info(c, first, &info));
  CHECK(info.lost == 0);
  close_context(c);
  return finish();
}
