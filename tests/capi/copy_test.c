/* Copies of lists, in C: results, errors, and operations in a queue. */
#include <poll.h>
#include <stdint.h>

#include "check.h"

#define MIB ((uint64_t)1 << 20)

extern void* aligned_alloc(size_t, size_t);

static tm_buffer made(tm_context* c, uint64_t bytes, int value) {
  tm_buffer buffer = 0;
  char* memory = malloc(bytes);
  memset(memory, value, bytes);
  OK(tm_alloc(c, bytes, NULL, &buffer));
  tm_copy_item item = {.buffer = buffer, .memory = memory, .bytes = bytes, .mode = TM_WRITE};
  item.status = TM_LOST;
  OK(tm_copy(c, &item, 1, 0, -1, NULL));
  CHECK(item.status == TM_OK);
  tm_access whole = {.buffer = buffer, .mode = TM_READ};
  OK(tm_evict(c, &whole, 1, -1));
  free(memory);
  return buffer;
}

static int all(const unsigned char* bytes, uint64_t n, int value) {
  for (uint64_t i = 0; i < n; ++i) {
    if (bytes[i] != value) {
      return 0;
    }
  }
  return 1;
}

static void copies(void) {
  tm_context* c = open_context("");
  const tm_buffer one = made(c, 4 * MIB, 1), two = made(c, 3 * MIB, 2);
  unsigned char* memory = aligned_alloc(4096, 8 * MIB);
  tm_copy_item list[3] = {
      {.buffer = one, .memory = memory, .bytes = 4 * MIB, .mode = TM_READ},
      {.buffer = two, .offset = 5, .memory = memory + 4 * MIB, .bytes = MIB, .mode = TM_READ},
      {.buffer = two, .mode = TM_READ}};
  OK(tm_copy(c, list, 3, TM_COPY_NO_PROMOTE, -1, NULL));
  CHECK(all(memory, 4 * MIB, 1) && all(memory + 4 * MIB, MIB, 2));
  tm_residency info = {.size = sizeof info};
  OK(tm_buffer_info(c, one, &info));
  CHECK(info.resident == 0);
  OK(tm_copy(c, list, 3, 0, -1, NULL));
  OK(tm_buffer_info(c, one, &info));
  CHECK(info.resident == 4 * MIB);

  IS(TM_INVALID_ARGUMENT, tm_copy(NULL, list, 3, 0, -1, NULL));
  IS(TM_INVALID_ARGUMENT, tm_copy(c, NULL, 3, 0, -1, NULL));
  OK(tm_copy(c, NULL, 0, 0, -1, NULL));
  SAYS(TM_INVALID_ARGUMENT, "flags 0x2", tm_copy(c, list, 3, 2, -1, NULL));
  list[1].mode = TM_DISCARD;
  SAYS(TM_INVALID_ARGUMENT, "item 1", tm_copy(c, list, 3, 0, -1, NULL));
  CHECK(list[0].status == TM_OK && list[1].status == TM_INVALID_ARGUMENT);
  list[1].mode = TM_READ;
  list[1].offset = 3 * MIB;
  SAYS(TM_INVALID_ARGUMENT, "item 1", tm_copy(c, list, 3, TM_COPY_NO_PROMOTE, -1, NULL));
  OK(tm_free(c, two));
  SAYS(TM_STALE_HANDLE, "item 1", tm_copy(c, list, 3, TM_COPY_NO_PROMOTE, -1, NULL));
  CHECK(list[0].status == TM_OK && list[1].status == TM_STALE_HANDLE);
  free(memory);
  OK(tm_context_destroy(c, 0, -1));
}

/* Several operations under way, and their ends behind one descriptor. */
static void operations(void) {
  enum { N = 6 };
  tm_context* c = open_context("");
  tm_queue* queue = NULL;
  OK(tm_queue_create(c, &queue));
  tm_copy_item items[N];
  unsigned char* memory = aligned_alloc(4096, N * MIB);
  for (int i = 0; i < N; ++i) {
    items[i] = (tm_copy_item){.buffer = made(c, MIB, i + 1),
                              .memory = memory + (uint64_t)i * MIB,
                              .bytes = MIB,
                              .mode = TM_READ};
    tm_op op = 0;
    OK(tm_copy(c, &items[i], 1, TM_COPY_NO_PROMOTE, -1, &op));
    OK(tm_queue_add(queue, op, &items[i]));
  }
  struct pollfd ready = {.events = POLLIN};
  OK(tm_queue_fd(queue, &ready.fd));
  int ended = 0;
  while (ended < N) {
    CHECK(poll(&ready, 1, 60000) == 1);
    tm_event done[N];
    done[0].size = sizeof done[0];
    size_t n = 0;
    OK(tm_queue_drain(queue, done, N, &n));
    for (size_t i = 0; i < n; ++i) {
      const tm_copy_item* item = done[i].user;
      CHECK(done[i].status == TM_OK && item->status == TM_OK);
      CHECK(all(item->memory, MIB, (int)(item - items) + 1));
      ++ended;
    }
  }
  OK(tm_queue_destroy(queue));
  free(memory);
  OK(tm_context_destroy(c, 0, -1));
}

/* An operation that has ended is never "busy", which would say that it goes on. */
static void no_time(void) {
  tm_context* c = open_context("");
  unsigned char* memory = aligned_alloc(4096, MIB);
  tm_copy_item item = {.buffer = made(c, MIB, 1), .memory = memory, .bytes = MIB, .mode = TM_READ};
  IS(TM_BUSY, tm_copy(c, &item, 1, 0, 0, NULL));
  tm_op op = 0;
  OK(tm_copy(c, &item, 1, 0, 0, &op));
  tm_status status;
  do {
    status = tm_op_poll(c, op);
  } while (status == TM_BUSY);
  IS(TM_TIMED_OUT, status);
  IS(TM_TIMED_OUT, tm_op_wait(c, &op, 1, -1));
  IS(TM_INVALID_ARGUMENT, tm_op_poll(c, op)); /* Consumed. */
  free(memory);
  OK(tm_context_destroy(c, 0, -1));
}

int main(void) {
  copies();
  operations();
  no_time();
  return finish();
}
