// Plain memory for the time of one system call: what the kernel reads and writes in the place of a
// tiered buffer. Each thread has its own, a stack; handlers of signals that interrupt a call push
// on top of it. A call that such a handler leaves by a jump is noticed by the next one on that
// stack, and what it had is taken back.
//
// Threads: a Scratch belongs to the thread that made it. Async-signal-safe.
#pragma once

#include <cstddef>

namespace tiermem::preload {

class Scratch {
 public:
  static constexpr std::size_t kMost = std::size_t{4} << 20;

  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Bytes that lie within their page as `like` does in its own, which direct I/O asks for. Null
  /// when this thread's scratch is full.
  std::byte* take(std::size_t bytes, const void* like = nullptr);
  /// What has been taken since is not used any more.
  std::size_t mark() const;
  void back_to(std::size_t mark);
};

/// Once, before the first: threads give theirs back when they end.
void prepare_scratch();

}  // namespace tiermem::preload
