// A swap file for as long as a benchmark needs one, on the disk that is measured, before whatever
// swap the machine has. A process of its own takes it away again, also when the benchmark is
// killed. One thread; root only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tiermem/status.hpp"

namespace tiermem::bench {

class Swap {
 public:
  /// `bytes` of swap in `directory`. Errors: unavailable, naming what is missing.
  static Result<std::unique_ptr<Swap>> on(const std::string& directory, std::uint64_t bytes);
  /// Waits until it is off, half a minute at most: pages of processes that have not ended are read
  /// back. What then holds it up is waited for by the keeper alone.
  ~Swap();
  Swap(const Swap&) = delete;
  Swap& operator=(const Swap&) = delete;

 private:
  Swap(pid_t keeper, int end) : keeper_(keeper), end_(end) {}
  const pid_t keeper_;
  const int end_;  ///< Of a pipe: closed by whatever way this process ends.
};

}  // namespace tiermem::bench
