// An io_uring whose memory is registered: what the kernel can save where the same buffers are used
// again and again. Only for measuring. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "os/host_memory.hpp"
#include "os/io_port.hpp"

namespace tiermem::cli {

class RegisteredRing {
 public:
  /// All of `memory`, which outlives it. nullptr with `reason` where that is refused.
  static std::unique_ptr<RegisteredRing> create(const host::AddressRange& memory, unsigned depth,
                                                std::string& reason);
  ~RegisteredRing();
  RegisteredRing(const RegisteredRing&) = delete;
  RegisteredRing& operator=(const RegisteredRing&) = delete;

  // As IoPort; requests are by descriptor, inside the memory.
  bool submit(const IoRequest& request);
  std::size_t reap(std::span<IoCompletion> completions);
  /// Until there is one to reap.
  void wait(std::int64_t);

 private:
  struct Ring;
  explicit RegisteredRing(std::unique_ptr<Ring> ring);
  const std::unique_ptr<Ring> ring_;
};

}  // namespace tiermem::cli
