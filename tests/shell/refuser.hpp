// Refuses system calls of a process at random, from outside the process. A filter of the child
// passes the chosen calls to the supervisor, which refuses some with a plausible errno and lets the
// others continue. Nothing inside the library is replaced. Linux 5.6.
//
// Threads: only the supervisor's single thread.
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
  bool skipped = false;   ///< The kernel does not support such a filter for this process.
  std::string how;        ///< How the child ended if it failed.
};

/// Forks, runs `part` in the child and waits for its end. `part` returns whether it passed. With
/// empty `calls` nothing is filtered. The child is killed after `patience_s` seconds.
ChildResult run_refusing(const std::vector<Refusable>& calls, std::uint64_t seed, Page& page,
                         unsigned patience_s, const std::function<bool()>& part);

}  // namespace tiermem::shell
