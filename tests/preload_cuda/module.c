// A library that is loaded for itself: it alone sees its own symbols by RTLD_DEFAULT. It also has a
// function of a name of the driver's, and is not the driver.
#define _GNU_SOURCE
#include <dlfcn.h>

int of_the_module(void);
int of_the_module(void) {
  return 5;
}

void* find_of_the_module(void);
void* find_of_the_module(void) {
  void* volatile found =
      dlsym(RTLD_DEFAULT, "of_the_module");  // No jump: it would be the caller's.
  return found;
}

int cuMemAlloc_v2(unsigned long long* at, unsigned long bytes);
int cuMemAlloc_v2(unsigned long long* at, unsigned long bytes) {
  *at = bytes;
  return 77;
}
