/* The C interface as a contract. Each wrong argument of each function is passed alone; the tests
 * check the status, the message, and that results stay unchanged. They also pass structs that are
 * older or newer than the library. */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

#define MIB ((uint64_t)1 << 20)
#define FOREVER (-1)

static tm_context* c;
static tm_buffer b; /* 1 MiB */

static const tm_view kView = {.data = (void*)0x55, .length = 7, .token = {8, 9}};

static tm_access range(uint64_t offset, uint64_t length, uint32_t mode) {
  tm_access a = {.buffer = b, .offset = offset, .length = length, .mode = mode};
  return a;
}

static void names_and_numbers(void) {
  static const char* names[] = {"ok",          "invalid_argument", "stale_handle", "no_capacity",
                                "busy",        "timed_out",        "cancelled",    "unsupported",
                                "unavailable", "io_error",         "discarded",    "lost",
                                "shut_down",   "internal"};
  for (int i = TM_OK; i <= TM_INTERNAL; ++i) {
    CHECK(strcmp(tm_status_name(i), names[i]) == 0);
  }
  CHECK(strcmp(tm_status_name(TM_INTERNAL + 1), "unknown") == 0);
  CHECK(strcmp(tm_status_name(-1), "unknown") == 0);
  CHECK(tm_version() == TM_VERSION);
  CHECK(sizeof(tm_access) == 40 && sizeof(tm_view) == 40 && sizeof(tm_place) == 4);
}

static void before_any_error(void) {
  tm_error_info info = {.size = sizeof info, .status = 99};
  OK(tm_error(NULL, 0, &info));
  CHECK(info.status == TM_OK && info.text[0] == '\0');
  CHECK(info.holder != NULL && info.holder[0] == '\0');
  CHECK(info.setting != NULL && info.setting[0] == '\0');
}

static void create(void) {
  tm_context* out = (tm_context*)0x55;
  tm_context_options options = {.size = sizeof options};
  SAYS(TM_INVALID_ARGUMENT, "out", tm_context_create("dram=16M", NULL, NULL));
  SAYS(TM_INVALID_ARGUMENT, "dram", tm_context_create("dram=lots", NULL, &out));
  SAYS(TM_INVALID_ARGUMENT, "colour", tm_context_create("colour=red", NULL, &out));
  SAYS(TM_UNAVAILABLE, "gpu", tm_context_create("gpu=0:1G; gpu_driver=/no/libcuda.so", NULL, &out));
  SAYS(TM_INVALID_ARGUMENT, "numa", tm_context_create("numa=1023:1G", NULL, &out));
  SAYS(TM_INVALID_ARGUMENT, "pmem", tm_context_create("pmem=/no/such:1G", NULL, &out));
  options.size = 0;
  SAYS(TM_INVALID_ARGUMENT, "size 0", tm_context_create("dram=16M", &options, &out));
  options.size = sizeof options - 8;
  SAYS(TM_INVALID_ARGUMENT, "size", tm_context_create("dram=16M", &options, &out));
  options.size = sizeof options;
  options.flags = 1;
  SAYS(TM_INVALID_ARGUMENT, "flags", tm_context_create("dram=16M", &options, &out));
  options.flags = 0;
  options.reserved = 1;
  SAYS(TM_INVALID_ARGUMENT, "reserved", tm_context_create("dram=16M", &options, &out));
  options.reserved = 0;
  options.toml = "/nonexistent/tiermem.toml";
  SAYS(TM_IO_ERROR, "/nonexistent/tiermem.toml", tm_context_create("dram=16M", &options, &out));
  CHECK(out == (tm_context*)0x55);
}

