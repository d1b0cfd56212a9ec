// One system call of a whole program's that fails: the n-th of its number, over all threads, or all
// from there on, from below everything that the program could replace. A filter of the child hands
// each such call to this process, which answers it or lets it go on. Linux 5.6.
//
// Threads: the test's only one. The child is forked while there is no other.
#pragma once

#include <functional>
#include <string>

#include "fault/child.hpp"

namespace tiermem::test {

struct NthCall {
  long number = 0;  ///< Of the system call.
  int error = 0;    ///< What the n-th answers instead of being made.
  unsigned nth = 1;
  bool for_good = false;  ///< All after it, too.
};

struct NthCallEnd {
  std::string skip;         ///< Why it could not be tried.
  bool failed_one = false;  ///< There was an n-th, and it failed.
};

/// As in_child(). Failed expectations and other ends of the child are failures of this test.
NthCallEnd in_child_with(const NthCall& call, const std::function<ChildEnd()>& part);

}  // namespace tiermem::test
