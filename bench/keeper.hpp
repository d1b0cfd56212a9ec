// Puts something of the machine's back as it was, once this process has ended, by whatever way: a
// process of its own waits for that. One thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "tiermem/status.hpp"

namespace tiermem::bench {

class Keeper {
 public:
  /// Runs in a fork of this process, so only system calls are safe.
  using Undo = void (*)(const char* what);

  /// From here on `undo` is called with `what`: when the keeper is destroyed, or this process ends,
  /// killed or not. Errors: internal, when there can be no process for it.
  static Result<std::unique_ptr<Keeper>> start(Undo undo, const std::string& what);
  /// Waits until it is done, half a minute at most; what then holds it up the process goes on
  /// waiting for alone.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  Keeper(pid_t process, int end) : process_(process), end_(end) {}
  const pid_t process_;
  const int end_;  ///< Of a pipe: closed by whatever way this process ends.
};

}  // namespace tiermem::bench
