/* Queues of operations: each operation gives one event, the descriptor reports it, and the ends of
 * queue, context and process are defined. Operations are delayed with a view that leaves no room.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hog.h"

static tm_queue* q;
static int fd;

static int is_readable(int of, int timeout_ms) {
  struct pollfd waiting = {.fd = of, .events = POLLIN};
  return poll(&waiting, 1, timeout_ms) == 1;
}

static size_t drain(tm_queue* of, tm_event* events, size_t n) {
  size_t count = 99;
  events->size = sizeof *events;
  OK(tm_queue_drain(of, events, n, &count));
  return count;
}

static void event_of_an_operation_that_ends_later(void) {
  tm_view v;
  tm_op op = 0;
  tm_event event;
  tm_error_info info = {.size = sizeof info};
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  OK(tm_queue_add(q, op, &v));
  CHECK(!is_readable(fd, 0));
  CHECK(drain(q, &event, 1) == 0);
  SAYS(TM_INVALID_ARGUMENT, "in a queue already", tm_queue_add(q, op, NULL));
  SAYS(TM_INVALID_ARGUMENT, "is in a queue", tm_op_wait(c, &op, 1, 0));
  SAYS(TM_BUSY, "under way", tm_op_poll(c, op));
  SAYS(TM_BUSY, "1 operations", tm_queue_destroy(q));
  let_go();
  CHECK(is_readable(fd, 10000));
  OK(tm_op_poll(c, op)); /* It exists until it is drained. */
  OK(tm_error(c, op, &info));
  SAYS(TM_INVALID_ARGUMENT, "is in a queue", tm_op_wait(c, &op, 1, 0));
  SAYS(TM_BUSY, "1 operations", tm_queue_destroy(q));
  memset(&event, 0x55, sizeof event);
  CHECK(drain(q, &event, 1) == 1);
  CHECK(event.op == op && event.user == &v && event.status == TM_OK);
  CHECK(event.native == 0 && event.text[0] == '\0' && event.needed == 0);
  CHECK(!is_readable(fd, 0));
  CHECK(v.length == 12 * MIB);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  SAYS(TM_INVALID_ARGUMENT, "waited for before", tm_op_poll(c, op));
  SAYS(TM_INVALID_ARGUMENT, "waited for before", tm_queue_add(q, op, NULL));
}

static void event_of_an_operation_that_ended_before(void) {
  tm_view v;
  tm_op ops[2];
  tm_event event;
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &ops[0]));
  OK(tm_op_cancel(c, ops[0]));
  while (tm_op_poll(c, ops[0]) == TM_BUSY) {
  }
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &ops[1]));
  /* A wait that finds the end of the first one, and times out for the second. */
  IS(TM_TIMED_OUT, tm_op_wait(c, ops, 2, 0));
  OK(tm_queue_add(q, ops[0], NULL));
  CHECK(is_readable(fd, 0));
  CHECK(drain(q, &event, 1) == 1);
  CHECK(event.op == ops[0] && event.user == NULL && event.status == TM_CANCELLED);
  CHECK(strstr(event.text, "cancelled") != NULL && event.device == -1);
  OK(tm_queue_add(q, ops[1], NULL));
  OK(tm_op_cancel(c, ops[1])); /* Also in a queue. */
  CHECK(is_readable(fd, 10000));
  CHECK(drain(q, &event, 1) == 1 && event.status == TM_CANCELLED);
  let_go();
}

/* An event carries what tm_error() would say, and leaves the thread's own error alone. */
static void event_of_a_failure(void) {
  tm_view v;
  tm_op op = 0;
  tm_event event;
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  OK(tm_queue_add(q, op, &op));
  OK(tm_free(c, other));
  IS(TM_INVALID_ARGUMENT, tm_tick(c, 9, NULL));
  CHECK(is_readable(fd, 10000));
  CHECK(drain(q, &event, 1) == 1);
  CHECK(event.status == TM_STALE_HANDLE && strstr(event.text, "freed") != NULL);
  CHECK(strstr(last_text(), "tick") != NULL);
  let_go();
  OK(tm_alloc(c, 12 * MIB, NULL, &other));
  other_all.buffer = other;
}

