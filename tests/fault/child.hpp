// Runs a part of a test in a child process, which can give up rights, refuse itself system calls,
// or be killed. The child is forked while this process has no context and no other thread, so it
// may do everything that a program may. Only the test's thread uses this. A child that hangs is
// ended by SIGALRM.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tiermem::test {

/// How the child's part ended. Failed expectations in the part also count as failures of the test.
struct ChildEnd {
  bool ran = true;
  std::string reason;  ///< Why the part could not run.
};

/// Returned by the child's part if this machine does not allow the test.
inline ChildEnd not_here(std::string reason) {
  return {false, std::move(reason)};
}

/// Runs `part` in a child and waits for it. EXPECT_* in the part print as usual. A failed
/// expectation, or an unexpected end of the child, is a failure of this test. Returns the reason of
/// a skip, or "".
std::string in_child(const std::function<ChildEnd()>& part);

/// Runs `part` in a child until it is killed. When the part calls `ready()`, the parent sends
/// `signal`. Returns true if the child died of that signal.
bool kill_in_the_middle(int signal,
                        const std::function<void(const std::function<void()>& ready)>& part);

/// A system call that the kernel refuses to the rest of this process with `error`. `argument` < 0:
/// always. Otherwise only if the second argument has this value.
struct Refusal {
  long number;
  int error;
  long argument = -1;
};
/// Refuses the calls with seccomp, permanently. Returns false with errno if the kernel has no
/// filters.
bool refuse(const std::vector<Refusal>& refusals);

/// Mounts an empty tmpfs of `bytes` on `directory`. No other process sees it, and it ends with this
/// process. Use only in a child. Returns "", or the reason of a failure.
std::string mount_tmpfs(const std::string& directory, unsigned long bytes);
/// Makes the tmpfs of mount_tmpfs() read-only. Returns "", or the reason of a failure.
std::string make_read_only(const std::string& directory);

/// Changes root to the user with the number 65534, permanently. Other users do not change. Returns
/// "", or the reason of a failure.
std::string become_nobody();

}  // namespace tiermem::test

#define SKIP_IF(reason)                                  \
  do {                                                   \
    if (const std::string why_ = (reason); why_ != "") { \
      GTEST_SKIP() << why_;                              \
    }                                                    \
  } while (0)
