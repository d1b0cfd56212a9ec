// A library that precedes another and calls it, as wrappers do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

int layers(void);
int layers(void) {
  int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "layers");
  return next == NULL ? -1 : 1 + next();
}
