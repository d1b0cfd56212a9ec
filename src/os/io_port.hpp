// The seam between the block tier and the kernel: asynchronous reads and writes of a few devices,
// and growth of their files. There is one implementation over io_uring, one over a thread pool
// where io_uring is refused, and the simulator's. It decides nothing: it reports short transfers
// and errors as they occur.
//
// Threads: submit, flush, reap and wait belong to one thread. Any thread may call wake and
// read_here. grow blocks and is for a worker.
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tiermem/status.hpp"

namespace tiermem {

struct IoRequest {
  std::uint64_t cookie = 0;
  std::uint16_t device = 0;
  int fd = -1;  ///< A descriptor instead of a device, for reads of an adopted file.
  bool write = false;
  /// Through the page cache: for lengths or addresses that O_DIRECT refuses.
  bool buffered = false;
  std::byte* data = nullptr;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;  ///< Length of all `vectors` together if there are any.
  /// Replaces `data`: the bytes are in several places in memory, and contiguous on the device. The
  /// vectors and the bytes must stay valid until the completion.
  std::span<const iovec> vectors;
  /// `data` is memory of the program, with pages that may be absent: the thread that submits must
  /// not touch it, not even in the kernel.
  bool to_program = false;
};

struct IoCompletion {
  std::uint64_t cookie = 0;
  std::int32_t result = 0;  ///< Bytes, or -errno.
};

/// The guarantees and the location of a device.
struct DeviceFacts {
  /// The directory or device as the user wrote it, or the end of a longer name.
  char name[64] = {};
  std::uint64_t size = 0;           ///< Bytes preallocated so far.
  std::uint64_t limit = 0;          ///< Its share of the limit of the tier.
  std::uint32_t block_bytes = 512;  ///< Alignment of offset, length and address for direct I/O.
  bool direct = true;  ///< False: O_DIRECT was refused and all I/O is buffered; `reason` says why.
  bool writable = true;
  char reason[96] = {};
};

class IoPort {
 public:
  virtual ~IoPort() = default;
  virtual unsigned devices() const = 0;
  virtual DeviceFacts facts(std::uint16_t device) const = 0;
  /// Returns false if the queue is full: flush, reap and try again.
  virtual bool submit(const IoRequest& request) = 0;
  virtual void flush() = 0;
  virtual std::size_t reap(std::span<IoCompletion> completions) = 0;
  /// Returns whether read_here() works.
  virtual bool reads_here() const { return false; }
  /// [any] Makes the request, a read without `vectors`, on the calling thread, which waits for it.
  /// Returns bytes, or -errno. Waits for no other thread and allocates nothing.
  virtual std::int32_t read_here(const IoRequest&) { return -ENOSYS; }
  /// Extends the preallocated part of the device's file to `bytes`. On failure nothing changes
  /// (ENOSPC, EIO, EROFS).
  virtual Status grow(std::uint16_t device, std::uint64_t bytes) = 0;
};

}  // namespace tiermem
