// A device that misbehaves, below the public interface. This program defines pread, pwrite and the
// vectored variants, and the library calls these with io_engine=threads. A FailingIo acts on the
// files of one directory during its life; all other calls go to the kernel. Each directory has one
// FailingIo, and there are at most four.
//
// Threads: any thread calls the functions. The test's thread creates, commands and destroys a
// FailingIo.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace tiermem::test {

/// The buffers of one read or write.
using Parts = std::span<const iovec>;

class FailingIo {
 public:
  explicit FailingIo(const std::string& directory);
  /// Opens the gate and lets the held calls end.
  ~FailingIo();
  FailingIo(const FailingIo&) = delete;
  FailingIo& operator=(const FailingIo&) = delete;

  // Commands, which may change at any time. 0: behave like the kernel.
  std::atomic<int> read_error{0}, write_error{0};  ///< errno of each call.
  std::atomic<int> good_before{0};  ///< The number of calls that succeed before the errors begin.
  std::atomic<std::uint32_t> most_read{0},
      most_written{0};  ///< The maximum number of bytes that a call moves: short transfers.

  /// Every later call waits until open_gate(): a device that hangs.
  void close_gate();
  void open_gate();
  /// Waits until `n` calls are held at the gate. Returns false after ten seconds.
  bool wait_for_held(std::uint32_t n);

  std::uint64_t calls() const { return calls_.load(); }
  std::uint64_t failed() const { return failed_.load(); }
  std::uint64_t shortened() const { return shortened_.load(); }

  // For the interposed functions.
  /// Returns whether `fd` is a file of the directory. If so, act() must follow, and the destructor
  /// waits for it.
  bool enter(int fd);
  ssize_t act(bool write, int fd, Parts parts, off_t offset);

 private:
  const std::string directory_;
  std::atomic<std::uint64_t> calls_{0}, failed_{0}, shortened_{0};
  std::atomic<std::uint32_t> held_{0}, inside_{0}, shut_{0};
};

}  // namespace tiermem::test
