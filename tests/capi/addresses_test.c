/* Buffers by address, and hints by address. */
#include <stdint.h>

#include "check.h"

#define MIB ((uint64_t)1 << 20)
#define SECOND ((int64_t)1000000000)

static tm_context* c;

static uint64_t resident(tm_buffer buffer) {
  tm_residency info = {.size = sizeof info};
  OK(tm_buffer_info(c, buffer, &info));
  return info.resident;
}

static void views_and_foreign_addresses(void) {
  tm_buffer one, several, found = 55;
  uint64_t offset = 55;
  tm_view v[2];
  int local = 0;
  OK(tm_alloc(c, 65536, NULL, &one)); /* One extent: its address is its own only while pinned. */
  OK(tm_alloc(c, 5 * MIB, NULL, &several));
  tm_access list[2] = {{.buffer = one, .offset = 100, .mode = TM_WRITE},
                       {.buffer = several, .offset = 3 * MIB, .length = 5, .mode = TM_WRITE}};
  OK(tm_acquire(c, list, 2, TM_HOST_ORDER, -1, v));
  OK(tm_find(c, v[0].data, &found, &offset));
  CHECK(found == one && offset == 100);
  OK(tm_find(c, (char*)v[1].data + 4, &found, &offset));
  CHECK(found == several && offset == 3 * MIB + 4);
  OK(tm_find(c, v[1].data, &found, NULL));
  OK(tm_release(c, v, 2, TM_HOST_ORDER));
  found = 55;
  SAYS(TM_INVALID_ARGUMENT, "find", tm_find(c, v[0].data, &found, &offset));
  SAYS(TM_INVALID_ARGUMENT, "no mapped buffer", tm_find(c, &local, &found, &offset));
  SAYS(TM_INVALID_ARGUMENT, "no mapped buffer", tm_find(c, NULL, &found, &offset));
  SAYS(TM_INVALID_ARGUMENT, "no mapped buffer", tm_find(c, (void*)UINTPTR_MAX, &found, &offset));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_find(NULL, &local, &found, &offset));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_find(c, &local, NULL, &offset));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_prefetch_at(NULL, &local, 1, TM_SOON, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_evict_at(NULL, &local, 1, 0));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_advise_at(NULL, &local, 1, TM_COLD, 0));
  SAYS(TM_INVALID_ARGUMENT, "prefetch_at", tm_prefetch_at(c, &local, 1, TM_SOON, NULL));
  SAYS(TM_INVALID_ARGUMENT, "evict_at", tm_evict_at(c, &local, 1, 0));
  SAYS(TM_INVALID_ARGUMENT, "advise_at", tm_advise_at(c, &local, 1, TM_COLD, 0));
  SAYS(TM_INVALID_ARGUMENT, "advice 13", tm_advise_at(c, &local, 0, TM_NEXT_USE + 1, 0));
  SAYS(TM_INVALID_ARGUMENT, "2^64", tm_evict_at(c, &local, UINT64_MAX, 0));
  CHECK(found == 55);
  OK(tm_prefetch_at(c, &local, 0, TM_SOON, NULL));
  OK(tm_evict_at(c, &local, 0, 0));
  OK(tm_advise_at(c, &local, 0, TM_COLD, 0));
  OK(tm_free(c, one));
  OK(tm_free(c, several));
}

static void mapped_buffers(void) {
  const uint64_t bytes = 3 * MIB + 5000;
  const tm_buffer_options options = {.size = sizeof options, .flags = TM_MAPPED};
  tm_buffer buffer, found = 0;
  void* memory = NULL;
  uint64_t offset = 0;
  tm_op op = 0;
  OK(tm_alloc(c, bytes, &options, &buffer));
  OK(tm_address(c, buffer, &memory));
  char* at = memory;
  memset(at, 7, bytes);
  for (uint64_t i = 0; i < bytes; i += 999983) {
    OK(tm_find(c, at + i, &found, &offset));
    CHECK(found == buffer && offset == i);
  }
  OK(tm_find(c, at + bytes - 1, &found, &offset));
  CHECK(offset == bytes - 1);
  /* The last extent is longer than the buffer. */
  SAYS(TM_INVALID_ARGUMENT, "find", tm_find(c, at + bytes, &found, &offset));
  SAYS(TM_INVALID_ARGUMENT, "find", tm_find(c, at - 1, &found, &offset));

  CHECK(resident(buffer) >= bytes);
  OK(tm_evict_at(c, at, bytes, 10 * SECOND));
  CHECK(resident(buffer) == 0);
  OK(tm_prefetch_at(c, at + 2 * MIB, 1, TM_SOON, &op));
  OK(tm_op_wait(c, &op, 1, 10 * SECOND));
  const uint64_t one = resident(buffer);
  CHECK(one > 0 && one <= 2 * MIB);
  OK(tm_prefetch_at(c, at, bytes, TM_SOON, &op));
  OK(tm_op_wait(c, &op, 1, 10 * SECOND));
  CHECK(resident(buffer) >= bytes);
  OK(tm_prefetch_at(c, at, 0, TM_SOON, &op)); /* An operation that has nothing to do. */
  OK(tm_op_wait(c, &op, 1, 10 * SECOND));
  /* Exactly the bytes of the range are given up. */
  OK(tm_advise_at(c, at + 1000, 2 * MIB, TM_DONT_NEED, 0));
  CHECK(at[999] == 7 && at[1000] == 0 && at[1000 + 2 * MIB - 1] == 0 && at[1000 + 2 * MIB] == 7);
  /* A range that leaves the buffer changes nothing. */
  SAYS(TM_INVALID_ARGUMENT, "bytes into the range",
       tm_advise_at(c, at + bytes - 10, 11, TM_DONT_NEED, 0));
  CHECK(at[bytes - 10] == 7 && at[bytes - 1] == 7);
  OK(tm_free(c, buffer));
  SAYS(TM_INVALID_ARGUMENT, "find", tm_find(c, at, &found, &offset));
  SAYS(TM_INVALID_ARGUMENT, "evict_at", tm_evict_at(c, at, 1, 0));
}

