// Makes one system call of a whole program fail: the n-th with its number over all threads, or all
// from the n-th on. It works below everything that the program could replace. A filter in the child
// passes each such call to this process, which answers it or lets it continue. Needs Linux 5.6.
//
// Threads: only the test's thread. The child is forked while there is no other thread.
#pragma once

#include <functional>
#include <string>

#include "fault/child.hpp"

namespace tiermem::test {

struct NthCall {
  long number = 0;  ///< The number of the system call.
  int error = 0;    ///< errno of the n-th call, which is not made.
  unsigned nth = 1;
  bool for_good = false;  ///< All later calls fail too.
};

struct NthCallEnd {
  std::string skip;         ///< Why the test could not run.
  bool failed_one = false;  ///< There was an n-th call, and it failed.
};

/// The same as in_child(). Failed expectations and other ends of the child are failures of this
/// test.
NthCallEnd in_child_with(const NthCall& call, const std::function<ChildEnd()>& part);

}  // namespace tiermem::test
