/* Objects by key, in C: every function, its results and its errors. */
#include <stdint.h>

#include "check.h"

static tm_object object(const char* key, void* memory, uint64_t bytes) {
  return (tm_object){.key = key, .key_bytes = strlen(key), .memory = memory, .bytes = bytes};
}

static tm_store* open_store(tm_context* context, uint64_t capacity) {
  const tm_store_options options = {
      .size = sizeof options, .name = "kv", .capacity_bytes = capacity};
  tm_store* store = NULL;
  OK(tm_store_open(context, &options, &store));
  return store;
}

static tm_store_counters stats_of(tm_store* store) {
  tm_store_counters stats = {.size = sizeof stats};
  OK(tm_store_stats(store, &stats));
  return stats;
}

static void opens(void) {
  tm_context* context = open_context("");
  tm_store* store = NULL;
  tm_store_options options = {.size = sizeof options, .capacity_bytes = 1 << 20};
  IS(TM_INVALID_ARGUMENT, tm_store_open(NULL, &options, &store));
  IS(TM_INVALID_ARGUMENT, tm_store_open(context, NULL, &store));
  IS(TM_INVALID_ARGUMENT, tm_store_open(context, &options, NULL));
  options.size = 3;
  SAYS(TM_INVALID_ARGUMENT, "size 3", tm_store_open(context, &options, &store));
  options.size = sizeof options;
  options.flags = TM_STORE_PERSIST;
  SAYS(TM_UNSUPPORTED, "without the flag", tm_store_open(context, &options, &store));
  options.flags = 2;
  SAYS(TM_INVALID_ARGUMENT, "flags 0x2", tm_store_open(context, &options, &store));
  options.flags = 0;
  options.capacity_bytes = 0;
  SAYS(TM_INVALID_ARGUMENT, "capacity_bytes is 0", tm_store_open(context, &options, &store));
  CHECK(store == NULL);
  IS(TM_INVALID_ARGUMENT, tm_store_close(NULL));
  IS(TM_INVALID_ARGUMENT, tm_store_stats(NULL, NULL));
  OK(tm_context_destroy(context, 0, -1));
}

static void stores(void) {
  tm_context* context = open_context("");
  tm_store* store = open_store(context, 1 << 20);
  char one[5000], two[100000], back[100000];
  memset(one, 1, sizeof one);
  memset(two, 2, sizeof two);
  tm_object list[3] = {object("one", one, sizeof one), object("two", two, sizeof two),
                       object("none", back, sizeof back)};
  OK(tm_store_put(store, list, 2, -1, NULL));
  CHECK(list[0].found == 1 && list[0].stored == sizeof one && list[0].status == TM_OK);
  OK(tm_store_exists(store, list, 3));
  CHECK(list[0].found && list[1].found && !list[2].found && list[1].stored == sizeof two);

  list[1].memory = back;
  list[1].bytes = sizeof back;
  OK(tm_store_get(store, list, 3, -1, NULL));
  CHECK(list[1].found && memcmp(back, two, sizeof two) == 0 && !list[2].found);
  tm_store_counters stats = stats_of(store);
  CHECK(stats.objects == 2 && stats.hits == 2 && stats.misses == 1 && stats.puts == 2);
  CHECK(stats.used == 8192 + 102400 && stats.capacity == 1 << 20);

  /* Replaced as a whole, by fewer bytes. */
  tm_object shorter = object("two", one, 7);
  OK(tm_store_put(store, &shorter, 1, -1, NULL));
  OK(tm_store_get(store, &list[1], 1, -1, NULL));
  CHECK(list[1].stored == 7 && back[6] == 1 && back[7] == 2);
  CHECK(stats_of(store).used == 8192 + 4096);

  OK(tm_store_delete(store, list, 3));
  CHECK(list[0].found && list[1].found && !list[2].found);
  CHECK(stats_of(store).objects == 0 && stats_of(store).used == 0);
  OK(tm_store_close(store));
  tm_counters counters = {.size = sizeof counters};
  OK(tm_stats(context, &counters));
  CHECK(counters.buffers == 0);
  OK(tm_context_destroy(context, 0, -1));
}

