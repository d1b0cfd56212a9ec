/* Operations of the C interface: how they end, that they live until a call has waited for them, and
 * that each thread has its own error. The tests delay an operation with views that leave no room.
 */
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#include "hog.h"

static void one_that_succeeds(void) {
  tm_view v;
  tm_op op = 0;
  tm_error_info info = {.size = sizeof info, .status = 99};
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  CHECK(op != 0);
  SAYS(TM_BUSY, "under way", tm_op_poll(c, op));
  OK(tm_error(c, op, &info));
  CHECK(info.status == TM_BUSY && strstr(info.text, "under way") != NULL);
  SAYS(TM_TIMED_OUT, "under way", tm_op_wait(c, &op, 1, 0));
  SAYS(TM_TIMED_OUT, "under way", tm_op_wait(c, &op, 1, SECOND / 100));
  let_go();
  OK(tm_op_wait(c, &op, 1, 10 * SECOND));
  CHECK(v.length == 12 * MIB);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  SAYS(TM_INVALID_ARGUMENT, "waited for before", tm_op_wait(c, &op, 1, 0));
  IS(TM_INVALID_ARGUMENT, tm_op_poll(c, op));
  IS(TM_INVALID_ARGUMENT, tm_op_cancel(c, op));
  IS(TM_INVALID_ARGUMENT, tm_error(c, op, &info));
}

static void one_that_is_polled(void) {
  tm_op op = 0;
  tm_view v;
  tm_error_info info = {.size = sizeof info, .status = 99};
  tm_status status;
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  do {
    status = tm_op_poll(c, op);
  } while (status == TM_BUSY);
  OK(status);
  OK(tm_op_poll(c, op)); /* The operation still exists. */
  OK(tm_error(c, op, &info));
  CHECK(info.status == TM_OK && info.text[0] == '\0' && info.holder[0] == '\0');
  OK(tm_op_cancel(c, op)); /* Too late, but not an error. */
  OK(tm_op_poll(c, op));
  OK(tm_op_wait(c, &op, 1, 0));
  IS(TM_INVALID_ARGUMENT, tm_op_wait(c, &op, 1, 0));
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
}

static int readable(int fd) {
  struct pollfd waiting = {.fd = fd, .events = POLLIN};
  return poll(&waiting, 1, 0) == 1;
}

/* As in an event loop. */
static void one_that_is_polled_by_descriptor(void) {
  tm_op op = 0;
  tm_view v;
  int fd = -1, second = -1, late = -1;
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  OK(tm_op_fd(c, op, &fd));
  OK(tm_op_fd(c, op, &second));
  CHECK(fd >= 0 && second >= 0 && fd != second && !readable(fd) && !readable(second));
  let_go();
  struct pollfd waiting = {.fd = fd, .events = POLLIN};
  CHECK(poll(&waiting, 1, 10000) == 1);
  OK(tm_op_poll(c, op)); /* A readable descriptor means that it has ended. */
  OK(tm_op_fd(c, op, &late));
  CHECK(readable(fd) && readable(second) && readable(late));
  OK(tm_op_wait(c, &op, 1, 0));
  CHECK(readable(fd));
  CHECK(close(fd) == 0 && close(second) == 0 && close(late) == 0);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  fd = 55;
  SAYS(TM_INVALID_ARGUMENT, "op_fd", tm_op_fd(c, op, &fd));
  IS(TM_INVALID_ARGUMENT, tm_op_fd(c, op, NULL));
  IS(TM_INVALID_ARGUMENT, tm_op_fd(NULL, op, &fd));
  CHECK(fd == 55);
}

static void one_that_is_cancelled(void) {
  tm_view v;
  tm_op op = 0;
  tm_error_info info = {.size = sizeof info};
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  OK(tm_op_cancel(c, op));
  SAYS(TM_CANCELLED, "cancelled", tm_op_wait(c, &op, 1, 10 * SECOND));
  let_go();
  OK(tm_tick(c, TM_TICK_OP, NULL));
  OK(tm_error(c, 0, &info)); /* The successful calls have not changed it. */
  CHECK(info.status == TM_CANCELLED);
}

/* Two operations; the first fails. A wait for a list waits for all of it. */
static void a_list(void) {
  tm_view v, w;
  tm_op ops[2] = {0, 0};
  tm_error_info info = {.size = sizeof info};
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &ops[0]));
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &w, &ops[1]));
  CHECK(ops[0] != ops[1]);
  OK(tm_op_cancel(c, ops[0]));
  IS(TM_TIMED_OUT, tm_op_wait(c, ops, 2, SECOND / 100)); /* Consumes neither. */
  IS(TM_CANCELLED, tm_op_poll(c, ops[0]));
  SAYS(TM_BUSY, "under way", tm_op_poll(c, ops[1]));
  const tm_op wrong[3] = {ops[0], ops[1], 12345};
  SAYS(TM_INVALID_ARGUMENT, "0x3039", tm_op_wait(c, wrong, 3, 10 * SECOND));
  const tm_op zero = 0;
  IS(TM_INVALID_ARGUMENT, tm_op_wait(c, &zero, 1, 10 * SECOND));
  let_go();
  const tm_op twice[3] = {ops[1], ops[0], ops[1]};
  SAYS(TM_CANCELLED, "cancelled", tm_op_wait(c, twice, 3, 10 * SECOND));
  OK(tm_error(c, 0, &info));
  CHECK(info.status == TM_CANCELLED);
  CHECK(w.length == 12 * MIB);
  OK(tm_release(c, &w, 1, TM_HOST_ORDER));
  IS(TM_INVALID_ARGUMENT, tm_op_poll(c, ops[0]));
  IS(TM_INVALID_ARGUMENT, tm_op_poll(c, ops[1]));
}

