// The seam between the block tier and the kernel: asynchronous reads and writes of a few devices,
// and growing their files. One implementation over io_uring, one over a thread pool where io_uring
// is refused, and the simulator's. Decides nothing: short transfers and errors are reported as they
// come.
//
// Threads: submit, flush, reap and wait belong to one thread; wake is for any; grow blocks, for a
// hand.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "tiermem/status.hpp"

namespace tiermem {

struct IoRequest {
  std::uint64_t cookie = 0;
  std::uint16_t device = 0;
  int fd = -1;  ///< A descriptor instead of a device: reads of an adopted file.
  bool write = false;
  bool buffered =
      false;  ///< Through the page cache: for lengths or addresses that O_DIRECT refuses.
  std::byte* data = nullptr;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;  ///< Of all vectors, where there are some.
  /// Instead of `data`: the bytes lie in several places of memory, one after the other on the
  /// device. Stable until the completion, as the bytes are.
  std::span<const iovec> vectors;
};

struct IoCompletion {
  std::uint64_t cookie = 0;
  std::int32_t result = 0;  ///< Bytes, or -errno.
};

/// What a device guarantees and where it is.
struct DeviceFacts {
  char name[64] = {};      ///< The directory or device as the user wrote it (its end, when longer).
  std::uint64_t size = 0;  ///< Bytes preallocated now.
  std::uint64_t limit = 0;          ///< Its share of the cap.
  std::uint32_t block_bytes = 512;  ///< Alignment of offset, length and address for direct I/O.
  bool direct = true;  ///< False: O_DIRECT was refused, all I/O is buffered; `reason` says why.
  bool writable = true;
  char reason[96] = {};
};

class IoPort {
 public:
  virtual ~IoPort() = default;
  virtual unsigned devices() const = 0;
  virtual DeviceFacts facts(std::uint16_t device) const = 0;
  virtual bool submit(
      const IoRequest& request) = 0;  ///< False when its queue is full: flush, reap, try again.
  virtual void flush() = 0;
  virtual std::size_t reap(std::span<IoCompletion> completions) = 0;
  /// Extends the preallocated part of the device's file to `bytes`; fails closed (ENOSPC, EIO,
  /// EROFS).
  virtual Status grow(std::uint16_t device, std::uint64_t bytes) = 0;
};

}  // namespace tiermem