static void null_contexts(void) {
  tm_access a = {.mode = TM_READ};
  tm_place dram = {TM_DRAM, 0}, gpu = {TM_GPU, 0};
  tm_view v = kView;
  tm_buffer buffer = 55;
  tm_op op = 55;
  uint64_t ordinal = 55;
  char byte = 55;
  void* address = &byte;
  tm_residency residency = {.size = sizeof residency, .bytes = 55};
  tm_counters counters = {.size = sizeof counters, .steps = 55};
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_context_destroy(NULL, 0, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_alloc(NULL, MIB, NULL, &buffer));
  SAYS(TM_INVALID_ARGUMENT, "null context",
       tm_adopt_file(NULL, "/etc/passwd", 0, 0, NULL, &buffer));
  SAYS(TM_INVALID_ARGUMENT, "null context",
       tm_adopt_device(NULL, gpu, &byte, 1, TM_HOST_ORDER, FOREVER, NULL, &buffer));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_free(NULL, 1));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_acquire(NULL, &a, 1, TM_HOST_ORDER, FOREVER, &v));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_acquire_async(NULL, &a, 1, TM_HOST_ORDER, &v, &op));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_release(NULL, &v, 1, TM_HOST_ORDER));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_prefetch(NULL, &a, 1, TM_SOON, &op));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_migrate(NULL, &a, 1, dram, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_evict(NULL, &a, 1, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_advise(NULL, &a, 1, TM_COLD, 0));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_read(NULL, 1, 0, &byte, 1, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_write(NULL, 1, 0, &byte, 1, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_tick(NULL, TM_TICK_OP, &ordinal));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_buffer_info(NULL, 1, &residency));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_address(NULL, 1, &address));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_address_on(NULL, 1, dram, &address));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_set_budget(NULL, dram, MIB, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_stats(NULL, &counters));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_op_poll(NULL, 1));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_op_wait(NULL, &op, 1, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null context", tm_op_cancel(NULL, 1));
  CHECK(buffer == 55 && op == 55 && ordinal == 55 && byte == 55);
  CHECK(residency.bytes == 55 && counters.steps == 55 && address == &byte);
  CHECK(memcmp(&v, &kView, sizeof v) == 0);
}

