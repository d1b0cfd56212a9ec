// A file behind an address range, page by page, as user-level pagers do it that came before (UMap's
// published way): handler threads take the faults, read synchronously with O_DIRECT and answer by
// UFFDIO_COPY; the block that came first leaves first. Read-only. A peer of the mapped suite, made
// for a process that ends without it: there is no way to stop it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "os/userfault.hpp"

namespace tiermem::bench {

class UserPager {
 public:
  struct Options {
    int file = -1;             ///< Kept open.
    std::uint64_t bytes = 0;   ///< Of the file; whole blocks.
    std::uint64_t budget = 0;  ///< Most bytes that are in memory.
    std::uint64_t block = 0;   ///< Read and copied at once; a power of two, at least a page.
    unsigned handlers = 1;     ///< Threads.
  };
  /// The file's bytes, for the life of the process; null without userfaultfd or O_DIRECT. Any
  /// number of threads may read them; a block that cannot be read ends the process.
  static std::byte* start(const Options& options);

 private:
  enum class State : std::uint8_t { absent, reading, present };

  explicit UserPager(const Options& options) : options_(options) {}
  bool open();
  [[noreturn]] void handle();
  bool claim(std::uint64_t block);
  void publish(std::uint64_t block);

  const Options options_;
  int direct_ = -1;
  std::byte* data_ = nullptr;
  Userfault userfault_;
  std::mutex reading_;  ///< One thread at a time reads events.
  std::mutex mutex_;    ///< Guards what follows; held while a block leaves.
  std::vector<State> states_;
  std::deque<std::uint64_t> order_;  ///< Blocks in memory, or on their way; the oldest first.
};

}  // namespace tiermem::bench
