// A system call as the kernel sees it: a number and six registers. How tiermem issues one that its
// own filter (wrap.hpp) lets through, whatever the pointers in it. Any thread, also in a handler of
// a signal; x86-64 only.
#pragma once

#if defined(__x86_64__)

#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tiermem::preload {

// Regions lie in these eight tebibytes where system calls are wrapped. The kernel puts nothing
// there by itself: neither the stack, nor programs, nor mappings of either layout.
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

// In the upper half of an argument that the kernel takes as 32 bits, or not at all: pass. No
// address looks like that.
inline constexpr std::uint32_t kPass = 0x7E1E4D5A;

/// Which argument can carry kPass: the sixth, but where it is a pointer or has 64 bits; the first
/// of these calls has 32.
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

/// The kernel's answer: the result, or minus the error.
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

/// The call with the mark by which the filter lets it through.
inline SystemCall passing(SystemCall call) {
  std::uint64_t& mark = call.arguments[pass_argument(call.number)];
  mark = (mark & 0xFFFFFFFFu) | std::uint64_t{kPass} << 32;
  return call;
}

/// As issue(), and the filter lets it through.
inline long pass(const SystemCall& call) {
  return issue(passing(call));
}

}  // namespace tiermem::preload

#endif