static void null_results_and_lists(void) {
  tm_access a = range(0, 0, TM_READ);
  tm_place dram = {TM_DRAM, 0};
  tm_view v = kView;
  tm_op op = 55;
  char byte = 55;
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_alloc(c, MIB, NULL, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_adopt_file(c, "/etc/passwd", 0, 0, NULL, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null path", tm_adopt_file(c, NULL, 0, 0, NULL, &op));
  tm_place gpu = {TM_GPU, 0};
  SAYS(TM_INVALID_ARGUMENT, "null out",
       tm_adopt_device(c, gpu, &byte, 1, TM_HOST_ORDER, FOREVER, NULL, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null memory",
       tm_adopt_device(c, gpu, NULL, 1, TM_HOST_ORDER, FOREVER, NULL, &op));
  SAYS(TM_UNAVAILABLE, "not a GPU of this context",
       tm_adopt_device(c, gpu, &byte, 1, TM_HOST_ORDER, FOREVER, NULL, &op));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_acquire(c, &a, 1, TM_HOST_ORDER, FOREVER, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_acquire_async(c, &a, 1, TM_HOST_ORDER, NULL, &op));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_acquire_async(c, &a, 1, TM_HOST_ORDER, &v, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_buffer_info(c, b, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_stats(c, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null out", tm_caps(c, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null destination", tm_read(c, b, 0, NULL, 1, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null source", tm_write(c, b, 0, NULL, 1, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null list", tm_acquire(c, NULL, 1, TM_HOST_ORDER, FOREVER, &v));
  SAYS(TM_INVALID_ARGUMENT, "null list", tm_acquire_async(c, NULL, 1, TM_HOST_ORDER, &v, &op));
  SAYS(TM_INVALID_ARGUMENT, "null list", tm_release(c, NULL, 1, TM_HOST_ORDER));
  SAYS(TM_INVALID_ARGUMENT, "null list", tm_prefetch(c, NULL, 1, TM_SOON, NULL));
  SAYS(TM_INVALID_ARGUMENT, "null list", tm_migrate(c, NULL, 1, dram, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null list", tm_evict(c, NULL, 1, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "null list", tm_advise(c, NULL, 1, TM_COLD, 0));
  SAYS(TM_INVALID_ARGUMENT, "null list", tm_op_wait(c, NULL, 1, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "n = ", tm_acquire(c, &a, (size_t)-1, TM_HOST_ORDER, FOREVER, &v));
  SAYS(TM_INVALID_ARGUMENT, "n = ", tm_release(c, &v, (size_t)-1, TM_HOST_ORDER));
  /* An empty list is an error for acquire, but not for release. */
  IS(TM_INVALID_ARGUMENT, tm_acquire(c, NULL, 0, TM_HOST_ORDER, FOREVER, &v));
  IS(TM_INVALID_ARGUMENT, tm_acquire_async(c, NULL, 0, TM_HOST_ORDER, &v, &op));
  OK(tm_release(c, NULL, 0, TM_HOST_ORDER));
  OK(tm_prefetch(c, NULL, 0, TM_SOON, NULL));
  OK(tm_evict(c, NULL, 0, FOREVER));
  OK(tm_advise(c, NULL, 0, TM_COLD, 0));
  OK(tm_op_wait(c, NULL, 0, FOREVER));
  CHECK(op == 55 && byte == 55 && memcmp(&v, &kView, sizeof v) == 0);
}

static void bad_accesses(void) {
  tm_view v = kView;
  struct {
    tm_access access;
    tm_status status;
    const char* word;
  } cases[] = {
      {{.buffer = 0, .mode = TM_READ}, TM_STALE_HANDLE, "handle"},
      {{.buffer = UINT64_MAX, .mode = TM_READ}, TM_STALE_HANDLE, "handle"},
      {{.buffer = b + 1, .mode = TM_READ}, TM_STALE_HANDLE, "handle"},
      {{.buffer = b ^ ((uint64_t)1 << 32), .mode = TM_READ}, TM_STALE_HANDLE, "handle"},
      {{.buffer = b, .mode = 0}, TM_INVALID_ARGUMENT, "mode"},
      {{.buffer = b, .mode = 8}, TM_INVALID_ARGUMENT, "mode"},
      {{.buffer = b, .mode = TM_READ, .reserved = 1}, TM_INVALID_ARGUMENT, "reserved"},
      {{.buffer = b, .offset = MIB, .mode = TM_READ}, TM_INVALID_ARGUMENT, "range"},
      {{.buffer = b, .offset = MIB + 1, .mode = TM_READ}, TM_INVALID_ARGUMENT, "range"},
      {{.buffer = b, .length = MIB + 1, .mode = TM_READ}, TM_INVALID_ARGUMENT, "range"},
      {{.buffer = b, .offset = 1, .length = UINT64_MAX, .mode = TM_READ},
       TM_INVALID_ARGUMENT,
       "range"},
      {{.buffer = b, .mode = TM_READ, .where = {TM_GPU, 0}}, TM_UNAVAILABLE, "tier"},
      {{.buffer = b, .mode = TM_READ, .where = {TM_REMOTE + 1, 0}}, TM_UNAVAILABLE, "tier"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    tm_access a = cases[i].access;
    tm_op op = 55;
    SAYS(cases[i].status, cases[i].word, tm_acquire(c, &a, 1, TM_HOST_ORDER, FOREVER, &v));
    SAYS(cases[i].status, cases[i].word, tm_acquire_async(c, &a, 1, TM_HOST_ORDER, &v, &op));
    SAYS(cases[i].status, cases[i].word, tm_prefetch(c, &a, 1, TM_SOON, &op));
    SAYS(cases[i].status, cases[i].word, tm_evict(c, &a, 1, FOREVER));
    SAYS(cases[i].status, cases[i].word, tm_advise(c, &a, 1, TM_COLD, 0));
    CHECK(op == 55);
  }
  /* The last entry of a list is wrong: the others are not pinned, and no record is written. */
  for (size_t n = 2; n <= 100; n += 49) {
    tm_access list[100];
    tm_view views[100];
    for (size_t i = 0; i < n; ++i) {
      list[i] = range(4096 * i, 4096, TM_WRITE);
      views[i] = kView;
    }
    list[n - 1].mode = 0;
    IS(TM_INVALID_ARGUMENT, tm_acquire(c, list, n, TM_HOST_ORDER, FOREVER, views));
    list[n - 1].mode = TM_READ;
    list[n - 1].buffer = 0;
    IS(TM_STALE_HANDLE, tm_acquire(c, list, n, TM_HOST_ORDER, FOREVER, views));
    for (size_t i = 0; i < n; ++i) {
      CHECK(memcmp(&views[i], &kView, sizeof kView) == 0);
    }
    tm_residency residency = {.size = sizeof residency};
    OK(tm_buffer_info(c, b, &residency));
    CHECK(residency.pinned == 0);
  }
  CHECK(memcmp(&v, &kView, sizeof v) == 0);
  char byte = 55;
  IS(TM_STALE_HANDLE, tm_read(c, b + 1, 0, &byte, 1, FOREVER));
  IS(TM_STALE_HANDLE, tm_write(c, b + 1, 0, &byte, 1, FOREVER));
  IS(TM_INVALID_ARGUMENT, tm_read(c, b, MIB, &byte, 1, FOREVER));
  IS(TM_INVALID_ARGUMENT, tm_write(c, b, MIB, &byte, 1, FOREVER));
  CHECK(byte == 55);
}

static void bad_streams(void) {
  tm_access a = range(0, 0, TM_READ);
  tm_view v = kView;
  tm_op op = 55;
  struct {
    tm_stream stream;
    tm_status status;
    const char* word;
  } cases[] = {
      {{TM_STREAM_CUDA, 0, NULL}, TM_UNSUPPORTED, "CUDA"},
      {{TM_STREAM_CUDA, 0, &v}, TM_UNSUPPORTED, "CUDA"},
      {{2, 0, NULL}, TM_INVALID_ARGUMENT, "kind 2"},
      {{TM_STREAM_HOST, 1, NULL}, TM_INVALID_ARGUMENT, "reserved"},
      {{TM_STREAM_HOST, 0, &v}, TM_INVALID_ARGUMENT, "handle"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    tm_stream s = cases[i].stream;
    SAYS(cases[i].status, cases[i].word, tm_acquire(c, &a, 1, s, FOREVER, &v));
    SAYS(cases[i].status, cases[i].word, tm_acquire_async(c, &a, 1, s, &v, &op));
    SAYS(cases[i].status, cases[i].word, tm_release(c, &v, 1, s));
  }
  CHECK(op == 55 && memcmp(&v, &kView, sizeof v) == 0);
}

static void bad_allocs(void) {
  tm_buffer out = 55;
  struct {
    tm_buffer_options options;
    tm_status status;
    const char* word;
  } cases[] = {
      {{.extent_bytes = 5000}, TM_INVALID_ARGUMENT, "extent_bytes 5000"},
      {{.extent_bytes = 2048}, TM_INVALID_ARGUMENT, "extent_bytes 2048"},
      {{.alignment = 3}, TM_INVALID_ARGUMENT, "alignment 3"},
      {{.flags = TM_KEEP_ON_FREE}, TM_UNSUPPORTED, "TM_KEEP_ON_FREE"},
      {{.flags = 0x8000}, TM_INVALID_ARGUMENT, "0x8000"},
      {{.advice = TM_NEXT_USE + 1}, TM_INVALID_ARGUMENT, "advice"},
      {{.preferred = {TM_GPU, 3}}, TM_UNAVAILABLE, "gpu 3"},
      {{.preferred = {TM_NUMA, 1}}, TM_UNAVAILABLE, "numa 1"},
      {{.preferred = {TM_PMEM, 0}}, TM_UNAVAILABLE, "pmem"},
      {{.preferred = {TM_REMOTE, 0}}, TM_UNAVAILABLE, "remote"},
      {{.preferred = {TM_DRAM, 1}}, TM_UNAVAILABLE, "dram 1"},
      {{.preferred = {77, 0}}, TM_INVALID_ARGUMENT, "kind 77"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    cases[i].options.size = sizeof(tm_buffer_options);
    SAYS(cases[i].status, cases[i].word, tm_alloc(c, MIB, &cases[i].options, &out));
    SAYS(cases[i].status, cases[i].word,
         tm_adopt_file(c, "/etc/passwd", 0, 0, &cases[i].options, &out));
  }
  SAYS(TM_INVALID_ARGUMENT, "0 bytes", tm_alloc(c, 0, NULL, &out));
  IS(TM_INVALID_ARGUMENT, tm_alloc(c, UINT64_MAX, NULL, &out));
  SAYS(TM_INVALID_ARGUMENT, "/nonexistent/file",
       tm_adopt_file(c, "/nonexistent/file", 0, 0, NULL, &out));
  tm_error_info info = {.size = sizeof info};
  OK(tm_error(NULL, 0, &info));
  CHECK(info.native == ENOENT);
  CHECK(out == 55);
}

static void other_bad_arguments(void) {
  tm_access a = range(0, 0, TM_READ);
  uint64_t ordinal = 55;
  SAYS(TM_INVALID_ARGUMENT, "kind 2", tm_tick(c, 2, &ordinal));
  CHECK(ordinal == 55);
  SAYS(TM_INVALID_ARGUMENT, "unknown advice 13", tm_advise(c, &a, 1, TM_NEXT_USE + 1, 0));
  tm_access preferring = range(0, 0, TM_READ);
  preferring.where = (tm_place){TM_NUMA, 1};
  SAYS(TM_UNAVAILABLE, "prefers numa 1", tm_advise(c, &preferring, 1, TM_PREFERRED, 0));
  SAYS(TM_UNAVAILABLE, "host memories are dram", tm_advise(c, &preferring, 1, TM_PREFERRED, 0));
  preferring.where = (tm_place){TM_DRAM, 0};
  OK(tm_advise(c, &preferring, 1, TM_PREFERRED, 0));
  OK(tm_advise(c, &a, 1, TM_PREFERRED, 0));
  SAYS(TM_UNAVAILABLE, "gpu 0", tm_migrate(c, &a, 1, (tm_place){TM_GPU, 0}, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "kind 10", tm_migrate(c, &a, 1, (tm_place){10, 0}, FOREVER));
  SAYS(TM_UNAVAILABLE, "pmem 0", tm_set_budget(c, (tm_place){TM_PMEM, 0}, MIB, FOREVER));
  IS(TM_UNAVAILABLE, tm_set_budget(c, (tm_place){TM_HOST, 0}, MIB, FOREVER));
  IS(TM_INVALID_ARGUMENT, tm_set_budget(c, (tm_place){TM_DRAM, 0}, 1, FOREVER));
  SAYS(TM_INVALID_ARGUMENT, "flags", tm_context_destroy(c, 2, FOREVER));
  tm_residency residency = {.size = sizeof residency, .bytes = 55};
  IS(TM_STALE_HANDLE, tm_buffer_info(c, b + 1, &residency));
  CHECK(residency.bytes == 55);
  IS(TM_STALE_HANDLE, tm_free(c, b + 1));
  IS(TM_STALE_HANDLE, tm_free(c, 0));
}

/* A query for the error never clears it. */
static void errors_stay(void) {
  tm_error_info info = {.size = sizeof info};
  tm_error_info small = {.size = 343, .status = 99}; /* One byte less than the first version. */
  tm_buffer out = 0;
  SAYS(TM_INVALID_ARGUMENT, "extent_bytes 3",
       tm_alloc(c, MIB, &(tm_buffer_options){.size = sizeof(tm_buffer_options), .extent_bytes = 3},
                &out));
  OK(tm_alloc(c, MIB, NULL, &out)); /* Success does not change the error. */
  OK(tm_free(c, out));
  IS(TM_INVALID_ARGUMENT, tm_error(c, 0, NULL));
  IS(TM_INVALID_ARGUMENT, tm_error(c, 0, &small));
  IS(TM_INVALID_ARGUMENT, tm_error(NULL, 1, &info));
  IS(TM_INVALID_ARGUMENT, tm_error(c, 12345, &info));
  CHECK(small.status == 99);
  OK(tm_error(c, 0, &info));
  CHECK(info.status == TM_INVALID_ARGUMENT && strstr(info.text, "extent_bytes 3") != NULL);
}

/* Options of a newer program are accepted if all unknown fields are 0. */
static void newer_options(void) {
  struct {
    tm_buffer_options known;
    uint64_t later[2];
  } options = {.known = {.size = sizeof options, .label = "newer"}};
  tm_buffer out = 0;
  OK(tm_alloc(c, MIB, &options.known, &out));
  tm_residency residency = {.size = sizeof residency};
  OK(tm_buffer_info(c, out, &residency));
  CHECK(strcmp(residency.label, "newer") == 0);
  OK(tm_free(c, out));
  out = 55;
  options.later[1] = 1;
  SAYS(TM_INVALID_ARGUMENT, "bytes", tm_alloc(c, MIB, &options.known, &out));
  options.later[1] = 0;
  options.known.size = (size_t)-1;
  SAYS(TM_INVALID_ARGUMENT, "size", tm_alloc(c, MIB, &options.known, &out));
  options.known.size = sizeof(tm_buffer_options) - 1;
  SAYS(TM_INVALID_ARGUMENT, "size", tm_alloc(c, MIB, &options.known, &out));
  CHECK(out == 55);

  struct {
    tm_context_options known;
    uint64_t later;
  } more = {.known = {.size = sizeof more, .name = "newer"}, .later = 1};
  tm_context* other = NULL;
  IS(TM_INVALID_ARGUMENT, tm_context_create("dram=16M; nvme=off", &more.known, &other));
  CHECK(other == NULL);
  more.later = 0;
  OK(tm_context_create("dram=16M; nvme=off", &more.known, &other));
  close_context(other);

  struct {
    tm_store_options known;
    uint64_t later;
  } of_store = {.known = {.size = sizeof of_store, .capacity_bytes = MIB}, .later = 1};
  tm_store* store = NULL;
  IS(TM_INVALID_ARGUMENT, tm_store_open(c, &of_store.known, &store));
  CHECK(store == NULL);
  of_store.later = 0;
  OK(tm_store_open(c, &of_store.known, &store));
  OK(tm_store_close(store));
}

/* Information structs of a newer program: unknown fields become 0, and nothing past the struct is
 * written. The same holds for a program of the first version with a struct of `smallest` bytes. */
#define CHECK_SIZES(type, smallest, fill)                        \
  do {                                                           \
    struct {                                                     \
      type known;                                                \
      uint64_t later;                                            \
      uint64_t behind;                                           \
    } info;                                                      \
    type* out = &info.known;                                     \
    memset(&info, 0x55, sizeof info);                            \
    info.known.size = sizeof(type) + sizeof info.later;          \
    OK(fill);                                                    \
    CHECK(info.known.size == sizeof(type) + sizeof info.later);  \
    CHECK(info.later == 0 && info.behind == 0x5555555555555555); \
    memset(&info, 0x55, sizeof info);                            \
    info.known.size = sizeof(type);                              \
    OK(fill);                                                    \
    CHECK(info.later == 0x5555555555555555);                     \
    memset(&info, 0x55, sizeof info);                            \
    info.known.size = smallest;                                  \
    OK(fill);                                                    \
    CHECK(((unsigned char*)out)[smallest] == 0x55);              \
    memset(&info, 0x55, sizeof info);                            \
    info.known.size = smallest - 1;                              \
    IS(TM_INVALID_ARGUMENT, fill);                               \
    info.known.size = 0;                                         \
    IS(TM_INVALID_ARGUMENT, fill);                               \
    info.known.size = 0x5555555555555555;                        \
    IS(TM_INVALID_ARGUMENT, fill);                               \
    CHECK(((unsigned char*)out)[sizeof(size_t)] == 0x55);        \
  } while (0)

/* Begins an operation in the queue, unless one is there, and takes its event. */
static tm_status drain_one(tm_queue* queue, tm_event* out) {
  static int waits;
  size_t count = 0;
  int fd = -1;
  tm_op op = 0;
  tm_access a = range(0, 0, TM_READ);
  if (!waits) {
    OK(tm_prefetch(c, &a, 1, TM_SOON, &op));
    OK(tm_queue_add(queue, op, NULL));
    OK(tm_queue_fd(queue, &fd));
    CHECK(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000) == 1);
  }
  const tm_status status = tm_queue_drain(queue, out, 1, &count);
  waits = status != TM_OK;
  CHECK(waits || count == 1);
  return status;
}

static void newer_information(void) {
  CHECK_SIZES(tm_residency, 112, tm_buffer_info(c, b, out));
  CHECK_SIZES(tm_counters, 232, tm_stats(c, out));
  CHECK_SIZES(tm_tier_counters, 56, tm_stats_tier(c, 0, out));
  const tm_store_options options = {.size = sizeof options, .capacity_bytes = MIB};
  tm_store* store = NULL;
  OK(tm_store_open(c, &options, &store));
  CHECK_SIZES(tm_store_counters, 88, tm_store_stats(store, out));
  OK(tm_store_close(store));
  tm_queue* queue = NULL;
  size_t labels = 0;
  tm_event last = {.size = sizeof last};
  OK(tm_queue_create(c, &queue));
  CHECK_SIZES(tm_event, 472, drain_one(queue, out));
  OK(drain_one(queue, &last));
  OK(tm_queue_destroy(queue));
  CHECK_SIZES(tm_label_counters, 232, tm_stats_by_label(c, out, 1, &labels));
  CHECK_SIZES(tm_allocator, 64, tm_allocator_init(c, (tm_place){TM_ANY, 0}, out));
  CHECK_SIZES(tm_whereabouts, 272, tm_why(c, b, 0, out));
  CHECK_SIZES(tm_capabilities, 72, tm_caps(c, out));
  CHECK_SIZES(tm_error_info, 344, tm_error(NULL, 0, out));
}

static void capabilities(void) {
  tm_capabilities caps = {.size = sizeof caps};
  OK(tm_caps(NULL, &caps));
  CHECK(caps.version == tm_version() && caps.spaces == 1 && caps.kinds_here == 0);
  CHECK((caps.kinds_known & ~(1u << TM_COMPRESSED)) ==
        (1u << TM_HOST | 1u << TM_DRAM | 1u << TM_NUMA | 1u << TM_PMEM | 1u << TM_GPU |
         1u << TM_BLOCK | 1u << TM_FILE));
  CHECK(caps.extent_smallest == 4096 && caps.extent_largest == 64 * MIB);
  CHECK(caps.buffer_largest == 1ull << 47 && caps.extents_per_buffer == 1u << 26);
  CHECK((caps.flags & TM_CAN_CHECKSUM) != 0 && (caps.flags & TM_CAN_ADOPT_FILE) != 0);
  CHECK((caps.flags & (TM_CAN_MAP | TM_CAN_CUDA_STREAM)) == 0);
  OK(tm_caps(c, &caps));
  CHECK(caps.kinds_here == (1u << TM_HOST | 1u << TM_DRAM | 1u << TM_BLOCK | 1u << TM_FILE) &&
        caps.spaces == 1 && (caps.flags & TM_CAN_CHECKSUM) != 0);
  tm_context* plain = NULL;
  OK(tm_context_create("dram=16M; nvme=off; checksum=off; extent=64K", NULL, &plain));
  OK(tm_caps(plain, &caps));
  CHECK(caps.kinds_here == (1u << TM_HOST | 1u << TM_DRAM | 1u << TM_FILE) && caps.tiers == 2);
  CHECK((caps.flags & TM_CAN_CHECKSUM) == 0 && caps.extent_default == 65536);
  SAYS(TM_UNAVAILABLE, "block", tm_set_budget(plain, (tm_place){TM_BLOCK, 0}, MIB, FOREVER));
  SAYS(TM_UNAVAILABLE, "compressed",
       tm_set_budget(plain, (tm_place){TM_COMPRESSED, 0}, MIB, FOREVER));
  close_context(plain);

  // Each block tier that tm_stats_tier() lists has a budget that can be set.
  char slow[4200], spec[9000];
  snprintf(slow, sizeof slow, "%s/slow-%d", folder(), getpid());
  CHECK(mkdir(slow, 0700) == 0);
  snprintf(spec, sizeof spec, "dram=16M; nvme=%s:64M; slow=%s:64M; reserve_free=0", folder(), slow);
  OK(tm_context_create(spec, NULL, &plain));
  OK(tm_set_budget(plain, (tm_place){TM_BLOCK, 1}, 32 * MIB, FOREVER));
  SAYS(TM_UNAVAILABLE, "block tier 2", tm_set_budget(plain, (tm_place){TM_BLOCK, 2}, MIB, FOREVER));
  close_context(plain);
  CHECK(rmdir(slow) == 0);
}

int main(void) {
  names_and_numbers();
  before_any_error();
  null_contexts();
  create();
  c = open_context("");
  OK(tm_alloc(c, MIB,
              &(tm_buffer_options){.size = sizeof(tm_buffer_options), .extent_bytes = 65536}, &b));
  null_results_and_lists();
  bad_accesses();
  bad_streams();
  bad_allocs();
  other_bad_arguments();
  errors_stay();
  newer_options();
  newer_information();
  capabilities();
  close_context(c);
  return finish();
}
