// An IoPort in memory with scripted answers: which request gets which error, the length of short
// transfers, and the order of completions. Single-threaded except grow(). It checks what a kernel
// would check: the alignment of direct requests and the preallocated end. A request that names a
// descriptor is read from that file.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "os/io_port.hpp"

namespace tiermem {

class ScriptedIoPort final : public IoPort {
 public:
  struct Answer {
    std::int32_t error = 0;  ///< errno to answer with; the bytes stay unchanged.
    /// The maximum number of bytes to transfer, reported in the answer.
    std::int64_t most = 1 << 30;
  };
  struct Device {
    DeviceFacts facts;
    std::vector<std::byte> bytes;
    std::function<Status(std::uint64_t)> on_grow;  ///< Replaces a successful growth.
  };

  std::vector<Device> device;
  /// Answers the nth request (from 0) in the order of execution.
  std::function<Answer(std::size_t n, const IoRequest&)> script;
  std::size_t capacity = 1000;      ///< Requests in flight; submit returns false above this.
  std::mt19937* shuffle = nullptr;  ///< Completes in random order.
  std::size_t per_reap = 1000;      ///< Requests that one reap executes.
  std::vector<IoRequest> log;       ///< All requests, in the order of execution.
  std::size_t in_flight = 0;
  std::size_t most_in_flight = 0;

  ScriptedIoPort(unsigned count, std::uint64_t limit, std::uint32_t block = 512) : device(count) {
    for (unsigned d = 0; d < count; ++d) {
      set_text(device[d].facts.name, "scripted" + std::to_string(d));
      device[d].facts.limit = limit;
      device[d].facts.block_bytes = block;
    }
  }

  unsigned devices() const override { return static_cast<unsigned>(device.size()); }
  DeviceFacts facts(std::uint16_t d) const override { return device[d].facts; }
  bool submit(const IoRequest& request) override {
    if (in_flight == capacity) {
      return false;
    }
    most_in_flight = std::max(most_in_flight, ++in_flight);
    staged_.push_back(request);
    return true;
  }
  void flush() override {
    queue_.insert(queue_.end(), staged_.begin(), staged_.end());
    staged_.clear();
  }
  std::size_t reap(std::span<IoCompletion> completions) override {
    std::size_t n = 0;
    while (n < completions.size() && n < per_reap && !queue_.empty()) {
      const std::size_t at = shuffle != nullptr ? (*shuffle)() % queue_.size() : 0;
      const IoRequest request = queue_[at];
      queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(at));
      completions[n++] = {request.cookie, execute(request)};
      --in_flight;
    }
    return n;
  }
  Status grow(std::uint16_t d, std::uint64_t bytes) override {
    Device& here = device[d];
    if (here.on_grow) {
      Status status = here.on_grow(bytes);
      if (!status.ok()) {
        return status;
      }
    }
    const std::lock_guard lock(mutex_);
    EXPECT_LE(bytes, here.facts.limit);
    here.bytes.resize(bytes);
    here.facts.size = bytes;
    return Code::ok;
  }

 private:
  std::int32_t execute(const IoRequest& request) {
    const Answer answer = script ? script(log.size(), request) : Answer{};
    log.push_back(request);
    if (request.fd >= 0) {
      return answer.error != 0 ? -answer.error : read_file(request, answer.most);
    }
    Device& here = device[request.device];
    std::uint64_t bits =
        reinterpret_cast<std::uintptr_t>(request.data) | request.offset | request.length;
    for (const iovec& part : request.vectors) {
      bits |= reinterpret_cast<std::uintptr_t>(part.iov_base) | part.iov_len;
    }
    EXPECT_TRUE(request.buffered || bits % here.facts.block_bytes == 0) << "misaligned direct I/O";
    EXPECT_LE(request.offset + request.length, here.bytes.size());
    if (answer.error != 0) {
      return -answer.error;
    }
    const auto n = static_cast<std::size_t>(std::min<std::int64_t>(request.length, answer.most));
    std::byte* there = here.bytes.data() + request.offset;
    std::size_t at = 0;
    const auto copy = [&](std::byte* memory, std::size_t bytes) {
      bytes = std::min(bytes, n - at);
      std::memcpy(request.write ? there + at : memory, request.write ? memory : there + at, bytes);
      at += bytes;
    };
    for (const iovec& part : request.vectors) {
      copy(static_cast<std::byte*>(part.iov_base), part.iov_len);
    }
    if (at < n) {
      copy(request.data, n - at);
    }
    return static_cast<std::int32_t>(n);
  }

  static std::int32_t read_file(const IoRequest& request, std::int64_t most) {
    // Not shortened, because a direct read needs whole blocks.
    std::vector<std::byte> before(request.data, request.data + request.length);
    const ssize_t n =
        ::pread(request.fd, request.data, request.length, static_cast<off_t>(request.offset));
    if (n <= most) {
      return static_cast<std::int32_t>(n < 0 ? -errno : n);
    }
    std::copy(before.begin() + most, before.end(), request.data + most);
    return static_cast<std::int32_t>(most);
  }

  std::mutex mutex_;
  std::vector<IoRequest> staged_;
  std::deque<IoRequest> queue_;
};

/// For a script. Mostly returns no fault; otherwise an interruption, a short transfer or, if
/// `lasting`, an error that retrying does not cure.
inline ScriptedIoPort::Answer random_fault(std::mt19937& random, std::uint32_t length,
                                           bool lasting) {
  switch (random() % 12) {
    case 0:
      return {EINTR};
    case 1:
      return {EAGAIN};
    case 2:
    case 3:
      return {0, static_cast<std::int64_t>(1 + random() % length)};
    case 4:
      return {lasting ? random() % 2 == 0 ? EIO : ENODATA : 0};
    default:
      return {};
  }
}

}  // namespace tiermem
