/* The table of functions for objects in one place. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>

#include "check.h"

#define MIB ((uint64_t)1 << 20)

/* Names for frameworks. tests/gpu/cuda_allocator_test.cpp has the fake driver. */
static void device_memory_without_a_gpu(tm_context* c) {
  SAYS(TM_UNSUPPORTED, "no GPU", tm_cuda_context(c));
  OK(tm_cuda_context(NULL));
  CHECK(tm_cuda_malloc(0, 0, NULL) == NULL);
  CHECK(tm_cuda_malloc(-1, 0, NULL) == NULL && strstr(last_text(), "-1 bytes") != NULL);
  CHECK(tm_cuda_malloc(1, -1, NULL) == NULL && strstr(last_text(), "GPU -1") != NULL);
  tm_cuda_free(NULL, 1, 0, NULL);
  int outside = 0;
  tm_cuda_free(&outside, sizeof outside, 0, NULL);
  CHECK(strstr(last_text(), "was not allocated by cuda_malloc") != NULL);
}

static void objects(tm_context* c, tm_place place) {
  tm_allocator a = {.size = sizeof a};
  OK(tm_allocator_init(c, place, &a));
  CHECK(a.size == sizeof a && a.state != NULL);

  char* p = a.malloc(a.state, 100);
  CHECK(p != NULL && a.usable(a.state, p) >= 100);
  memset(p, 1, 100);
  p = a.realloc(a.state, p, MIB);
  CHECK(p != NULL && p[0] == 1 && p[99] == 1 && a.usable(a.state, p) >= MIB);
  a.free(a.state, p);

  for (size_t alignment = 1; alignment <= MIB; alignment *= 2) {
    char* aligned = a.aligned(a.state, alignment, 10);
    CHECK(aligned != NULL && (uintptr_t)aligned % alignment == 0);
    a.free(a.state, aligned);
  }
  char* zeros = a.calloc(a.state, 1000, 100);
  CHECK(zeros != NULL);
  for (size_t i = 0; i < 100000; ++i) {
    if (zeros[i] != 0) {
      CHECK(!"zeros");
      break;
    }
  }
  a.free(a.state, zeros);
  char* none = a.malloc(a.state, 0);
  CHECK(none != NULL);
  none = a.realloc(a.state, none, 0);
  CHECK(none != NULL);
  a.free(a.state, none);
  a.free(a.state, NULL);
  char* first = a.realloc(a.state, NULL, 5);
  CHECK(first != NULL && a.usable(a.state, NULL) == 0);

  /* A failure is a null pointer and errno, as for malloc() of C. */
  errno = 0;
  CHECK(a.malloc(a.state, (size_t)-1) == NULL && errno == EINVAL);
  CHECK(strstr(last_text(), "malloc") != NULL);
  errno = 0;
  CHECK(a.calloc(a.state, (size_t)-1, 16) == NULL && errno == EINVAL);
  errno = 0;
  CHECK(a.aligned(a.state, 3, 16) == NULL && errno == EINVAL);
  errno = 0;
  CHECK(a.aligned(a.state, 32 * MIB, 16) == NULL && errno == ENOMEM); /* Above the DRAM budget. */
  errno = 0;
  CHECK(a.realloc(a.state, first, (size_t)-1) == NULL && errno == EINVAL);
  CHECK(a.usable(a.state, first) >= 5); /* It is still there. */
  errno = 77;
  a.free(a.state, &a);
  CHECK(errno == 77 && strstr(last_text(), "free_ptr") != NULL);
  CHECK(a.usable(a.state, &a) == 0);
  a.free(a.state, first);

  tm_counters counters = {.size = sizeof counters};
  OK(tm_stats(c, &counters));
  CHECK(counters.placed_used == 0);
}

typedef struct {
  tm_context* context;
  void* state;
} ask;

static void* state_of_any(void* argument) {
  ask* a = argument;
  tm_allocator table = {.size = sizeof table};
  a->state =
      tm_allocator_init(a->context, (tm_place){TM_HOST, 0}, &table) == TM_OK ? table.state : NULL;
  return NULL;
}

int main(void) {
  tm_context* c = open_context("");
  tm_context* second = open_context("");
  tm_allocator a = {.size = sizeof a}, b = {.size = sizeof b};
  objects(c, (tm_place){TM_ANY, 0});
  objects(c, (tm_place){TM_DRAM, 0});
  objects(second, (tm_place){TM_ANY, 0});

  /* One state for each context and place. */
  OK(tm_allocator_init(c, (tm_place){TM_ANY, 0}, &a));
  OK(tm_allocator_init(c, (tm_place){TM_ANY, 0}, &b));
  CHECK(a.state == b.state);
  OK(tm_allocator_init(c, (tm_place){TM_DRAM, 0}, &b));
  CHECK(a.state != b.state);
  OK(tm_allocator_init(second, (tm_place){TM_ANY, 0}, &b));
  CHECK(a.state != b.state);
  enum { kThreads = 8 };
  ask asks[kThreads];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    asks[i] = (ask){c, NULL};
    CHECK(pthread_create(&threads[i], NULL, state_of_any, &asks[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(asks[i].state != NULL && asks[i].state == asks[0].state);
  }

  SAYS(TM_INVALID_ARGUMENT, "null context", tm_allocator_init(NULL, (tm_place){TM_ANY, 0}, &b));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_allocator_init(c, (tm_place){TM_ANY, 0}, NULL));
  SAYS(TM_INVALID_ARGUMENT, "kind 77", tm_allocator_init(c, (tm_place){77, 0}, &b));
  SAYS(TM_UNAVAILABLE, "remote", tm_allocator_init(c, (tm_place){TM_REMOTE, 0}, &b));

  device_memory_without_a_gpu(c);

  /* A context that lacks the place, and one that has ended. */
  OK(tm_allocator_init(c, (tm_place){TM_GPU, 0}, &b));
  errno = 0;
  CHECK(b.malloc(b.state, 100) == NULL && errno == ENOMEM);
  void* left = a.malloc(a.state, 100);
  CHECK(left != NULL);
  close_context(c);
  errno = 0;
  CHECK(a.malloc(a.state, 100) == NULL && errno == ENOMEM);
  CHECK(strstr(last_text(), "has ended") != NULL);
  CHECK(a.realloc(a.state, left, 200) == NULL && a.usable(a.state, left) == 0);
  a.free(a.state, left);
  SAYS(TM_SHUT_DOWN, "has ended", tm_allocator_init(c, (tm_place){TM_ANY, 0}, &b));
  close_context(second);
  return finish();
}
