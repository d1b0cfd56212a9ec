// A library that is loaded privately: only it sees its own symbols by RTLD_DEFAULT. It also has a
// function with the name of one of the driver's, although it is not the driver.
#define _GNU_SOURCE
#include <dlfcn.h>

int of_the_module(void);
int of_the_module(void) {
  return 5;
}

void* find_of_the_module(void);
void* find_of_the_module(void) {
  void* volatile found = dlsym(RTLD_DEFAULT, "of_the_module");  // It must not be a jump: that would
                                                                // return to the caller.
  return found;
}

int cuMemAlloc_v2(unsigned long long* at, unsigned long bytes);
int cuMemAlloc_v2(unsigned long long* at, unsigned long bytes) {
  *at = bytes;
  return 77;
}