/* The length of each buffer is two extents, so that some of them lie next to each other. */
static void range_over_two_buffers(void) {
  enum { kMost = 16 };
  const tm_buffer_options options = {
      .size = sizeof options, .flags = TM_MAPPED, .extent_bytes = 65536};
  tm_buffer buffers[kMost];
  char* at[kMost];
  char *low = NULL, *high = NULL;
  tm_buffer first = 0, second = 0;
  for (int i = 0; i < kMost; ++i) {
    void* memory = NULL;
    OK(tm_alloc(c, 131072, &options, &buffers[i]));
    OK(tm_address(c, buffers[i], &memory));
    at[i] = memory;
    memset(memory, i + 1, 131072);
    for (int other = 0; other < i; ++other) {
      if (at[other] + 131072 == at[i] || at[i] + 131072 == at[other]) {
        const int lower = at[other] < at[i] ? other : i;
        low = at[lower];
        high = low + 131072;
        first = buffers[lower];
        second = buffers[lower == i ? other : i];
      }
    }
  }
  CHECK(low != NULL); /* The arena of windows puts some side by side. */
  if (low != NULL) {
    const char of_first = low[0];
    OK(tm_evict_at(c, low + 65536, 131072, 10 * SECOND));
    CHECK(resident(first) == 65536 && resident(second) == 65536);
    OK(tm_advise_at(c, high - 3, 6, TM_DONT_NEED, 0));
    CHECK(high[-4] == of_first && high[-3] == 0 && high[2] == 0 && high[3] != 0);
  }
  for (int i = 0; i < kMost; ++i) {
    OK(tm_free(c, buffers[i]));
  }
}

static void objects(void) {
  const uint64_t bytes = 4 * MIB;
  void* object = NULL;
  tm_buffer found = 55;
  tm_capabilities caps = {.size = sizeof caps};
  tm_counters counters = {.size = sizeof counters};
  OK(tm_malloc(c, (tm_place){TM_ANY, 0}, bytes, &object));
  char* at = object;
  memset(at, 9, bytes);
  SAYS(TM_INVALID_ARGUMENT, "has no handle", tm_find(c, at, &found, NULL));
  CHECK(found == 55);
  OK(tm_stats(c, &counters));
  const uint64_t demoted = counters.demoted;
  OK(tm_evict_at(c, at, bytes, 10 * SECOND));
  OK(tm_stats(c, &counters));
  CHECK(counters.demoted >= demoted + bytes);
  OK(tm_prefetch_at(c, at, bytes, TM_SOON, NULL));
  CHECK(at[0] == 9 && at[bytes - 1] == 9);
  OK(tm_advise_at(c, at + 5, 100, TM_DONT_NEED, 0));
  CHECK(at[4] == 9 && at[5] == 0 && at[104] == 0 && at[105] == 9);
  OK(tm_free_ptr(c, object));
  OK(tm_caps(c, &caps));
}

int main(void) {
  c = open_context("");
  tm_capabilities caps = {.size = sizeof caps};
  views_and_foreign_addresses();
  OK(tm_caps(c, &caps));
  if ((caps.flags & TM_CAN_MAP) != 0) {
    mapped_buffers();
    range_over_two_buffers();
    objects();
  }
  close_context(c);
  tm_buffer found = 0;
  SAYS(TM_SHUT_DOWN, "has ended", tm_find(c, c, &found, NULL));
  SAYS(TM_SHUT_DOWN, "has ended", tm_evict_at(c, c, 1, 0));
  return finish();
}
