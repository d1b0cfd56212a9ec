/* Rows of a table that is larger than memory, from C. */
#include <stdint.h>
#include <stdlib.h>

#include "check.h"

#define MIB ((uint64_t)1 << 20)
#define FOREVER (-1)
#define ROW 256
#define ROWS (64 * MIB / ROW)
#define LIST 4000

static tm_context* c;
static tm_buffer table;
static uint64_t index_of[LIST];
static uint64_t bytes[LIST][ROW / 8];

static tm_rows all(void) {
  tm_rows rows = {.buffer = table, .row_bytes = ROW, .index = index_of, .count = LIST};
  return rows;
}

/* Word w of row r is r * 1000 + w. */
static int good(uint64_t plus) {
  for (unsigned i = 0; i < LIST; ++i) {
    for (unsigned w = 0; w < ROW / 8; ++w) {
      if (bytes[i][w] != index_of[i] * 1000 + w + plus) {
        return 0;
      }
    }
  }
  return 1;
}

static void fill_table(void) {
  tm_buffer_options options = {.size = sizeof options, .advice = TM_RANDOM, .label = "table"};
  OK(tm_alloc(c, 64 * MIB, &options, &table));
  for (uint64_t at = 0; at < 64 * MIB; at += 2 * MIB) {
    tm_access range = {.buffer = table, .offset = at, .length = 2 * MIB, .mode = TM_DISCARD};
    tm_view view;
    OK(tm_acquire(c, &range, 1, TM_HOST_ORDER, FOREVER, &view));
    uint64_t* words = view.data;
    for (uint64_t i = 0; i < 2 * MIB / 8; ++i) {
      words[i] = (at / 8 + i) / (ROW / 8) * 1000 + (at / 8 + i) % (ROW / 8);
    }
    OK(tm_release(c, &view, 1, TM_HOST_ORDER));
  }
  tm_access whole = {.buffer = table, .mode = TM_READ};
  OK(tm_evict(c, &whole, 1, FOREVER));
  for (unsigned i = 0; i < LIST; ++i) {
    index_of[i] = (uint64_t)i * 7919 % ROWS;
  }
}

static void rows_come_and_go(void) {
  tm_counters before = {.size = sizeof before}, after = {.size = sizeof after};
  OK(tm_stats(c, &before));
  tm_rows rows = all();
  OK(tm_gather(c, &rows, bytes, FOREVER, NULL));
  CHECK(good(0));
  OK(tm_stats(c, &after));
  CHECK(after.promoted == before.promoted);
  CHECK(after.gather_reads > before.gather_reads);
  CHECK(after.gather_bytes > before.gather_bytes);

  tm_op op;
  memset(bytes, 0, sizeof bytes);
  OK(tm_gather(c, &rows, bytes, FOREVER, &op));
  OK(tm_op_wait(c, &op, 1, FOREVER));
  CHECK(good(0));

  for (unsigned i = 0; i < LIST; ++i) {
    for (unsigned w = 0; w < ROW / 8; ++w) {
      bytes[i][w] += 5;
    }
  }
  OK(tm_scatter(c, &rows, bytes, FOREVER, NULL));
  tm_buffer out;
  OK(tm_alloc(c, LIST * ROW + 100, NULL, &out));
  OK(tm_gather_into(c, &rows, out, 100, FOREVER, NULL));
  memset(bytes, 0, sizeof bytes);
  tm_rows copied = {.buffer = out, .offset = 100, .row_bytes = ROW, .index = index_of, .count = 0};
  for (unsigned i = 0; i < LIST; ++i) {
    uint64_t one = i;
    copied.index = &one;
    copied.count = 1;
    OK(tm_gather(c, &copied, bytes[i], FOREVER, NULL));
  }
  CHECK(good(5));
  OK(tm_free(c, out));
}

static void mistakes_are_refused(void) {
  tm_rows rows = all();
  tm_op op = 77;
  SAYS(TM_INVALID_ARGUMENT, "context", tm_gather(NULL, &rows, bytes, FOREVER, NULL));
  SAYS(TM_INVALID_ARGUMENT, "rows", tm_gather(c, NULL, bytes, FOREVER, NULL));
  SAYS(TM_INVALID_ARGUMENT, "memory", tm_gather(c, &rows, NULL, FOREVER, NULL));
  SAYS(TM_INVALID_ARGUMENT, "rows", tm_gather_into(c, NULL, table, 0, FOREVER, NULL));
  SAYS(TM_INVALID_ARGUMENT, "inside", tm_gather_into(c, &rows, table, 64 * MIB, FOREVER, NULL));
  SAYS(TM_INVALID_ARGUMENT, "memory", tm_scatter(c, &rows, NULL, FOREVER, NULL));
  SAYS(TM_BUSY, "resident", tm_gather(c, &rows, bytes, 0, NULL));
  rows.row_bytes = 65537;
  SAYS(TM_INVALID_ARGUMENT, "65537", tm_gather(c, &rows, bytes, FOREVER, &op));
  rows = all();
  index_of[9] = ROWS;
  SAYS(TM_INVALID_ARGUMENT, "row 9", tm_gather(c, &rows, bytes, FOREVER, &op));
  SAYS(TM_INVALID_ARGUMENT, "row 9", tm_scatter(c, &rows, bytes, FOREVER, &op));
  index_of[9] = 0;
  CHECK(op == 77);
  rows.buffer = 12345;
  IS(TM_STALE_HANDLE, tm_gather(c, &rows, bytes, FOREVER, NULL));
}

int main(void) {
  OK(tm_context_create("dram=16M", NULL, &c));
  fill_table();
  mistakes_are_refused();
  rows_come_and_go();
  OK(tm_free(c, table));
  OK(tm_context_destroy(c, 0, FOREVER));
  return finish();
}