static void an_error_of_its_own(void) {
  tm_view v;
  tm_op op = 0;
  tm_error_info info = {.size = sizeof info};
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  OK(tm_free(c, other));
  tm_status status;
  do {
    status = tm_op_poll(c, op);
  } while (status == TM_BUSY);
  IS(TM_STALE_HANDLE, status);
  IS(TM_INVALID_ARGUMENT, tm_tick(c, 9, NULL)); /* Changes the thread's last error. */
  OK(tm_error(c, op, &info));
  CHECK(info.status == TM_STALE_HANDLE && strstr(info.text, "freed") != NULL);
  OK(tm_error(c, 0, &info));
  CHECK(info.status == TM_STALE_HANDLE); /* The query made it the thread's error. */
  IS(TM_STALE_HANDLE, tm_op_wait(c, &op, 1, 0));
  let_go();
  OK(tm_alloc(c, 12 * MIB, NULL, &other));
  other_all.buffer = other;
}

static void prefetches(void) {
  tm_op op = 0;
  tm_residency info = {.size = sizeof info};
  OK(tm_evict(c, &hog_all, 1, 10 * SECOND));
  OK(tm_prefetch(c, &hog_all, 1, TM_SOON, &op));
  CHECK(op != 0);
  OK(tm_op_wait(c, &op, 1, 10 * SECOND));
  OK(tm_buffer_info(c, hog, &info));
  CHECK(info.resident + info.in_slots + info.zero >= 12 * MIB && info.pinned == 0);
  uint64_t ordinal = 0;
  OK(tm_tick(c, TM_TICK_STEP, &ordinal));
  OK(tm_prefetch(c, &hog_all, 1, ordinal + 3, &op));
  OK(tm_op_wait(c, &op, 1, 10 * SECOND));
}

/* One thread waits while another polls. Neither gets the other's error. */
typedef struct {
  tm_op op;
  tm_status first, second, last;
} waiter;

static void* wait_in_thread(void* argument) {
  waiter* w = argument;
  tm_error_info info = {.size = sizeof info};
  w->first = tm_error(NULL, 0, &info) == TM_OK ? info.status : TM_INTERNAL;
  w->second = tm_op_wait(c, &w->op, 1, 60 * SECOND);
  w->last = tm_error(NULL, 0, &info) == TM_OK ? info.status : TM_INTERNAL;
  return NULL;
}

static void two_threads(void) {
  tm_view v;
  pthread_t thread;
  waiter w = {.first = 99, .second = 99, .last = 99};
  tm_error_info info = {.size = sizeof info};
  hold();
  IS(TM_INVALID_ARGUMENT, tm_tick(c, 9, NULL));
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &w.op));
  CHECK(pthread_create(&thread, NULL, wait_in_thread, &w) == 0);
  /* Whether the other thread sleeps already or not, the operation is in progress for both. */
  for (int i = 0; i < 1000; ++i) {
    const tm_status status = tm_op_wait(c, &w.op, 1, 0);
    CHECK(status == TM_BUSY || status == TM_TIMED_OUT);
    IS(TM_BUSY, tm_op_poll(c, w.op));
  }
  OK(tm_op_cancel(c, w.op));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(w.first == TM_OK); /* This thread's error is not the other's. */
  CHECK(w.second == TM_CANCELLED || w.second == TM_BUSY);
  CHECK(w.last == w.second);
  if (w.second == TM_BUSY) { /* It polled while this thread held the operation. */
    IS(TM_CANCELLED, tm_op_wait(c, &w.op, 1, 10 * SECOND));
  } else {
    OK(tm_error(NULL, 0, &info));
    CHECK(info.status == TM_BUSY || info.status == TM_TIMED_OUT); /* Not the other's error. */
  }
  let_go();
}

/* One operation more than may be in progress. */
static void too_many(void) {
  tm_capabilities caps = {.size = sizeof caps};
  OK(tm_caps(c, &caps));
  tm_op* ops = calloc(caps.ops_most + 1, sizeof *ops);
  tm_access small = {.buffer = hog, .length = 4096, .mode = TM_READ};
  for (uint64_t i = 0; i < caps.ops_most; ++i) {
    const tm_status status = tm_prefetch(c, &small, 1, TM_SOON, &ops[i]);
    if (status != TM_OK) {
      OK(status);
      break;
    }
  }
  SAYS(TM_BUSY, "wait for some", tm_prefetch(c, &small, 1, TM_SOON, &ops[caps.ops_most]));
  CHECK(ops[caps.ops_most] == 0);
  OK(tm_op_wait(c, ops, 1, 10 * SECOND));
  OK(tm_prefetch(c, &small, 1, TM_SOON, &ops[0]));
  OK(tm_op_wait(c, ops, caps.ops_most, 60 * SECOND));
  free(ops);
}

static void left_behind(void) {
  static tm_view v; /* Filled after the return. */
  tm_op op = 0;
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  let_go();
}

int main(void) {
  open_hog();
  one_that_succeeds();
  one_that_is_polled();
  one_that_is_polled_by_descriptor();
  one_that_is_cancelled();
  a_list();
  an_error_of_its_own();
  prefetches();
  two_threads();
  too_many();
  left_behind();
  OK(tm_context_destroy(c, TM_DESTROY_FORCE, 10 * SECOND));
  return finish();
}
