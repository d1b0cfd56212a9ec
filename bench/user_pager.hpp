// A file behind an address range, page by page, as in earlier user-level pagers (UMap's published
// design). Handler threads take the faults, read synchronously with O_DIRECT and answer with
// UFFDIO_COPY; the oldest block leaves first. Read-only. A peer of the mapped suite. It cannot be
// stopped: its process ends with it.
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
    std::uint64_t bytes = 0;   ///< Size of the file, in whole blocks.
    std::uint64_t budget = 0;  ///< Maximum resident bytes.
    std::uint64_t block = 0;   ///< Bytes read and copied at once; a power of two, at least a page.
    unsigned handlers = 1;     ///< Threads.
  };
  /// Returns the file's bytes, for the life of the process; null without userfaultfd or O_DIRECT.
  /// Any number of threads may read them. A block that cannot be read ends the process.
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
  std::mutex mutex_;    ///< Guards the following members; held while a block leaves.
  std::vector<State> states_;
  std::deque<std::uint64_t> order_;  ///< Blocks that are resident or arriving; the oldest first.
};

}  // namespace tiermem::bench
