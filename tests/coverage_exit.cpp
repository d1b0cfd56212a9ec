// In builds that count coverage: a child of fork that ends by _exit, as those of tests do, writes
// down what it ran before. Takes the place of the C library's function.
#include <sys/syscall.h>
#include <unistd.h>

extern "C" void __gcov_dump();

extern "C" __attribute__((visibility("default"))) void _exit(int status) {
  __gcov_dump();
  for (;;) {
    ::syscall(SYS_exit_group, status);
  }
}