static void refuses(void) {
  tm_context* context = open_context("");
  tm_store* store = open_store(context, 64 << 10);
  char bytes[256] = {0}, key[300];
  memset(key, 'k', sizeof key);
  tm_object bad = {.key = key, .key_bytes = 0, .memory = bytes, .bytes = 1};
  SAYS(TM_INVALID_ARGUMENT, "a key of 0 bytes", tm_store_put(store, &bad, 1, -1, NULL));
  SAYS(TM_INVALID_ARGUMENT, "a key of 0 bytes", tm_store_get(store, &bad, 1, -1, NULL));
  SAYS(TM_INVALID_ARGUMENT, "a key of 0 bytes", tm_store_exists(store, &bad, 1));
  SAYS(TM_INVALID_ARGUMENT, "a key of 0 bytes", tm_store_delete(store, &bad, 1));
  SAYS(TM_INVALID_ARGUMENT, "a key of 0 bytes", tm_store_pin(store, &bad, 1));
  bad.key_bytes = 256;
  SAYS(TM_INVALID_ARGUMENT, "a key of 256 bytes", tm_store_put(store, &bad, 1, -1, NULL));
  bad.key_bytes = 255;
  OK(tm_store_put(store, &bad, 1, -1, NULL));
  bad.key = NULL;
  IS(TM_INVALID_ARGUMENT, tm_store_get(store, &bad, 1, -1, NULL));

  /* One bad object of several: the others are stored, and the first error is the result. */
  tm_object list[3] = {object("a", bytes, 10), object("b", NULL, 10), object("c", bytes, 0)};
  SAYS(TM_INVALID_ARGUMENT, "null address", tm_store_put(store, list, 3, -1, NULL));
  CHECK(list[0].found && list[0].status == TM_OK);
  CHECK(!list[1].found && list[1].status == TM_INVALID_ARGUMENT);
  CHECK(list[2].status == TM_INVALID_ARGUMENT);
  tm_object huge = object("huge", bytes, (uint64_t)1 << 40);
  SAYS(TM_INVALID_ARGUMENT, "134217728", tm_store_put(store, &huge, 1, -1, NULL));

  /* Less room than the object has: nothing is copied, and its size is told. */
  list[0].bytes = 9;
  bytes[0] = 77;
  SAYS(TM_INVALID_ARGUMENT, "has 10", tm_store_get(store, list, 1, -1, NULL));
  CHECK(list[0].found && list[0].stored == 10 && bytes[0] == 77);

  IS(TM_INVALID_ARGUMENT, tm_store_put(NULL, list, 1, -1, NULL));
  IS(TM_INVALID_ARGUMENT, tm_store_put(store, NULL, 1, -1, NULL));
  OK(tm_store_put(store, NULL, 0, -1, NULL));
  IS(TM_INVALID_ARGUMENT, tm_store_get(store, list, (size_t)-1, -1, NULL));
  OK(tm_store_close(store));
  OK(tm_context_destroy(context, 0, -1));
}

static void full(void) {
  tm_context* context = open_context("");
  tm_store* store = open_store(context, 16 * 4096);
  char bytes[4096] = {0}, names[64][8];
  for (int i = 0; i < 64; ++i) {
    snprintf(names[i], sizeof names[i], "k%d", i);
    tm_object each = object(names[i], bytes, sizeof bytes);
    OK(tm_store_put(store, &each, 1, -1, NULL));
    if (i == 0) {
      OK(tm_store_pin(store, &each, 1));
      OK(tm_store_pin(store, &each, 1));
      CHECK(each.found);
    }
  }
  tm_store_counters stats = stats_of(store);
  CHECK(stats.objects == 16 && stats.used == 16 * 4096 && stats.evicted == 48);
  CHECK(stats.pinned == 1);
  tm_object first = object("k0", bytes, sizeof bytes), last = object("k63", bytes, sizeof bytes);
  OK(tm_store_exists(store, &first, 1));
  OK(tm_store_exists(store, &last, 1));
  CHECK(first.found && last.found);

  tm_object large = object("large", malloc(16 * 4096), 16 * 4096);
  memset(large.memory, 1, 16 * 4096);
  SAYS(TM_NO_CAPACITY, "1 objects are pinned", tm_store_put(store, &large, 1, -1, NULL));
  CHECK(large.status == TM_NO_CAPACITY && !large.found);
  OK(tm_store_unpin(store, &first, 1));
  OK(tm_store_unpin(store, &first, 1));
  CHECK(first.found && stats_of(store).pinned == 0);
  OK(tm_store_unpin(store, &first, 1));
  CHECK(!first.found);
  OK(tm_store_put(store, &large, 1, -1, NULL));
  stats = stats_of(store);
  CHECK(stats.objects == 1 && stats.refused == 1 && stats.used == 16 * 4096);
  free(large.memory);
  OK(tm_store_close(store));
  OK(tm_context_destroy(context, 0, -1));
}

