// A program with its own malloc, like Chromium. It takes memory before any library is ready: no
// malloc of tiermem runs first.
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>

static char blocks[1 << 20];
static size_t used;

void* malloc(size_t bytes) {
  void* const block = blocks + used;
  used += (bytes + 15) / 16 * 16;
  return used > sizeof blocks ? NULL : block;
}
void free(void* block) { (void)block; }
void* calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
void* realloc(void* block, size_t bytes) {
  char* const moved = malloc(bytes);
  for (size_t i = 0; block != NULL && i < bytes && moved + i < blocks + sizeof blocks; ++i) {
    moved[i] = ((char*)block)[i];
  }
  return moved;
}

static int take(size_t bytes) {
  char* const taken = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (taken == MAP_FAILED) {
    return 1;
  }
  for (size_t i = 0; i < bytes; i += 4096) {
    taken[i] = (char)(i / 4096);
  }
  for (size_t i = 0; i < bytes; i += 4096) {
    if (taken[i] != (char)(i / 4096)) {
      return 1;
    }
  }
  return 0;
}

static void early(void) {
  if (take((size_t)96 << 20) != 0) {
    puts("wrong");
  }
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = early;

int main(void) {
  puts(take((size_t)96 << 20) == 0 ? "right" : "wrong");
  return 0;
}
