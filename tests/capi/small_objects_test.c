/* Objects by pointer through the C interface. */
#include <pthread.h>
#include <stdint.h>

#include "check.h"

#define MIB ((uint64_t)1 << 20)

static const tm_place kDram = {TM_DRAM, 0};

static tm_counters counters_of(tm_context* c) {
  tm_counters counters = {.size = sizeof counters};
  OK(tm_stats(c, &counters));
  return counters;
}

static void objects_come_and_go(tm_place place) {
  tm_context* c = open_context("");
  unsigned char* objects[500];
  for (int i = 0; i < 500; ++i) {
    void* object = NULL;
    uint64_t usable = 0;
    OK(tm_malloc(c, place, (uint64_t)i * 7, &object));
    CHECK(object != NULL && (uintptr_t)object % 16 == 0);
    OK(tm_usable_size(c, object, &usable));
    CHECK(usable >= (uint64_t)i * 7 && usable > 0);
    memset(object, i, usable);
    objects[i] = object;
  }
  CHECK(counters_of(c).placed_used >= 500 * 499 / 2 * 7);
  CHECK(counters_of(c).placed_held >= counters_of(c).placed_used);
  for (int i = 0; i < 500; ++i) {
    uint64_t usable = 0;
    OK(tm_usable_size(c, objects[i], &usable));
    for (uint64_t at = 0; at < usable; ++at) {
      if (objects[i][at] != (unsigned char)i) {
        CHECK(!"the bytes are others");
        break;
      }
    }
    OK(tm_free_ptr(c, objects[i]));
  }
  CHECK(counters_of(c).placed_used == 0);
  OK(tm_free_ptr(c, NULL));
  close_context(c);
}

static void mistakes_are_told(void) {
  tm_context* c = open_context("");
  tm_context* other = open_context("");
  int local = 0;
  char address[32];
  uint64_t usable = 77;
  void* object = &local;
  snprintf(address, sizeof address, "%p", (void*)&local);
  SAYS(TM_INVALID_ARGUMENT, address, tm_free_ptr(c, &local));
  SAYS(TM_INVALID_ARGUMENT, address, tm_usable_size(c, &local, &usable));
  IS(TM_INVALID_ARGUMENT, tm_usable_size(c, NULL, &usable));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_malloc(NULL, kDram, 1, &object));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_malloc(c, kDram, 1, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_free_ptr(NULL, &local));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_usable_size(NULL, &local, &usable));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_usable_size(c, &local, NULL));
  SAYS(TM_UNSUPPORTED, "cannot address block 0", tm_malloc(c, (tm_place){TM_BLOCK, 0}, 1, &object));
  SAYS(TM_UNAVAILABLE, "gpu 0", tm_malloc(c, (tm_place){TM_GPU, 0}, 1, &object));
  SAYS(TM_UNSUPPORTED, "no GPU", tm_gpu_pause(c, "weights", 0, TM_HOST_ORDER, NULL));
  SAYS(TM_UNSUPPORTED, "no GPU", tm_gpu_resume(c, "weights", 0, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_gpu_pause(NULL, NULL, 0, TM_HOST_ORDER, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_gpu_resume(NULL, NULL, 0, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_free_ptr_after(NULL, &local, TM_HOST_ORDER));
  SAYS(TM_INVALID_ARGUMENT, address, tm_free_ptr_after(c, &local, TM_HOST_ORDER));
  OK(tm_gpu_tag("weights"));
  OK(tm_gpu_tag(NULL));
  SAYS(TM_UNAVAILABLE, "dram 1", tm_malloc(c, (tm_place){TM_DRAM, 1}, 1, &object));
  SAYS(TM_INVALID_ARGUMENT, "place has kind 99", tm_malloc(c, (tm_place){99, 0}, 1, &object));
  SAYS(TM_INVALID_ARGUMENT, "2^47", tm_malloc(c, kDram, UINT64_MAX, &object));
  SAYS(TM_NO_CAPACITY, "dram", tm_malloc(c, kDram, 64 * MIB, &object));
  CHECK(object == &local && usable == 77); /* Unchanged after a failure. */

  OK(tm_malloc(c, kDram, 100, &object));
  IS(TM_INVALID_ARGUMENT, tm_free_ptr(other, object));
  OK(tm_free_ptr(c, object));
  SAYS(TM_INVALID_ARGUMENT, "freed before", tm_free_ptr(c, object));
  OK(tm_malloc(c, kDram, 100, &object)); /* Ends with the context. */
  close_context(other);
  close_context(c);
}

/* Returns the number of failed calls as a pointer, because check.h counts for the main thread. */
static void* churn(void* argument) {
  tm_context* c = argument;
  void* objects[64] = {0};
  uintptr_t failed = 0;
  for (unsigned i = 0; i < 20000; ++i) {
    void** const slot = &objects[i * 2654435761u >> 26];
    failed += tm_free_ptr(c, *slot) != TM_OK;
    *slot = NULL;
    if (tm_malloc(c, kDram, i % 3000 + 8, slot) != TM_OK) {
      ++failed;
      continue;
    }
    memset(*slot, (int)i, i % 3000 + 8);
  }
  for (int i = 0; i < 64; ++i) {
    failed += tm_free_ptr(c, objects[i]) != TM_OK;
  }
  return (void*)failed;
}

static void threads_share_a_heap(void) {
  tm_context* c = open_context("");
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) {
    CHECK(pthread_create(&threads[i], NULL, churn, c) == 0);
  }
  for (int i = 0; i < 3; ++i) {
    void* failed = NULL;
    CHECK(pthread_join(threads[i], &failed) == 0 && failed == NULL);
  }
  CHECK(counters_of(c).placed_used == 0);
  close_context(c);
}

int main(void) {
  objects_come_and_go(kDram);
  objects_come_and_go((tm_place){TM_HOST, 0});
  objects_come_and_go((tm_place){TM_ANY, 0});
  mistakes_are_told();
  threads_share_a_heap();
  return finish();
}
