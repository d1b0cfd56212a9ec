// A piece of a test in a child process of its own, which may give up rights, refuse itself system
// calls or be killed. The child is forked while this process has no context and no other thread, so
// it may do all that a program may. Used by the test's thread only; a child that hangs is ended by
// SIGALRM.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tiermem::test {

/// How the child's part ends; failed expectations in it count as failures of the test besides.
struct ChildEnd {
  bool ran = true;
  std::string reason;  ///< Why it could not be tried, when it did not.
};

/// Why this machine does not allow the test; the caller returns it from the child's part.
inline ChildEnd not_here(std::string reason) {
  return {false, std::move(reason)};
}

/// Runs `part` in a child and waits. EXPECT_* inside print as usual; they and any end of the child
/// but its own are failures of this test. Answers the reason of a skip, or "".
std::string in_child(const std::function<ChildEnd()>& part);

/// `part` runs in a child until it is killed: `ready()` tells the parent that it is under way,
/// which then sends `signal`. True: it died of that signal.
bool kill_in_the_middle(int signal,
                        const std::function<void(const std::function<void()>& ready)>& part);

/// One system call that the rest of this process does not get: it answers `error`. `argument` < 0:
/// always; else only when the second argument is that number.
struct Refusal {
  long number;
  int error;
  long argument = -1;
};
/// By seccomp, for ever. False with errno where the kernel has no filters.
bool refuse(const std::vector<Refusal>& refusals);

/// An empty tmpfs of `bytes` on `directory`, which no other process sees and which ends with this
/// one. Only in a child. "", or why not.
std::string mount_tmpfs(const std::string& directory, unsigned long bytes);
/// Makes what mount_tmpfs() mounted read-only. "", or why not.
std::string make_read_only(const std::string& directory);

/// This process becomes the user nobody for ever, if it is root. "", or why not.
std::string become_nobody();

}  // namespace tiermem::test

#define SKIP_IF(reason)                                  \
  do {                                                   \
    if (const std::string why_ = (reason); why_ != "") { \
      GTEST_SKIP() << why_;                              \
    }                                                    \
  } while (0)
