/* Typical use of the C interface: bytes survive eviction, views pin, handles become stale, budgets
 * hold, and a refusal names the holder. Each test has a context of its own. */
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB ((uint64_t)1 << 20)
#define SECOND ((int64_t)1000000000)

static tm_buffer make(tm_context* c, uint64_t bytes, const char* label) {
  tm_buffer_options options = {.size = sizeof options, .label = label};
  tm_buffer b = 0;
  OK(tm_alloc(c, bytes, &options, &b));
  CHECK(b != 0);
  return b;
}

static tm_residency info_of(tm_context* c, tm_buffer b) {
  tm_residency info = {.size = sizeof info};
  OK(tm_buffer_info(c, b, &info));
  return info;
}

static void fill(unsigned char* to, uint64_t n, uint64_t seed) {
  for (uint64_t i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    to[i] = (unsigned char)(seed >> 56);
  }
}

static int filled(const unsigned char* from, uint64_t n, uint64_t seed) {
  for (uint64_t i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    if (from[i] != (unsigned char)(seed >> 56)) {
      return 0;
    }
  }
  return 1;
}

static void bytes_outlive_memory(void) {
  tm_context* c = open_context("");
  const uint64_t chunk = 2 * MIB, chunks = 32; /* 64 MiB with 16 MiB of DRAM. */
  tm_buffer b = make(c, chunks * chunk, "large");
  tm_view v;
  for (uint64_t i = 0; i < chunks; ++i) {
    tm_access a = {.buffer = b, .offset = i * chunk, .length = chunk, .mode = TM_DISCARD};
    OK(tm_acquire(c, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
    CHECK(v.length == chunk && v.place.kind == TM_HOST && v.flags == 0);
    fill(v.data, chunk, i);
    OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  }
  for (uint64_t i = 0; i < chunks; ++i) {
    tm_access a = {.buffer = b, .offset = i * chunk, .length = chunk, .mode = TM_READ};
    tm_access next = a;
    next.offset = (i + 1) % chunks * chunk;
    OK(tm_prefetch(c, &next, 1, TM_SOON, NULL));
    OK(tm_acquire(c, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
    CHECK(filled(v.data, chunk, i));
    OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  }
  tm_counters counters = {.size = sizeof counters};
  OK(tm_stats(c, &counters));
  CHECK(counters.dram_budget == 16 * MIB && counters.dram_used <= counters.dram_budget);
  CHECK(counters.buffers == 1 && counters.dram_pinned == 0 && counters.misses > 0);
  CHECK(counters.promoted + counters.prefetched >= 48 * MIB && counters.demoted >= 48 * MIB);
  CHECK(counters.host_bytes_in == counters.promoted + counters.prefetched);
  CHECK(counters.host_bytes_out == counters.demoted);
  CHECK(counters.demanded == counters.promoted);
  close_context(c);
}

static void receipts(void) {
  tm_context* c = open_context("");
  tm_buffer b = make(c, 4 * MIB, "told of");
  tm_whereabouts where = {.size = sizeof where};
  OK(tm_why(c, b, 0, &where));
  CHECK(where.state == TM_STATE_ZERO && where.reason == TM_REASON_NONE && where.since_ns == -1);
  tm_access all = {.buffer = b, .mode = TM_DISCARD};
  tm_view v;
  OK(tm_acquire(c, &all, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  fill(v.data, 4 * MIB, 7);
  OK(tm_why(c, b, 3 * MIB, &where));
  CHECK(where.state == TM_STATE_RESIDENT && where.place.kind == TM_DRAM);
  CHECK(where.flags == (TM_WHERE_DIRTY | TM_WHERE_PINNED) && where.reason == TM_REASON_DEMAND);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  all.mode = TM_READ;
  OK(tm_evict(c, &all, 1, 10 * SECOND));
  OK(tm_why(c, b, 4 * MIB - 1, &where));
  CHECK(where.state == TM_STATE_IN_SLOT && where.place.kind == TM_BLOCK && where.flags == 0);
  CHECK(where.reason == TM_REASON_ASKED && where.since_ns >= 0);
  CHECK(strstr(where.text, "in block") != NULL);
  SAYS(TM_INVALID_ARGUMENT, "4194304", tm_why(c, b, 4 * MIB, &where));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_why(NULL, b, 0, &where));

  size_t length = 0;
  OK(tm_stats_json(c, 8, NULL, 0, &length));
  CHECK(length > 100);
  char* text = malloc(length + 1000);
  OK(tm_stats_json(c, 8, text, length + 1000, &length));
  CHECK(strlen(text) == length && strstr(text, "\"demoted\":4194304") != NULL);
  SAYS(TM_NO_CAPACITY, "the text needs", tm_stats_json(c, 8, text, 10, &length));
  /* The room that is named is enough, and one byte less is not. Times in it may take more digits
   * from one call to the next. */
  int exact = 0;
  for (int tries = 0; tries < 100 && !exact; ++tries) {
    OK(tm_stats_json(c, 8, NULL, 0, &length));
    tm_status status = tm_stats_json(c, 8, text, length, &length);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "stats_json: the text needs %zu bytes", length + 1);
    exact = status == TM_NO_CAPACITY && strstr(last_text(), wanted) != NULL &&
            tm_stats_json(c, 8, text, length + 1, &length) == TM_OK;
  }
  CHECK(exact);
  SAYS(TM_INVALID_ARGUMENT, "out_length", tm_stats_json(c, 8, text, 10, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_stats_json(NULL, 8, text, 10, &length));
  free(text);
  OK(tm_free(c, b));
  SAYS(TM_STALE_HANDLE, "0x", tm_why(c, b, 0, &where));
  close_context(c);
}

static void moving_by_hand(void) {
  tm_context* c = open_context("");
  tm_buffer b = make(c, 4 * MIB, "moved");
  tm_access all = {.buffer = b, .mode = TM_READ};
  unsigned char bytes[5000];
  tm_residency info = info_of(c, b);
  CHECK(strcmp(info.label, "moved") == 0 && info.bytes == 4 * MIB);
  CHECK(info.zero == 4 * MIB && info.resident == 0 && info.extents * info.extent_bytes == 4 * MIB);
  memset(bytes, 1, sizeof bytes);
  OK(tm_read(c, b, MIB, bytes, sizeof bytes, 10 * SECOND));
  for (size_t i = 0; i < sizeof bytes; ++i) {
    if (bytes[i] != 0) {
      CHECK(bytes[i] == 0);
      break;
    }
  }
  fill(bytes, sizeof bytes, 3);
  OK(tm_write(c, b, 2 * MIB - 100, bytes, sizeof bytes,
              10 * SECOND)); /* Across the boundary of two extents. */
  CHECK(info_of(c, b).dirty != 0);
  OK(tm_evict(c, &all, 1, 10 * SECOND));
  info = info_of(c, b);
  CHECK(info.resident == 0 && info.in_slots == 4 * MIB);
  OK(tm_migrate(c, &all, 1, (tm_place){TM_DRAM, 0}, 10 * SECOND));
  info = info_of(c, b);
  CHECK(info.resident == 4 * MIB && info.dirty == 0);
  OK(tm_migrate(c, &all, 1, (tm_place){TM_BLOCK, 0}, 10 * SECOND));
  CHECK(info_of(c, b).resident == 0);
  memset(bytes, 1, sizeof bytes);
  OK(tm_read(c, b, 2 * MIB - 100, bytes, sizeof bytes, 10 * SECOND));
  CHECK(filled(bytes, sizeof bytes, 3));
  OK(tm_advise(c, &all, 1, TM_DONT_NEED, 0));
  OK(tm_read(c, b, 2 * MIB - 100, bytes, 1, 10 * SECOND));
  CHECK(bytes[0] == 0);
  for (uint32_t advice = TM_ADVICE_NORMAL; advice <= TM_NEXT_USE; ++advice) {
    OK(tm_advise(c, &all, 1, advice, advice == TM_KEEP || advice == TM_NEXT_USE));
  }
  uint64_t first = 0, second = 0;
  OK(tm_tick(c, TM_TICK_OP, &first));
  OK(tm_tick(c, TM_TICK_OP, NULL));
  OK(tm_tick(c, TM_TICK_STEP, &second));
  CHECK(first > 0 && second == first + 2);
  OK(tm_free(c, b));
  close_context(c);
}

static void handles_and_views(void) {
  tm_context* c = open_context("");
  tm_buffer b = make(c, MIB, "short");
  tm_access a = {.buffer = b, .mode = TM_WRITE};
  tm_view v, same, forged;
  OK(tm_acquire(c, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  OK(tm_acquire(c, &a, 1, TM_HOST_ORDER, 0, &same)); /* Views are pins and not locks. */
  CHECK(v.data == same.data && info_of(c, b).pinned != 0);
  fill(v.data, MIB, 5);

  /* After the free the handle is stale at once, and the view stays valid. */
  OK(tm_free(c, b));
  tm_view none = same;
  SAYS(TM_STALE_HANDLE, "not a live buffer", tm_free(c, b));
  IS(TM_STALE_HANDLE, tm_acquire(c, &a, 1, TM_HOST_ORDER, 0, &none));
  IS(TM_STALE_HANDLE, tm_prefetch(c, &a, 1, TM_SOON, NULL));
  CHECK(memcmp(&none, &same, sizeof none) == 0);
  CHECK(filled(v.data, MIB, 5));

  /* A view that was released already, a forged one, and a list with a valid one. */
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  SAYS(TM_INVALID_ARGUMENT, "not held", tm_release(c, &v, 1, TM_HOST_ORDER));
  memset(&forged, 0, sizeof forged);
  IS(TM_INVALID_ARGUMENT, tm_release(c, &forged, 1, TM_HOST_ORDER));
  memset(&forged, 0xff, sizeof forged);
  IS(TM_INVALID_ARGUMENT, tm_release(c, &forged, 1, TM_HOST_ORDER));
  forged = same;
  forged.token[1] += 2;
  forged.token[0] ^= 1;
  IS(TM_INVALID_ARGUMENT, tm_release(c, &forged, 1, TM_HOST_ORDER));
  tm_view list[2] = {v, same};
  IS(TM_INVALID_ARGUMENT, tm_release(c, list, 2, TM_HOST_ORDER));
  IS(TM_INVALID_ARGUMENT,
     tm_release(c, &same, 1, TM_HOST_ORDER)); /* It was released together with the list. */

  /* A new buffer in the same record has another handle. */
  tm_buffer again = make(c, MIB, "again");
  CHECK(again != b);
  IS(TM_STALE_HANDLE, tm_acquire(c, &a, 1, TM_HOST_ORDER, 0, &none));
  close_context(c);
}

static void long_lists(void) {
  tm_context* c = open_context("");
  enum { kMany = 1000 };
  static tm_access list[kMany];
  static tm_view views[kMany];
  tm_buffer b = make(c, kMany * 4096, "list");
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < kMany; ++i) {
      list[i] = (tm_access){.buffer = b, .offset = i * 4096, .length = 4096, .mode = TM_WRITE};
    }
    OK(tm_acquire(c, list, kMany, TM_HOST_ORDER, 10 * SECOND, views));
    for (uint64_t i = 0; i < kMany; ++i) {
      uint64_t* word = views[i].data;
      CHECK(views[i].length == 4096 && *word == (round > 0 ? i + (uint64_t)round : 0));
      *word = i + (uint64_t)round + 1;
    }
    OK(tm_release(c, views, kMany, TM_HOST_ORDER));
    CHECK(info_of(c, b).pinned == 0);
  }
  close_context(c);
}

static void refusals_name_the_holder(void) {
  tm_context* c = open_context("");
  tm_buffer hog = make(c, 12 * MIB, "hog"), other = make(c, 12 * MIB, "other");
  tm_access a = {.buffer = hog, .mode = TM_WRITE}, b = {.buffer = other, .mode = TM_READ};
  tm_view v, w = {.length = 55};
  tm_error_info info = {.size = sizeof info};
  IS(TM_BUSY, tm_acquire(c, &b, 1, TM_HOST_ORDER, 0, &w)); /* The buffer is not resident now. */
  OK(tm_acquire(c, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  SAYS(TM_NO_CAPACITY, "hog", tm_acquire(c, &b, 1, TM_HOST_ORDER, SECOND / 20, &w));
  CHECK(w.length == 55);
  OK(tm_error(c, 0, &info));
  CHECK(info.status == TM_NO_CAPACITY && info.tier.kind == TM_DRAM && info.budget == 16 * MIB);
  CHECK(info.pinned >= 12 * MIB && info.used <= info.budget && info.needed > 0);
  CHECK(strcmp(info.holder, "hog") == 0 && strstr(info.setting, "dram") != NULL);
  SAYS(TM_BUSY, "pinned", tm_evict(c, &a, 1, SECOND / 20));
  SAYS(TM_NO_CAPACITY, "hog", tm_set_budget(c, (tm_place){TM_DRAM, 0}, 8 * MIB, SECOND / 20));
  SAYS(TM_BUSY, "hog", tm_context_destroy(c, 0, SECOND));
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  OK(tm_set_budget(c, (tm_place){TM_DRAM, 0}, 8 * MIB, 10 * SECOND));
  OK(tm_set_budget(c, (tm_place){TM_BLOCK, 0}, 128 * MIB, 10 * SECOND));
  tm_counters counters = {.size = sizeof counters};
  OK(tm_stats(c, &counters));
  CHECK(counters.dram_budget == 8 * MIB && counters.dram_used <= 8 * MIB);
  CHECK(counters.block_budget == 128 * MIB);
  tm_capabilities caps = {.size = sizeof caps};
  OK(tm_caps(c, &caps));
  CHECK(caps.tiers >= 2);
  for (uint32_t i = 0; i < caps.tiers; ++i) {
    tm_tier_counters tier = {.size = sizeof tier};
    OK(tm_stats_tier(c, i, &tier));
    CHECK(tier.tier.kind == TM_DRAM || tier.tier.kind == TM_BLOCK || tier.tier.kind == TM_FILE);
    CHECK(tier.budget == (tier.tier.kind == TM_DRAM    ? 8 * MIB
                          : tier.tier.kind == TM_BLOCK ? 128 * MIB
                                                       : 0));
    CHECK(tier.used <= tier.budget && tier.pinned <= tier.used);
  }
  tm_tier_counters none = {.size = sizeof none};
  SAYS(TM_INVALID_ARGUMENT, "accepted", tm_stats_tier(c, caps.tiers, &none));
  SAYS(TM_NO_CAPACITY, "dram", tm_acquire(c, &a, 1, TM_HOST_ORDER, SECOND / 20, &v));
  close_context(c);
}

static void adopted_files(void) {
  tm_context* c = open_context("");
  char path[600];
  static unsigned char bytes[3 * 1048576 + 17];
  snprintf(path, sizeof path, "%s/adopted", folder());
  fill(bytes, sizeof bytes, 7);
  FILE* file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(bytes, sizeof bytes, 1, file) == 1 && fclose(file) == 0);
  tm_buffer b = 0;
  tm_buffer_options options = {.size = sizeof options, .label = "file"};
  OK(tm_adopt_file(c, path, 5000, 0, &options, &b));
  tm_access a = {.buffer = b, .mode = TM_READ};
  tm_view v;
  OK(tm_acquire(c, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  CHECK(v.length == sizeof bytes - 5000 && memcmp(v.data, bytes + 5000, v.length) == 0);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  a.mode = TM_WRITE;
  SAYS(TM_INVALID_ARGUMENT, "read-only", tm_acquire(c, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  IS(TM_INVALID_ARGUMENT, tm_write(c, b, 0, bytes, 1, 10 * SECOND));
  tm_buffer none = 55;
  SAYS(TM_INVALID_ARGUMENT, "not inside", tm_adopt_file(c, path, sizeof bytes + 1, 0, NULL, &none));
  SAYS(TM_INVALID_ARGUMENT, "not inside", tm_adopt_file(c, path, 1, sizeof bytes, NULL, &none));
  CHECK(none == 55);
  OK(tm_free(c, b));
  close_context(c);
  CHECK(remove(path) == 0);
}

/* A file as memory, and a private copy of it, if the kernel supports it. */
static void mapped_files(void) {
  tm_context* c = open_context("");
  char path[600];
  static unsigned char bytes[3 * 1048576 + 17];
  snprintf(path, sizeof path, "%s/mapped", folder());
  fill(bytes, sizeof bytes, 9);
  FILE* file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(bytes, sizeof bytes, 1, file) == 1 && fclose(file) == 0);
  tm_capabilities caps = {.size = sizeof caps};
  OK(tm_caps(c, &caps));
  tm_buffer_options options = {.size = sizeof options, .flags = TM_MAPPED, .label = "file"};
  tm_buffer b = 0;
  void* at = NULL;
  tm_status status = tm_adopt_file(c, path, 5000, 0, &options, &b);
  if (status == TM_UNSUPPORTED) {
    printf("no mapped files: %s\n", tm_status_name(status));
  } else {
    OK(status);
    OK(tm_address(c, b, &at));
    CHECK((uintptr_t)at % 4096 == 5000 % 4096 &&
          memcmp(at, bytes + 5000, sizeof bytes - 5000) == 0);
    OK(tm_free(c, b));
  }
  options.flags = TM_MAPPED | TM_PRIVATE;
  if ((caps.flags & TM_CAN_MAP) != 0) {
    OK(tm_adopt_file(c, path, 5000, 0, &options, &b));
    OK(tm_address(c, b, &at));
    memset((unsigned char*)at + 100, 'x', 3);
    tm_access a = {.buffer = b, .mode = TM_READ};
    OK(tm_evict(c, &a, 1, 10 * SECOND));
    CHECK(memcmp((unsigned char*)at + 100, "xxx", 3) == 0);
    CHECK(memcmp((unsigned char*)at + 103, bytes + 5103, sizeof bytes - 5103) == 0);
    OK(tm_free(c, b));
  }
  close_context(c);
  CHECK(remove(path) == 0);
}

/* 64 MiB of plain memory with 16 MiB of DRAM, if the kernel supports it. */
static void mapped_buffers(void) {
  tm_context* c = open_context("");
  tm_buffer b = 0, plain = make(c, MIB, "plain");
  void* at = NULL;
  tm_buffer_options options = {.size = sizeof options, .flags = TM_MAPPED, .label = "mapped"};
  tm_capabilities caps = {.size = sizeof caps};
  SAYS(TM_UNSUPPORTED, "plain", tm_address(c, plain, &at));
  OK(tm_caps(c, &caps));
  if ((caps.flags & TM_CAN_MAP) == 0) {
    SAYS(TM_UNSUPPORTED, "mapped", tm_alloc(c, 64 * MIB, &options, &b));
    close_context(c);
    return;
  }
  OK(tm_alloc(c, 64 * MIB, &options, &b));
  OK(tm_address(c, b, &at));
  for (uint64_t i = 0; i < 32; ++i) {
    fill((unsigned char*)at + i * 2 * MIB, 2 * MIB, i);
  }
  for (uint64_t i = 0; i < 32; ++i) {
    CHECK(filled((unsigned char*)at + i * 2 * MIB, 2 * MIB, i));
  }
  tm_counters counters = {.size = sizeof counters};
  OK(tm_stats(c, &counters));
  CHECK(counters.dram_used <= counters.dram_budget && counters.demoted >= 48 * MIB);
  CHECK(counters.faults > 0 && counters.poisoned_touches == 0);
  OK(tm_free(c, b));
  at = NULL;
  IS(TM_STALE_HANDLE, tm_address(c, b, &at));
  CHECK(at == NULL);
  close_context(c);
}

static void ends(void) {
  /* Ends by force while a view is held. */
  tm_context* c = open_context("");
  tm_buffer b = make(c, MIB, "held");
  tm_access a = {.buffer = b, .mode = TM_WRITE};
  tm_view v;
  OK(tm_acquire(c, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  SAYS(TM_BUSY, "held", tm_context_destroy(c, 0, 10 * SECOND));
  OK(tm_write(c, b, 0, &a, sizeof a, 10 * SECOND)); /* The context still works. */
  OK(tm_context_destroy(c, TM_DESTROY_FORCE, 10 * SECOND));
  /* Ends with a buffer that was not freed. */
  c = open_context("");
  make(c, 8 * MIB, "left");
  OK(tm_context_destroy(c, 0, -1));
  /* Contexts that exist at the same time share nothing. */
  tm_context* one = open_context("");
  tm_context* two = open_context("");
  b = make(one, MIB, "one's");
  a = (tm_access){.buffer = b, .mode = TM_WRITE};
  OK(tm_acquire(one, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  IS(TM_STALE_HANDLE, tm_free(two, b));
  OK(tm_release(one, &v, 1, TM_HOST_ORDER));
  close_context(two);
  close_context(one);
}

/* In a child of fork each call returns an error: the context belongs to the parent. */
static void forks(void) {
  tm_context* c = open_context("");
  tm_buffer b = make(c, MIB, "parent's"), other = 0;
  tm_access a = {.buffer = b, .mode = TM_WRITE};
  tm_view v;
  tm_counters counters = {.size = sizeof counters};
  OK(tm_acquire(c, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  fill(v.data, MIB, 9);
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    g_failures = 0;
    CHECK(filled(v.data, MIB, 9)); /* A held view stays readable. */
    SAYS(TM_SHUT_DOWN, "parent", tm_alloc(c, MIB, NULL, &other));
    SAYS(TM_SHUT_DOWN, "parent", tm_acquire(c, &a, 1, TM_HOST_ORDER, 10 * SECOND, &v));
    SAYS(TM_SHUT_DOWN, "parent", tm_tick(c, TM_TICK_OP, NULL));
    SAYS(TM_SHUT_DOWN, "parent", tm_stats(c, &counters));
    OK(tm_context_destroy(c, 0, SECOND));
    _Exit(g_failures == 0 ? 0 : 1);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  CHECK(filled(v.data, MIB, 9));
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
  close_context(c);
}

int main(void) {
  bytes_outlive_memory();
  receipts();
  moving_by_hand();
  handles_and_views();
  long_lists();
  refusals_name_the_holder();
  adopted_files();
  mapped_files();
  mapped_buffers();
  ends();
  forks();
  return finish();
}
