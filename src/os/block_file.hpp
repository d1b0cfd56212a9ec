// One device of a block tier: an unnamed file in a directory, or a raw block device. Opens it,
// learns how it must be addressed, and preallocates it. Reads and writes nothing itself.
//
// The file has no name from the start (O_TMPFILE), so nothing is left on disk however the process
// ends. Where a file system lacks O_TMPFILE the name exists for the time between two system calls.
//
// Threads: open, and grow one call at a time, on a thread that may block; facts and fd on any.
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

  std::string path;         ///< A directory, or a block device.
  std::uint64_t limit = 0;  ///< Most bytes it may occupy. 0: all of a block device.
  std::uint64_t reserve_free_bytes = kDefaultReserve;  ///< Left free on the file system.
  bool require_direct = false;          ///< No O_DIRECT: an error instead of buffered I/O.
  bool nameable = false;                ///< with_name() may be called.
  bool test_without_tmpfile = false;    ///< Tests: as if O_TMPFILE were refused.
  bool test_without_fallocate = false;  ///< Tests: as if fallocate were refused.
};

class BlockFile {
 public:
  /// Errors: invalid_argument (no directory or block device, bad limit), unavailable (errno),
  /// unsupported (no direct I/O though required).
  static Result<std::unique_ptr<BlockFile>> open(const BlockFileOptions& options);
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  DeviceFacts facts() const;
  /// The descriptor for direct or buffered I/O; both are the same file. Owned by this object.
  int fd(bool buffered) const { return buffered || direct_fd_ < 0 ? buffered_fd_ : direct_fd_; }
  /// Whether it is a block device, and not a file in a directory.
  bool raw() const { return raw_; }

  /// For libraries that open a file once more, by its name: runs `body` with a descriptor of its
  /// own for direct I/O, which is the body's to close, while the file has the name that the kernel
  /// tells of it. A process that is killed meanwhile leaves it on disk: to be called before it
  /// grows. Errors: the body's; unavailable (errno), where the file cannot be given one.
  Status with_name(const std::function<Status(int descriptor)>& body) const;

  /// Makes the first `bytes` of the file physical. On failure the size is what it was.
  /// Errors: no_capacity (limit, free space less the reserve, RLIMIT_FSIZE, ENOSPC, EDQUOT),
  /// io_error.
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
  int directory_fd_ = -1;  ///< What `path` led to in open(). -1: not needed after it.
  int buffered_fd_ = -1;
  int direct_fd_ = -1;  ///< -1: all I/O is buffered.

  std::atomic<std::uint64_t> size_{0};  ///< Written by grow, read by any.
};

}  // namespace tiermem
