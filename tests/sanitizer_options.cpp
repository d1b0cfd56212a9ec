// The sanitizers' settings for every test program, so that a program that is started by hand
// behaves as under ctest. Each runtime calls its own function before main. Environment variables
// (ASAN_OPTIONS, ...) take precedence.

#define OPTIONS_OF(function)                                                \
  extern "C" __attribute__((visibility("default"))) const char* function(); \
  const char* function()

// An impossible allocation returns null, like malloc, because some tests request one.
OPTIONS_OF(__asan_default_options) {
  return "detect_stack_use_after_return=1:allocator_may_return_null=1";
}

OPTIONS_OF(__ubsan_default_options) {
  return "print_stacktrace=1";
}

// Children of fork start threads, because tiermem guarantees that this works. A handler of SIGBUS
// allocates memory (userfault=signal): it interrupts touches of mapped buffers only, and no code of
// malloc makes these.
OPTIONS_OF(__tsan_default_options) {
  return "die_after_fork=0:second_deadlock_stack=1:report_signal_unsafe=0";
}
