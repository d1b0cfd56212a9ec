// Which callers of malloc are libc itself or the dynamic loader. Found once, at start; any thread.
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
/// The loader makes each thread's table of thread-local storage, which threads of tiermem's own
/// inherit with the stacks of those that have ended.
inline bool is_loader(const void* caller) {
  return detail::loader.contains(caller);
}
/// Of callers in libc: false for those that hand the block to the program as its own (strdup,
/// getline), of which there may be gigabytes.
bool stays_plain(const void* caller);

}  // namespace tiermem::preload
