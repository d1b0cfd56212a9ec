// The kernel's memory calls, without the interposed names. The preload library and the jemalloc
// inside it use them. Any thread; each is one system call and sets errno as libc's does.
#pragma once

#include <errno.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "preload/system_call.hpp"

// jemalloc's object files are rewritten to call these by name (jemalloc.symbols).
extern "C" {
void* tiermem_plain_mmap(void* address, std::size_t bytes, int protection, int flags, int fd,
                         off_t offset) noexcept;
int tiermem_plain_munmap(void* address, std::size_t bytes) noexcept;
int tiermem_plain_madvise(void* address, std::size_t bytes, int advice) noexcept;
int tiermem_plain_mprotect(void* address, std::size_t bytes, int protection) noexcept;
}

namespace tiermem::preload {

/// Returns the kernel's answer as libc's syscall() does, which is interposed (raw_calls.cpp).
template <typename... Arguments>
long direct(long number, Arguments... arguments) noexcept {
#if defined(__x86_64__)
  const auto word = [](auto argument) {
    if constexpr (std::is_pointer_v<decltype(argument)>) {
      return reinterpret_cast<std::uint64_t>(argument);
    } else if constexpr (std::is_null_pointer_v<decltype(argument)>) {
      return std::uint64_t{0};
    } else {
      return static_cast<std::uint64_t>(argument);  // Signed ones keep their sign.
    }
  };
  const long result = issue({number, {word(arguments)...}});
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
#else
  return ::syscall(number, arguments...);
#endif
}

void* plain_mremap(void* address, std::size_t from, std::size_t to, int flags, void* at) noexcept;
int plain_mlock(const void* address, std::size_t bytes, unsigned flags) noexcept;
int plain_munlock(const void* address, std::size_t bytes) noexcept;

// For the `rest` parameter of region.hpp: memory in no region. The last argument is unused.
int plain_unmap(std::byte* begin, std::size_t bytes, int) noexcept;
/// Reserves the addresses. Returns nonzero if something is mapped there.
int plain_claim(std::byte* begin, std::size_t bytes, int) noexcept;

}  // namespace tiermem::preload
