// Handlers of fork that the program registers. Ours must be there before: handlers registered first
// run last before a fork and first after it, and the program's may touch tiered memory. Libraries
// register theirs in constructors, most of which run before ours. Any thread.
#include "base/arena.hpp"
#include "preload/next.hpp"
#include "preload/start.hpp"

using Handler = void (*)();

// pthread_atfork() calls it.
extern "C" __attribute__((visibility("default"))) int __register_atfork(Handler before,
                                                                        Handler in_parent,
                                                                        Handler in_child,
                                                                        void* library) noexcept {
  using Register = int (*)(Handler, Handler, Handler, void*);
  static const auto real = tiermem::preload::next<Register>("__register_atfork");
  if (!tiermem::inside_tiermem()) {
    tiermem::preload::start_process();
  }
  return real(before, in_parent, in_child, library);
}
