// One device of a block tier: an unnamed file in a directory, or a raw block device. This class
// opens the device, finds out how it must be addressed, and preallocates it. It does not read or
// write data.
//
// The file has no name from the start (O_TMPFILE), so nothing remains on disk however the process
// ends. On a file system without O_TMPFILE the name exists for the time between two system calls.
//
// Threads: open() and grow() run one call at a time, on a thread that may block. Any thread may use
// the facts and fd().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "os/io_port.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

struct BlockFileOptions {
  /// 1 GiB or 5 % of the file system, whichever is smaller.
  static constexpr std::uint64_t kDefaultReserve = ~std::uint64_t{0};

  std::string path;         ///< A directory or a block device.
  std::uint64_t limit = 0;  ///< Max number of bytes it may occupy. 0: all of a block device.
  std::uint64_t reserve_free_bytes = kDefaultReserve;  ///< Bytes left free on the file system.
  bool require_direct = false;  ///< Without O_DIRECT, open() fails instead of using buffered I/O.
  bool nameable = false;        ///< with_name() may be called.
  bool test_without_tmpfile = false;    ///< For tests: treat O_TMPFILE as refused.
  bool test_without_fallocate = false;  ///< For tests: treat fallocate as refused.
};

class BlockFile {
 public:
  /// Errors: invalid_argument (not a directory or block device, bad limit), unavailable (errno),
  /// unsupported (direct I/O is required but not available).
  static Result<std::unique_ptr<BlockFile>> open(const BlockFileOptions& options);
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  DeviceFacts facts() const;
  /// Returns the descriptor for direct or buffered I/O; both refer to the same file. This object
  /// owns it.
  int fd(bool buffered) const { return buffered || direct_fd_ < 0 ? buffered_fd_ : direct_fd_; }
  /// Returns whether it is a block device rather than a file in a directory.
  bool raw() const { return raw_; }

  /// Runs `body` while the file has the name that the kernel reports for it. For libraries that
  /// open a file again by its name. If the process is killed during the call, the file remains on
  /// disk: call this before the file grows.
  ///
  /// - `body`: receives a descriptor for direct I/O, which it owns and closes.
  /// - Errors: those of `body`. unavailable (errno): the file cannot be given a name.
  Status with_name(const std::function<Status(int descriptor)>& body) const;

  /// Allocates storage for the first `bytes` bytes of the file. On failure the size does not
  /// change. Errors: no_capacity (limit, free space minus the reserve, RLIMIT_FSIZE, ENOSPC,
  /// EDQUOT), io_error.
  Status grow(std::uint64_t bytes);

 private:
  explicit BlockFile(const BlockFileOptions& options) : options_(options) {}
  Status open_file();
  void create_file();
  bool take_handed();
  Status open_device();
  Status with_descriptor(int descriptor, const std::function<Status(int descriptor)>& body) const;
  void learn_alignment(std::uint32_t fallback);
  void use_buffered(const char* why);
  Status check_room(std::uint64_t bytes, std::uint64_t size) const;
  int preallocate(std::uint64_t from, std::uint64_t to) const;
  int write_zeros(std::uint64_t from, std::uint64_t to) const;
  Status no_room(int native, std::uint64_t needed, std::string_view why) const;

  // Constant after open().
  BlockFileOptions options_;
  DeviceFacts facts_;
  bool raw_ = false;
  /// The directory that open() found at `path`; -1 after open() if it is not needed any more.
  int directory_fd_ = -1;
  int buffered_fd_ = -1;
  int direct_fd_ = -1;  ///< -1: all I/O is buffered.

  std::atomic<std::uint64_t> size_{0};  ///< Written by grow(), read by any thread.
};

}  // namespace tiermem
