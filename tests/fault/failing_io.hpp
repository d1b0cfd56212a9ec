// A device that misbehaves, below the public interface: this program has its own pread, pwrite and
// vectored ones, and the library calls these with io_engine=threads. They act on files of one
// directory as long as a FailingIo for it lives; all else goes to the kernel. One FailingIo per
// directory, at most four.
//
// Threads: the functions are called by any; a FailingIo is made, told and destroyed by the test's.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace tiermem::test {

/// The places in memory of one read or write.
using Parts = std::span<const iovec>;

class FailingIo {
 public:
  explicit FailingIo(const std::string& directory);
  /// Opens the gate and lets what is held end.
  ~FailingIo();
  FailingIo(const FailingIo&) = delete;
  FailingIo& operator=(const FailingIo&) = delete;

  // What to do; told at any time. 0: as the kernel would.
  std::atomic<int> read_error{0}, write_error{0};  ///< errno of each call.
  std::atomic<int> good_before{0};  ///< So many calls are good before the errors begin.
  std::atomic<std::uint32_t> most_read{0},
      most_written{0};  ///< Bytes moved by a call at most: short transfers.

  /// Every call from now on waits until open_gate(): a device that hangs.
  void close_gate();
  void open_gate();
  /// Until `n` calls wait at the gate. False after ten seconds.
  bool wait_for_held(std::uint32_t n);

  std::uint64_t calls() const { return calls_.load(); }
  std::uint64_t failed() const { return failed_.load(); }
  std::uint64_t shortened() const { return shortened_.load(); }

  // For the interposed functions.
  /// Whether `fd` is a file of the directory; then act() must follow, and the destructor waits for
  /// it.
  bool enter(int fd);
  ssize_t act(bool write, int fd, Parts parts, off_t offset);

 private:
  const std::string directory_;
  std::atomic<std::uint64_t> calls_{0}, failed_{0}, shortened_{0};
  std::atomic<std::uint32_t> held_{0}, inside_{0}, shut_{0};
};

}  // namespace tiermem::test
