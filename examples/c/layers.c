/* Layers larger than DRAM: 64 layers of 2 MiB pass through 32 MiB of memory. Each layer is summed
 * while the next ones are in flight.
 *
 *   cc -std=c11 layers.c -ltiermem -o layers
 *   ./layers                                                  # files in your cache folder
 *   TIERMEM_TIERS="dram=32M; nvme=/data/scratch:1G" ./layers  # files where you say
 */
#include <inttypes.h>
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

enum { kLayers = 64, kAhead = 4 };
static const uint64_t kLayerBytes = 2 << 20;

static tm_access layer(tm_buffer weights, int index, uint32_t mode) {
  return (tm_access){weights, index % kLayers * kLayerBytes, kLayerBytes, mode, {TM_HOST, 0}, 0};
}

int main(void) {
  tm_context* context;
  tm_buffer weights;
  tm_view view;
  TRY(tm_context_create(getenv("TIERMEM_TIERS") != NULL ? NULL : "dram=32M", NULL, &context));
  TRY(tm_alloc(context, kLayers * kLayerBytes, NULL, &weights));
  for (int l = 0; l < kLayers; l++) { /* All of it is overwritten: nothing need be read first. */
    tm_access now = layer(weights, l, TM_DISCARD);
    TRY(tm_acquire(context, &now, 1, TM_HOST_ORDER, -1, &view));
    for (uint64_t i = 0; i < kLayerBytes / 4; i++)
      ((uint32_t*)view.data)[i] = (uint32_t)l;
    TRY(tm_release(context, &view, 1, TM_HOST_ORDER));
  }
  uint64_t sum = 0;
  for (int l = 0; l < kLayers; l++) {
    tm_access now = layer(weights, l, TM_READ), ahead = layer(weights, l + kAhead, TM_READ);
    TRY(tm_prefetch(context, &ahead, 1, TM_SOON, NULL));
    TRY(tm_acquire(context, &now, 1, TM_HOST_ORDER, -1, &view));
    for (uint64_t i = 0; i < kLayerBytes / 4; i++)
      sum += ((uint32_t*)view.data)[i];
    TRY(tm_release(context, &view, 1, TM_HOST_ORDER));
  }
  tm_counters counters = {.size = sizeof counters};
  TRY(tm_stats(context, &counters));
  printf("sum %" PRIu64 "; %" PRIu64 " MiB of DRAM, %" PRIu64 " MiB came back from below\n", sum,
         counters.dram_used >> 20, (counters.promoted + counters.prefetched) >> 20);
  TRY(tm_free(context, weights));
  TRY(tm_context_destroy(context, 0, -1));
  return sum == kLayerBytes / 4 * (kLayers * (kLayers - 1) / 2) ? 0 : 1;
}
