// System calls of a child that a filter answers, so that they fail alone. Linux with seccomp.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace tiermem::test {

/// From now on the system call `number` of this process has the result `error`, or 0 without being
/// made if `error` is 0. `bits`: only if one of these bits is set in the argument `argument`.
/// Returns false where the kernel has no filters. Only in a child: it cannot be undone.
inline bool answer_calls(long number, int error, unsigned argument = 0, std::uint32_t bits = 0) {
  const auto low_half = static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * argument);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_half),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, bits == 0 ? 0u : ~0u, 1, 0),  // Without bits: always.
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace tiermem::test
