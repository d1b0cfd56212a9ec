/* A module of a program that is loaded with RTLD_DEEPBIND. */
#include <stdlib.h>

__attribute__((visibility("default"))) void* module_make(size_t bytes) {
  return malloc(bytes);
}

__attribute__((visibility("default"))) void module_release(void* block) {
  free(block);
}
