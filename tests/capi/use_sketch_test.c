/* Four programs as users would write them (sketch/use_sketch.c), compiled unchanged and run with
 * small sizes: streaming layers, Adam, a KV cache, and the GPU paths, which are refused by name. */
#pragma GCC diagnostic error "-Wall"
#pragma GCC diagnostic error "-Wextra"
#pragma GCC diagnostic error "-Wpedantic"
/* clang-format off: the sketch must come before tiermem.h, to test that it compiles alone. */
#include "sketch/use_sketch.c"

#include "check.h"
/* clang-format on */

#include <stdint.h>

/* The same programs again with DRAM in the place of a GPU, so that their other paths run. */
#define TM_GPU TM_DRAM
#define stream_layers stream_layers_in_dram
#define adam adam_in_dram
#define seq seq_in_dram
#define kv_append kv_append_in_dram
#define kv_decode kv_decode_in_dram
#define llm_step llm_step_in_dram
#include "sketch/use_sketch.c"

#undef TM_GPU
#undef stream_layers
#undef adam
#undef seq
#undef kv_append
#undef kv_decode
#undef llm_step

#define MIB ((uint64_t)1 << 20)
#define FOREVER (-1)
enum { kLayers = 12, kTile = 65536 };

static int g_layer, g_wrong, g_launched;

/* The engines of the sketch. Here they only read the bytes. */
void gemm_layer(const void* w, float* x) {
  const uint32_t* words = w;
  for (uint64_t i = 0; i < 2 * MIB / 4; ++i) {
    g_wrong += words[i] != (uint32_t)g_layer * 1000003u + (uint32_t)i;
  }
  x[0] += 1;
  ++g_layer;
}
void fill_kv(void* p, int block) {
  memset(p, block + 1, MIB);
}
void attention(const tm_view* kv, size_t n, void* stream) {
  (void)kv, (void)n, (void)stream, ++g_launched;
}
void launch_layer(const void* w, void* stream) {
  (void)w, (void)stream, ++g_launched;
}

static void streaming_layers(tm_context* c) {
  tm_buffer weights = 0;
  float x[1] = {0};
  OK(tm_alloc(c, kLayers * 2 * MIB, NULL, &weights));
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    static uint32_t words[2 * 1048576 / 4];
    for (uint32_t i = 0; i < 2 * MIB / 4; ++i) {
      words[i] = layer * 1000003u + i;
    }
    OK(tm_write(c, weights, layer * 2 * MIB, words, sizeof words, FOREVER));
  }
  for (int pass = 0; pass < 3; ++pass) {
    g_layer = 0;
    OK(stream_layers(c, weights, 2 * MIB, kLayers, x));
  }
  CHECK(g_wrong == 0 && g_layer == kLayers && x[0] == 3 * kLayers);
  OK(tm_free(c, weights));
}

static void adam_on_tiles(tm_context* c) {
  const uint64_t n =
      20 * kTile + 1000; /* Four arrays of 5 MiB over 16 MiB of DRAM, with a partial tile. */
  tm_buffer b[4];
  float* want[4];
  float* got = malloc(4 * n);
  for (int j = 0; j < 4; ++j) {
    want[j] = malloc(4 * n);
    for (uint64_t i = 0; i < n; ++i) {
      want[j][i] =
          j == 2 ? (float)(i % 11) * .1f : (float)((int)((i * 7 + (uint64_t)j) % 13) - 6) * .25f;
    }
    OK(tm_alloc(c, 4 * n, NULL, &b[j]));
    OK(tm_write(c, b[j], 0, want[j], 4 * n, FOREVER));
  }
  OK(adam(c, b, n, kTile));
  OK(adam(c, b, n, kTile));
  float *p = want[0], *m = want[1], *w = want[2], *g = want[3];
  for (int step = 0; step < 2; ++step) {
    for (uint64_t j = 0; j < n; j++) {
      m[j] = .9f * m[j] + .1f * g[j];
      w[j] = .999f * w[j] + .001f * g[j] * g[j];
      p[j] -= 1e-3f * m[j] / (sqrtf(w[j]) + 1e-8f);
    }
  }
  for (int j = 0; j < 4; ++j) {
    OK(tm_read(c, b[j], 0, got, 4 * n, FOREVER));
    CHECK(memcmp(got, want[j], 4 * n) == 0);
    OK(tm_free(c, b[j]));
    free(want[j]);
  }
  free(got);
}

static void a_kv_cache(tm_context* c) {
  static seq on_gpu;
  static seq_in_dram q;
  char bytes[4096];
  SAYS(TM_UNAVAILABLE, "gpu 0", kv_append(c, &on_gpu, MIB, 0));
  CHECK(on_gpu.n == 0);
  for (int block = 0; block < 40; ++block) {
    OK(kv_append_in_dram(c, &q, MIB, block));
  }
  CHECK(q.n == 40);
  for (size_t block = 0; block < q.n; ++block) {
    OK(tm_read(c, q.block[block], MIB - sizeof bytes, bytes, sizeof bytes, FOREVER));
    CHECK(bytes[0] == (char)(block + 1) && bytes[sizeof bytes - 1] == (char)(block + 1));
  }
  SAYS(TM_UNSUPPORTED, "CUDA", kv_decode_in_dram(c, &q, NULL));
  SAYS(TM_UNSUPPORTED, "CUDA", kv_decode(c, &on_gpu, NULL));
  for (size_t block = 0; block < q.n; ++block) {
    OK(tm_free(c, q.block[block]));
  }
}

static void layers_on_a_gpu(tm_context* c) {
  tm_buffer weights = 0;
  OK(tm_alloc(c, 8 * MIB, NULL, &weights));
  IS(TM_UNSUPPORTED, llm_step(c, weights, MIB, 8, NULL));
  IS(TM_UNSUPPORTED, llm_step_in_dram(c, weights, MIB, 8, NULL));
  CHECK(g_launched == 0);
  OK(tm_free(c, weights));
}

int main(void) {
  tm_context* c = open_context("");
  streaming_layers(c);
  adam_on_tiles(c);
  a_kv_cache(c);
  layers_on_a_gpu(c);
  close_context(c);
  return finish();
}
