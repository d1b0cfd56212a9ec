// Refuses system calls of a process at random, from outside of the process: a filter of the child
// hands the chosen calls to the supervisor, which refuses some with a plausible errno and lets the
// others go on. Nothing inside the library is replaced. Linux 5.6.
//
// Threads: the supervisor's only one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shell/page.hpp"

namespace tiermem::shell {

/// One system call that may fail.
struct Refusable {
  const char* name;
  long number;
  std::vector<int> errors;  ///< One of these is drawn for each refusal.
  unsigned one_in;          ///< Mean number of calls from one refusal to the next.
};

/// The calls that a world may refuse, with the errors that Linux documents for them.
const std::vector<Refusable>& refusables();

struct ChildResult {
  bool passed = false;
  bool skipped = false;   ///< The kernel has no such filter for this process.
  std::string how;        ///< How the child ended when it did not pass.
};

/// Forks, runs `part` in the child and waits for its end. `part` returns whether it passed.
/// `calls` empty: nothing is filtered. The child is killed after `patience_s` seconds.
ChildResult run_refusing(const std::vector<Refusable>& calls, std::uint64_t seed, Page& page,
                         unsigned patience_s, const std::function<bool()>& part);

}  // namespace tiermem::shell
