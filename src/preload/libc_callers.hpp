// Finds out which callers of malloc are libc itself or the dynamic loader. Found once, at start;
// any thread.
#pragma once

#include <cstdint>

namespace tiermem::preload {

namespace detail {
struct Code {
  std::uintptr_t begin = 0, bytes = 0;
  bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - begin < bytes;
  }
};
extern Code libc, loader;  // Constant once found.
}  // namespace detail

void find_libc();

inline bool is_libc(const void* caller) {
  return detail::libc.contains(caller) || detail::loader.contains(caller);
}
/// The loader makes each thread's table of thread-local storage. tiermem's own threads inherit
/// these tables with the stacks of threads that have ended.
inline bool is_loader(const void* caller) {
  return detail::loader.contains(caller);
}
/// For callers in libc. Returns false for those that hand the block to the program as its own
/// (getline), because these blocks may add up to gigabytes. strdup and its relatives are not libc's
/// here: libc's own are called by libc only.
bool stays_plain(const void* caller);

}  // namespace tiermem::preload
