/* The KV blocks of an engine: 256 blocks of 256 KiB are on the drive, and the engine loads the
 * blocks of a request into its own pool. The device writes them there directly, so that they take
 * no room in tiermem's memory. Four requests are in progress at a time, behind one descriptor.
 *
 *   cc -std=gnu11 blocks.c -ltiermem -o blocks
 *   ./blocks                                                  # files in your cache folder
 *   TIERMEM_TIERS="dram=16M; nvme=/data/scratch:1G" ./blocks  # files where you say
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

enum { kBlocks = 256, kInRequest = 8, kRequests = 64, kAtOnce = 4 };
static const uint64_t kBytes = 256 << 10;

/* A request of the engine: which blocks it needs, and where they go. */
typedef struct {
  uint32_t blocks[kInRequest];
  tm_copy_item items[kInRequest];
  unsigned char* pool; /* kInRequest blocks, aligned to 4 KiB. */
} request;

static tm_context* context;
static tm_buffer cache;
static tm_queue* queue;

static void begin(request* each, uint32_t number) {
  for (uint32_t i = 0; i < kInRequest; i++) {
    each->blocks[i] = (number * 37 + i * 11) % kBlocks;
    each->items[i] = (tm_copy_item){.buffer = cache,
                                    .offset = each->blocks[i] * kBytes,
                                    .memory = each->pool + i * kBytes,
                                    .bytes = kBytes,
                                    .mode = TM_READ};
  }
  tm_op op;
  TRY(tm_copy(context, each->items, kInRequest, TM_COPY_NO_PROMOTE, -1, &op));
  TRY(tm_queue_add(queue, op, each));
}

/* Each block is full of its number. */
static int is_good(const request* each) {
  for (uint32_t i = 0; i < kInRequest; i++)
    for (uint64_t at = 0; at < kBytes; at++)
      if (each->pool[i * kBytes + at] != each->blocks[i])
        return 0;
  return 1;
}

int main(void) {
  TRY(tm_context_create(getenv("TIERMEM_TIERS") != NULL ? NULL : "dram=16M", NULL, &context));
  TRY(tm_alloc(context, kBlocks * kBytes, NULL, &cache));
  unsigned char* block = malloc(kBytes);
  for (uint32_t number = 0; block != NULL && number < kBlocks; number++) {
    memset(block, (int)number, kBytes);
    TRY(tm_write(context, cache, number * kBytes, block, kBytes, -1));
  }
  free(block);
  tm_access all = {.buffer = cache, .mode = TM_READ};
  TRY(tm_evict(context, &all, 1, -1));
  TRY(tm_queue_create(context, &queue));
  struct pollfd loop = {.events = POLLIN}; /* An engine adds its sockets here. */
  TRY(tm_queue_fd(queue, &loop.fd));

  request requests[kAtOnce];
  uint32_t begun = 0, ended = 0, wrong = 0;
  while (begun < kAtOnce) {
    requests[begun].pool = aligned_alloc(4096, kInRequest * kBytes);
    if (requests[begun].pool == NULL)
      return 1;
    begin(&requests[begun], begun);
    begun++;
  }
  while (ended < kRequests) {
    tm_event events[kAtOnce] = {{.size = sizeof events[0]}};
    size_t count = 0;
    (void)poll(&loop, 1, -1);
    TRY(tm_queue_drain(queue, events, kAtOnce, &count));
    for (size_t i = 0; i < count; i++, ended++) {
      request* each = events[i].user;
      if (events[i].status != TM_OK) {
        fprintf(stderr, "%s\n", events[i].text);
        return 1;
      }
      wrong += is_good(each) ? 0 : 1;
      if (begun < kRequests)
        begin(each, begun++);
    }
  }
  tm_residency info = {.size = sizeof info};
  TRY(tm_buffer_info(context, cache, &info));
  printf("%" PRIu32 " requests of %d blocks, %" PRIu32 " wrong; %" PRIu64 " bytes in memory\n",
         ended, kInRequest, wrong, info.resident);
  for (int i = 0; i < kAtOnce; i++)
    free(requests[i].pool);
  TRY(tm_queue_destroy(queue));
  TRY(tm_free(context, cache));
  TRY(tm_context_destroy(context, 0, -1));
  return wrong == 0 ? 0 : 1;
}
