// Plain memory for the duration of one system call: the kernel reads and writes it in place of a
// tiered buffer. Each thread has its own, a stack; signal handlers that interrupt a call push on
// top of it. If such a handler leaves a call by a jump, the next call on that stack notices it and
// reclaims the memory.
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

  /// Returns bytes at the same offset in their page as `like`, which direct I/O needs. Null if this
  /// thread's scratch is full.
  std::byte* take(std::size_t bytes, const void* like = nullptr);
  /// A position for back_to(), which releases all bytes taken since.
  std::size_t mark() const;
  void back_to(std::size_t mark);
};

/// Call it once, before the first Scratch. Afterwards a thread that ends gives its memory back.
void prepare_scratch();

}  // namespace tiermem::preload
