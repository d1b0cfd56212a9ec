// Restores a setting of the machine once this process has ended, in any way: a separate process
// waits for that. One thread.
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

  /// From here on, `undo` is called with `what` when the keeper is destroyed or this process ends,
  /// even if it is killed. Errors: internal if the process cannot be created.
  static Result<std::unique_ptr<Keeper>> start(Undo undo, const std::string& what);
  /// Waits up to half a minute for `undo`. If that takes longer, the separate process continues to
  /// wait alone.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  Keeper(pid_t process, int end) : process_(process), end_(end) {}
  const pid_t process_;
  const int end_;  ///< A pipe's end, which closes in any case when this process ends.
};

}  // namespace tiermem::bench
