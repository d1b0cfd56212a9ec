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

static int all_are(const unsigned char* bytes, uint64_t n, int value) {
  for (uint64_t i = 0; i < n; ++i) {
    if (bytes[i] != value) {
      return 0;
    }
  }
  return 1;
}

static void objects_are_aligned(tm_place place) {
  tm_context* c = open_context("");
  void* object = &c;
  for (uint64_t align = 1; align <= 8 * MIB; align *= 2) {
    OK(tm_malloc_aligned(c, place, 100, align, &object));
    CHECK((uintptr_t)object % align == 0);
    memset(object, 1, 100);
    OK(tm_free_ptr(c, object));
  }
  object = &c;
  SAYS(TM_NO_CAPACITY, "dram budget", tm_malloc_aligned(c, place, 100, 64 * MIB, &object));
  SAYS(TM_INVALID_ARGUMENT, "powers of two", tm_malloc_aligned(c, place, 100, 0, &object));
  SAYS(TM_INVALID_ARGUMENT, "powers of two", tm_malloc_aligned(c, place, 100, 24, &object));
  SAYS(TM_INVALID_ARGUMENT, "powers of two", tm_malloc_aligned(c, place, 100, 128 * MIB, &object));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_malloc_aligned(c, place, 100, 16, NULL));
  CHECK(object == (void*)&c);
  close_context(c);
}

static void zeros_come_again_and_again(tm_place place) {
  tm_context* c = open_context("");
  const uint64_t sizes[] = {1, 100, 5000, 40000, 700000, 3 * MIB};
  for (int round = 0; round < 4; ++round) {
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
      void* object = NULL;
      OK(tm_calloc(c, place, 2, sizes[i], &object));
      CHECK(all_are(object, 2 * sizes[i], 0));
      memset(object, 0xEE, 2 * sizes[i]);
      OK(tm_free_ptr(c, object));
    }
  }
  void* object = &c;
  OK(tm_calloc(c, place, 0, 8, &object));
  OK(tm_free_ptr(c, object));
  object = &c;
  SAYS(TM_INVALID_ARGUMENT, "2^47", tm_calloc(c, place, UINT64_MAX, 2, &object));
  SAYS(TM_INVALID_ARGUMENT, "2^47",
       tm_calloc(c, place, (uint64_t)1 << 32, (uint64_t)1 << 32, &object));
  SAYS(TM_INVALID_ARGUMENT, "2^47",
       tm_calloc(c, place, (uint64_t)1 << 24, (uint64_t)1 << 24, &object));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_calloc(c, place, 1, 1, NULL));
  CHECK(object == (void*)&c);
  close_context(c);
}

static void sizes_change(tm_place place) {
  tm_context* c = open_context("");
  void* object = NULL;
  OK(tm_realloc(c, place, NULL, 10, &object)); /* The same as malloc. */
  memset(object, 7, 10);
  void* const small = object;
  OK(tm_realloc(c, place, object, 16, &object));
  CHECK(object == small); /* It has room. */
  for (uint64_t bytes = 20; bytes < 3 * MIB; bytes = bytes * 3 / 2) {
    OK(tm_realloc(c, place, object, bytes, &object));
    CHECK(all_are(object, 10, 7));
    memset(object, 7, bytes);
  }
  for (uint64_t bytes = 2 * MIB; bytes > 30; bytes = bytes * 2 / 3) {
    uint64_t usable = 0;
    OK(tm_realloc(c, place, object, bytes, &object));
    OK(tm_usable_size(c, object, &usable));
    CHECK(usable >= bytes && all_are(object, bytes, 7));
  }
  void* const kept = object;
  SAYS(TM_INVALID_ARGUMENT, "2^47", tm_realloc(c, place, object, UINT64_MAX, &object));
  CHECK(object == kept && all_are(object, 31, 7)); /* As it was. */
  OK(tm_realloc(c, place, object, 0, &object));
  OK(tm_free_ptr(c, object));
  SAYS(TM_INVALID_ARGUMENT, "realloc", tm_realloc(c, place, object, 8, &object));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_realloc(c, place, NULL, 8, NULL));
  CHECK(counters_of(c).placed_used == 0);
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
  for (int i = 0; i < 2; ++i) {
    const tm_place place = {i == 0 ? TM_DRAM : TM_ANY, 0};
    objects_are_aligned(place);
    zeros_come_again_and_again(place);
    sizes_change(place);
  }
  mistakes_are_told();
  threads_share_a_heap();
  return finish();
}
