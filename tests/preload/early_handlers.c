// A library with a constructor that registers handlers of fork. They touch memory of the program.
#include <pthread.h>
#include <stddef.h>

char* early_memory = NULL;
size_t early_bytes = 0;
long early_sum = 0;

static void touch(void) {
  for (size_t i = 0; i < early_bytes; i += 4096) {
    early_sum += ((volatile char*)early_memory)[i];
  }
}

__attribute__((constructor)) static void on_load(void) {
  pthread_atfork(touch, touch, touch);
}