/* A drain takes at most what it has room for, in the order of the ends. */
static void parts(void) {
  enum { kOps = 100 };
  tm_op ops[kOps];
  tm_event events[kOps];
  tm_access small = {.buffer = hog, .length = 4096, .mode = TM_READ};
  for (size_t i = 0; i < kOps; ++i) {
    OK(tm_prefetch(c, &small, 1, TM_SOON, &ops[i]));
    while (tm_op_poll(c, ops[i]) == TM_BUSY) {
    }
    OK(tm_queue_add(q, ops[i], &ops[i]));
  }
  size_t seen = 0;
  for (size_t room = 1; seen < kOps; room = room * 2 + 1) {
    CHECK(is_readable(fd, 0));
    const size_t n = drain(q, events, room < kOps ? room : kOps);
    CHECK(n == (room < kOps - seen ? room : kOps - seen));
    for (size_t i = 0; i < n; ++i) {
      CHECK(events[i].size == sizeof(tm_event) && events[i].op == ops[seen]);
      CHECK(events[i].user == &ops[seen] && events[i].status == TM_OK);
      ++seen;
    }
  }
  CHECK(!is_readable(fd, 0));
  CHECK(drain(q, events, kOps) == 0);
}

static void bad_arguments(void) {
  tm_event event = {.size = sizeof event};
  size_t count = 55;
  int number = 55;
  tm_queue* none = (tm_queue*)0x55;
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_queue_create(NULL, &none));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_queue_create(c, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null queue", tm_queue_destroy(NULL));
  SAYS(TM_INVALID_ARGUMENT, "null queue", tm_queue_fd(NULL, &number));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_queue_fd(q, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null queue", tm_queue_add(NULL, 1, NULL));
  SAYS(TM_INVALID_ARGUMENT, "0x0", tm_queue_add(q, 0, NULL));
  SAYS(TM_INVALID_ARGUMENT, "0x3039", tm_queue_add(q, 12345, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null queue", tm_queue_drain(NULL, &event, 1, &count));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_queue_drain(q, NULL, 1, &count));
  SAYS(TM_INVALID_ARGUMENT, "null out_count", tm_queue_drain(q, &event, 1, NULL));
  SAYS(TM_INVALID_ARGUMENT, "room for 0 events", tm_queue_drain(q, &event, 0, &count));
  SAYS(TM_INVALID_ARGUMENT, "events", tm_queue_drain(q, &event, (size_t)-1, &count));
  event.size = 8;
  SAYS(TM_INVALID_ARGUMENT, "size 8", tm_queue_drain(q, &event, 1, &count));
  CHECK(count == 55 && number == 55 && none == (tm_queue*)0x55);

  /* An operation of another context. */
  tm_context* second = open_context("");
  tm_buffer buffer;
  tm_op op;
  OK(tm_alloc(second, MIB, NULL, &buffer));
  tm_access all = {.buffer = buffer, .mode = TM_READ};
  OK(tm_prefetch(second, &all, 1, TM_SOON, &op));
  SAYS(TM_INVALID_ARGUMENT, "another context", tm_queue_add(q, op, NULL));
  OK(tm_op_wait(second, &op, 1, -1));
  close_context(second);
}

/* One thread waits for the operation: it keeps it. */
static void* wait_for(void* op) {
  tm_status status;
  do { /* The other thread's short waits make it busy. */
    status = tm_op_wait(c, op, 1, 60 * SECOND);
  } while (status == TM_BUSY);
  return (void*)(intptr_t)status;
}

static void operation_that_a_thread_waits_for(void) {
  tm_view v;
  tm_op op;
  pthread_t thread;
  void* status = NULL;
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  CHECK(pthread_create(&thread, NULL, wait_for, &op) == 0);
  while (tm_op_wait(c, &op, 1, 0) != TM_BUSY) {
  }
  SAYS(TM_BUSY, "another thread waits", tm_queue_add(q, op, NULL));
  OK(tm_op_cancel(c, op));
  CHECK(pthread_join(thread, &status) == 0 && (intptr_t)status == TM_CANCELLED);
  let_go();
}

/* Threads that begin operations, add them early and late, cancel some, and others that drain. */
enum { kMakers = 4, kDrainers = 3, kEach = 2000 };
static atomic_int g_seen[kMakers][kEach];
static atomic_long g_drained;

static void* make(void* argument) {
  const long maker = (long)(intptr_t)argument;
  tm_access small = {.buffer = hog, .offset = (uint64_t)maker * MIB, .length = 4096};
  small.mode = TM_READ;
  for (int i = 0; i < kEach; ++i) {
    tm_op op = 0;
    tm_status status;
    while ((status = tm_prefetch(c, &small, 1, TM_SOON, &op)) == TM_BUSY) {
    }
    if (status != TM_OK) {
      return "prefetch";
    }
    if (i % 3 == 0) {
      (void)tm_op_poll(c, op);
    }
    if (tm_queue_add(q, op, &g_seen[maker][i]) != TM_OK) {
      return "add";
    }
    if (i % 5 == 0 && i % 2 == 0) {
      (void)tm_op_cancel(c, op); /* It may have been drained. */
    }
  }
  return NULL;
}

static void* drain_in_thread(void* unused) {
  (void)unused;
  tm_event events[7];
  while (atomic_load(&g_drained) < kMakers * kEach) {
    size_t n = 0;
    (void)is_readable(fd, 10);
    events[0].size = sizeof events[0];
    if (tm_queue_drain(q, events, 7, &n) != TM_OK) {
      return "drain";
    }
    for (size_t i = 0; i < n; ++i) {
      atomic_fetch_add((atomic_int*)events[i].user, 1);
      if (events[i].status != TM_OK && events[i].status != TM_CANCELLED) {
        return "status";
      }
    }
    atomic_fetch_add(&g_drained, (long)n);
  }
  return NULL;
}

static void many_threads(void) {
  pthread_t threads[kMakers + kDrainers];
  for (long i = 0; i < kMakers + kDrainers; ++i) {
    CHECK(pthread_create(&threads[i], NULL, i < kMakers ? make : drain_in_thread,
                         (void*)(intptr_t)i) == 0);
  }
  for (int i = 0; i < kMakers + kDrainers; ++i) {
    void* wrong = NULL;
    CHECK(pthread_join(threads[i], &wrong) == 0);
    if (wrong != NULL) {
      fprintf(stderr, "thread %d: %s\n", i, (const char*)wrong);
    }
    CHECK(wrong == NULL);
  }
  int not_once = 0;
  for (int maker = 0; maker < kMakers; ++maker) {
    for (int i = 0; i < kEach; ++i) {
      not_once += atomic_load(&g_seen[maker][i]) != 1;
    }
  }
  CHECK(not_once == 0);
  CHECK(!is_readable(fd, 0));
}

/* A child of fork has no context: it can neither take events of the parent nor end its queue. */
static void child_of_fork(void) {
  tm_view v;
  tm_op op;
  tm_event event = {.size = sizeof event};
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  OK(tm_queue_add(q, op, &v));
  for (int round = 0; round < 2; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      size_t count = 0;
      tm_queue* own = NULL;
      const int fine = tm_queue_drain(q, &event, 1, &count) == TM_SHUT_DOWN &&
                       tm_queue_add(q, op, NULL) == TM_SHUT_DOWN &&
                       tm_queue_create(c, &own) == TM_SHUT_DOWN && tm_queue_destroy(q) == TM_OK;
      _exit(fine ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    if (round == 0) {
      CHECK(!is_readable(fd, 0));
      let_go();
      CHECK(is_readable(fd, 10000));
    }
  }
  CHECK(drain(q, &event, 1) == 1 && event.user == &v && event.status == TM_OK);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
}

/* fork=follow: parent and child have a queue each. The same operation ends in both. */
static void child_that_follows(void) {
  tm_context* context = open_context("; fork=follow");
  const tm_buffer_options mapped = {.size = sizeof mapped, .flags = TM_MAPPED};
  tm_buffer buffers[2];
  tm_view held, v;
  tm_queue* queue = NULL;
  tm_op op = 0, early = 0;
  tm_event event;
  int number = -1, of_op = -1;
  if (tm_alloc(context, 12 * MIB, &mapped, &buffers[0]) == TM_UNSUPPORTED) {
    fprintf(stderr, "no mapped buffers: fork=follow is not tested\n");
    close_context(context);
    return;
  }
  OK(tm_alloc(context, 12 * MIB, &mapped, &buffers[1]));
  OK(tm_queue_create(context, &queue));
  OK(tm_queue_fd(queue, &number));
  tm_access first = {.buffer = buffers[0], .mode = TM_WRITE};
  tm_access second = {.buffer = buffers[1], .mode = TM_WRITE};
  OK(tm_acquire(context, &first, 1, TM_HOST_ORDER, 10 * SECOND, &held));
  OK(tm_acquire_async(context, &second, 1, TM_HOST_ORDER, &v, &op));
  OK(tm_op_fd(context, op, &of_op));
  OK(tm_queue_add(queue, op, &v));
  const pid_t child = fork();
  if (child == 0) {
    if (!is_readable(number, 10000) || drain(queue, &event, 1) != 1 || event.op != op ||
        event.status != TM_SHUT_DOWN || is_readable(number, 0)) {
      fprintf(stderr, "child: %s\n", event.text);
      _exit(1);
    }
    tm_access small = {.buffer = buffers[0], .length = 4096, .mode = TM_READ};
    tm_op own = 0;
    if (tm_prefetch(context, &small, 1, TM_SOON, &own) != TM_OK ||
        tm_queue_add(queue, own, NULL) != TM_OK || !is_readable(number, 10000) ||
        drain(queue, &event, 1) != 1 || event.op != own || tm_queue_destroy(queue) != TM_OK) {
      _exit(2);
    }
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(!is_readable(number, 0)); /* The child's events are its own. */
  CHECK(!is_readable(of_op, 0));
  CHECK(drain(queue, &event, 1) == 0);
  OK(tm_prefetch(context, &first, 1, TM_SOON, &early));
  OK(tm_queue_add(queue, early, NULL));
  CHECK(is_readable(number, 10000) && drain(queue, &event, 1) == 1 && event.op == early);
  OK(tm_release(context, &held, 1, TM_HOST_ORDER));
  CHECK(is_readable(number, 10000) && drain(queue, &event, 1) == 1);
  CHECK(event.op == op && event.status == TM_OK && is_readable(of_op, 0));
  OK(tm_release(context, &v, 1, TM_HOST_ORDER));
  OK(tm_queue_destroy(queue));
  CHECK(close(of_op) == 0);
  close_context(context);
}

static void* wait_for_descriptor(void* of) {
  return (void*)(intptr_t)is_readable(*(int*)of, 20000);
}

/* The context ends first. A thread that sleeps on the descriptor learns of it. */
static void end_of_the_context(void) {
  tm_view v;
  tm_op op;
  tm_event event = {.size = sizeof event};
  size_t count = 55;
  pthread_t thread;
  void* woken = NULL;
  tm_queue* empty = NULL;
  int of_empty = -1;
  OK(tm_queue_create(c, &empty));
  OK(tm_queue_fd(empty, &of_empty));
  CHECK(pthread_create(&thread, NULL, wait_for_descriptor, &of_empty) == 0);
  hold();
  OK(tm_acquire_async(c, &other_all, 1, TM_HOST_ORDER, &v, &op));
  OK(tm_queue_add(q, op, &v));
  OK(tm_context_destroy(c, TM_DESTROY_FORCE, 10 * SECOND));
  CHECK(pthread_join(thread, &woken) == 0 && woken != NULL);
  CHECK(is_readable(fd, 0));
  SAYS(TM_SHUT_DOWN, "has ended", tm_queue_drain(q, &event, 1, &count));
  SAYS(TM_SHUT_DOWN, "has ended", tm_queue_add(q, op, NULL));
  CHECK(is_readable(fd, 0) && is_readable(of_empty, 0) && count == 55);
  OK(tm_queue_destroy(q));
  OK(tm_queue_destroy(empty));
}

int main(void) {
  open_hog();
  OK(tm_queue_create(c, &q));
  OK(tm_queue_fd(q, &fd));
  event_of_an_operation_that_ends_later();
  event_of_an_operation_that_ended_before();
  event_of_a_failure();
  parts();
  bad_arguments();
  operation_that_a_thread_waits_for();
  many_threads();
  child_of_fork();
  child_that_follows();
  end_of_the_context();
  return finish();
}
