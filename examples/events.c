/* An event loop: one descriptor for many operations. 128 chunks of 1 MiB pass through 32 MiB of
 * memory. The program begins 8 acquires, sleeps in poll(), and sums the chunks as they arrive.
 *
 *   cc -std=gnu11 events.c -ltiermem -o events
 *   ./events                                                  # files in your cache folder
 *   TIERMEM_TIERS="dram=32M; nvme=/data/scratch:1G" ./events  # files where you say
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <tiermem.h>

#define TRY(call)                                                            \
  do {                                                                       \
    if ((call) != TM_OK) {                                                   \
      tm_error_info error = {.size = sizeof error};                          \
      (void)tm_error(NULL, 0, &error);                                       \
      fprintf(stderr, "%s: %s\n", tm_status_name(error.status), error.text); \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

enum { kChunks = 128, kAtOnce = 8 };
static const uint64_t kBytes = 1 << 20;

static tm_context* context;
static tm_buffer buffer;
static tm_queue* queue;

/* Begins the acquire of one chunk. Its view is the user pointer of the operation. */
static void begin(uint64_t chunk, tm_view* view) {
  tm_op op;
  tm_access range = {buffer, chunk * kBytes, kBytes, TM_READ, {TM_HOST, 0}, 0};
  TRY(tm_acquire_async(context, &range, 1, TM_HOST_ORDER, view, &op));
  TRY(tm_queue_add(queue, op, view));
}

int main(void) {
  TRY(tm_context_create(getenv("TIERMEM_TIERS") != NULL ? NULL : "dram=32M", NULL, &context));
  TRY(tm_alloc(context, kChunks * kBytes, NULL, &buffer));
  for (uint64_t number = 0; number < kChunks; number++)
    TRY(tm_write(context, buffer, number * kBytes, &number, sizeof number, -1));
  TRY(tm_queue_create(context, &queue));
  struct pollfd loop = {.events = POLLIN}; /* A program adds its sockets here. */
  TRY(tm_queue_fd(queue, &loop.fd));

  tm_view views[kAtOnce];
  uint64_t sum = 0, begun = 0, ended = 0;
  while (begun < kAtOnce) {
    begin(begun, &views[begun]);
    begun++;
  }
  while (ended < kChunks) {
    tm_event events[kAtOnce] = {{.size = sizeof events[0]}};
    size_t count = 0;
    (void)poll(&loop, 1, -1);
    TRY(tm_queue_drain(queue, events, kAtOnce, &count));
    for (size_t i = 0; i < count; i++, ended++) {
      tm_view* view = events[i].user;
      if (events[i].status != TM_OK) {
        fprintf(stderr, "%s\n", events[i].text);
        return 1;
      }
      sum += *(uint64_t*)view->data;
      TRY(tm_release(context, view, 1, TM_HOST_ORDER));
      if (begun < kChunks)
        begin(begun++, view);
    }
  }
  printf("sum %" PRIu64 " of %" PRIu64 " chunks\n", sum, ended);
  TRY(tm_queue_destroy(queue));
  TRY(tm_free(context, buffer));
  TRY(tm_context_destroy(context, 0, -1));
  return sum == kChunks * (kChunks - 1) / 2 ? 0 : 1;
}