/* Objects of four times the memory, put and read by operations of which several are under way. */
static void operations(void) {
  enum { kOps = 8, kEach = 8, kBytes = 1 << 20 };
  tm_context* context = open_context("");
  tm_store* store = open_store(context, 128 << 20);
  static tm_object list[kOps][kEach];
  static char names[kOps][kEach][16];
  unsigned char* memory = malloc((size_t)kOps * kEach * kBytes);
  tm_op ops[kOps];
  for (int i = 0; i < kOps * kEach; ++i) {
    snprintf(names[i / kEach][i % kEach], 16, "object %d", i);
    memset(memory + (size_t)i * kBytes, i + 1, kBytes);
    list[i / kEach][i % kEach] =
        object(names[i / kEach][i % kEach], memory + (size_t)i * kBytes, kBytes);
  }
  for (int i = 0; i < kOps; ++i) {
    OK(tm_store_put(store, list[i], kEach, -1, &ops[i]));
  }
  OK(tm_op_wait(context, ops, kOps, -1));
  CHECK(stats_of(store).objects == kOps * kEach);
  memset(memory, 0, (size_t)kOps * kEach * kBytes);
  for (int i = 0; i < kOps; ++i) {
    OK(tm_store_get(store, list[i], kEach, -1, &ops[i]));
  }
  OK(tm_op_wait(context, ops, kOps, -1));
  for (int i = 0; i < kOps * kEach; ++i) {
    CHECK(list[i / kEach][i % kEach].found);
    CHECK(memory[(size_t)i * kBytes] == i + 1 && memory[(size_t)(i + 1) * kBytes - 1] == i + 1);
  }
  CHECK(stats_of(store).hits == kOps * kEach);

  /* An operation in progress is waited for by the end of the store. */
  OK(tm_store_get(store, list[0], kEach, -1, &ops[0]));
  OK(tm_store_close(store));
  OK(tm_op_wait(context, ops, 1, -1));

  /* Without a wait, absent objects are busy. */
  store = open_store(context, 128 << 20);
  OK(tm_store_put(store, list[0], kEach, -1, NULL));
  OK(tm_store_put(store, list[1], kEach, -1, NULL));
  OK(tm_store_put(store, list[2], kEach, -1, NULL));
  (void)tm_store_get(store, list[0], kEach, 0, NULL);
  unsigned busy = 0;
  for (int i = 0; i < kEach; ++i) {
    busy += list[0][i].status == TM_BUSY ? 1 : 0;
  }
  CHECK(busy != 0);

  OK(tm_context_destroy(context, 0, -1));
  SAYS(TM_SHUT_DOWN, "has ended", tm_store_get(store, list[0], 1, -1, NULL));
  IS(TM_SHUT_DOWN, tm_store_put(store, list[0], 1, -1, &ops[0]));
  IS(TM_SHUT_DOWN, tm_store_exists(store, list[0], 1));
  tm_store_counters ended = {.size = sizeof ended};
  IS(TM_SHUT_DOWN, tm_store_stats(store, &ended));
  OK(tm_store_close(store));
  free(memory);
}

int main(void) {
  opens();
  stores();
  refuses();
  full();
  operations();
  return finish();
}
