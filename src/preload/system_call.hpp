// A system call as the kernel sees it: a number and six registers. Also the way to issue one that
// tiermem's own filter (wrap.hpp) lets through, whatever its pointers are. Any thread, also in a
// signal handler; x86-64 only.
#pragma once

#if defined(__x86_64__)

#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tiermem::preload {

// With wrapped system calls, regions lie in these eight tebibytes. The kernel places nothing there
// by itself: neither the stack, nor programs, nor mappings of either layout.
inline constexpr std::uint64_t kWrappedBegin = std::uint64_t{0x1800} << 32;
inline constexpr std::uint64_t kWrappedBytes = std::uint64_t{0x0800} << 32;

inline bool in_wrapped_range(std::uint64_t address) {
  return address - kWrappedBegin < kWrappedBytes;
}
inline bool in_wrapped_range(const void* address) {
  return in_wrapped_range(reinterpret_cast<std::uint64_t>(address));
}

struct SystemCall {
  long number = 0;
  std::array<std::uint64_t, 6> arguments{};
};

// This value in the upper half of an argument that the kernel reads as 32 bits, or ignores, makes
// the filter let the call pass. No address looks like it.
inline constexpr std::uint32_t kPass = 0x7E1E4D5A;

/// The argument that can carry kPass: the sixth, unless it is a pointer or has 64 bits. In those
/// calls the first has 32 bits.
inline unsigned pass_argument(long number) {
  switch (number) {
    case SYS_sendto:
    case SYS_recvfrom:
    case SYS_pselect6:
    case SYS_epoll_pwait:
    case SYS_process_vm_readv:
    case SYS_process_vm_writev:
      return 0;
#ifdef SYS_epoll_pwait2
    case SYS_epoll_pwait2:
      return 0;
#endif
    default:
      return 5;
  }
}

/// Returns the kernel's answer: the result, or minus the error.
inline long issue(const SystemCall& call) {
  const std::array<std::uint64_t, 6>& a = call.arguments;
  register std::uint64_t a3 asm("r10") = a[3];
  register std::uint64_t a4 asm("r8") = a[4];
  register std::uint64_t a5 asm("r9") = a[5];
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(call.number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(a3), "r"(a4), "r"(a5)
               : "rcx", "r11", "memory");
  return result;
}

/// Adds the mark by which the filter lets the call through.
inline SystemCall passing(SystemCall call) {
  std::uint64_t& mark = call.arguments[pass_argument(call.number)];
  mark = (mark & 0xFFFFFFFFu) | std::uint64_t{kPass} << 32;
  return call;
}

/// As issue(), with the mark for the filter.
inline long pass(const SystemCall& call) {
  return issue(passing(call));
}

}  // namespace tiermem::preload

#endif
