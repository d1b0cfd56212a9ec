/* Where the bytes of all buffers are, by label. */
#include <stdint.h>

#include "check.h"

#define MIB ((uint64_t)1 << 20)
#define SECOND ((int64_t)1000000000)

static tm_context* c;

static tm_buffer made(uint64_t bytes, const char* label) {
  const tm_buffer_options options = {.size = sizeof options, .label = label};
  tm_buffer buffer = 0;
  OK(tm_alloc(c, bytes, &options, &buffer));
  return buffer;
}

static void write_all(tm_buffer buffer) {
  tm_view v;
  tm_access all = {.buffer = buffer, .mode = TM_DISCARD};
  OK(tm_acquire(c, &all, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  memset(v.data, 3, v.length);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));
}

/* The position of a tier in the order of tm_stats_tier(). */
static uint32_t tier_of(uint16_t kind) {
  tm_capabilities caps = {.size = sizeof caps};
  OK(tm_caps(c, &caps));
  for (uint32_t i = 0; i < caps.tiers; ++i) {
    tm_tier_counters tier = {.size = sizeof tier};
    OK(tm_stats_tier(c, i, &tier));
    if (tier.tier.kind == kind) {
      return i;
    }
  }
  CHECK(!"the context has such a tier");
  return 0;
}

int main(void) {
  tm_label_counters list[8];
  size_t count = 55;
  c = open_context("");
  OK(tm_stats_by_label(c, NULL, 0, &count));
  CHECK(count == 0);

  enum { kSmall = 300 }; /* More than the mover counts in one request. */
  tm_buffer state[2] = {made(4 * MIB, "state"), made(4 * MIB, "state")};
  tm_buffer weights = made(2 * MIB, "weights");
  static tm_buffer small[kSmall];
  for (int i = 0; i < kSmall; ++i) {
    small[i] = made(4096, NULL);
  }
  write_all(state[0]);
  write_all(weights);
  tm_access first = {.buffer = state[0], .mode = TM_READ};
  OK(tm_evict(c, &first, 1, 10 * SECOND));

  const uint32_t dram = tier_of(TM_DRAM), block = tier_of(TM_BLOCK);
  memset(list, 0x55, sizeof list);
  list[0].size = sizeof list[0];
  OK(tm_stats_by_label(c, list, 8, &count));
  CHECK(count == 3);
  CHECK(strcmp(list[0].label, "state") == 0 && strcmp(list[1].label, "weights") == 0 &&
        strcmp(list[2].label, "") == 0);
  CHECK(list[0].size == sizeof list[0] && list[2].size == sizeof list[0]);
  CHECK(list[0].buffers == 2 && list[0].bytes == 8 * MIB);
  CHECK(list[0].in_slots == 4 * MIB && list[0].zero == 4 * MIB && list[0].resident == 0);
  CHECK(list[0].tiers[block] == 4 * MIB && list[0].tiers[dram] == 0);
  CHECK(list[1].buffers == 1 && list[1].resident == 2 * MIB && list[1].dirty == 2 * MIB);
  CHECK(list[1].tiers[dram] == 2 * MIB && list[1].tiers[block] == 0 && list[1].pinned == 0);
  CHECK(list[2].buffers == kSmall && list[2].bytes == kSmall * 4096 && list[2].lost == 0);

  /* The sums are those of the buffers. A copy in memory and one in a slot both count. */
  tm_residency info = {.size = sizeof info};
  tm_view v;
  OK(tm_acquire(c, &first, 1, TM_HOST_ORDER, 10 * SECOND, &v));
  OK(tm_buffer_info(c, state[0], &info));
  OK(tm_stats_by_label(c, list, 8, &count));
  CHECK(list[0].resident == info.resident && list[0].in_slots == info.in_slots);
  CHECK(list[0].pinned == 4 * MIB && info.pinned == 4 * MIB);
  CHECK(list[0].tiers[dram] == 4 * MIB && list[0].tiers[block] == 4 * MIB);
  OK(tm_release(c, &v, 1, TM_HOST_ORDER));

  /* Less room than labels. */
  memset(list, 0x55, sizeof list);
  list[0].size = sizeof list[0];
  OK(tm_stats_by_label(c, list, 2, &count));
  CHECK(count == 3 && list[1].buffers == 1 && list[2].size == 0x5555555555555555);

  for (int i = 0; i < kSmall; ++i) {
    OK(tm_free(c, small[i]));
  }
  OK(tm_free(c, weights));
  OK(tm_stats_by_label(c, list, 8, &count));
  CHECK(count == 1 && list[0].buffers == 2);

  SAYS(TM_INVALID_ARGUMENT, "null context", tm_stats_by_label(NULL, list, 8, &count));
  SAYS(TM_INVALID_ARGUMENT, "null list", tm_stats_by_label(c, NULL, 8, &count));
  SAYS(TM_INVALID_ARGUMENT, "null out_count", tm_stats_by_label(c, list, 8, NULL));
  list[0].size = 7;
  SAYS(TM_INVALID_ARGUMENT, "size 7", tm_stats_by_label(c, list, 8, &count));
  list[0].size = sizeof list[0];
  close_context(c);
  count = 55;
  SAYS(TM_SHUT_DOWN, "has ended", tm_stats_by_label(c, list, 8, &count));
  CHECK(count == 55);
  return finish();
}
