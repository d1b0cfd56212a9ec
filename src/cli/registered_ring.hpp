// An io_uring with registered memory. It shows what the kernel saves if the same buffers are used
// repeatedly. Only for measuring. One thread.
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
  /// Registers all of `memory`, which must outlive the ring. Returns nullptr and `reason` on
  /// refusal.
  static std::unique_ptr<RegisteredRing> create(const host::AddressRange& memory, unsigned depth,
                                                std::string& reason);
  ~RegisteredRing();
  RegisteredRing(const RegisteredRing&) = delete;
  RegisteredRing& operator=(const RegisteredRing&) = delete;

  // As in IoPort; requests use descriptors and addresses inside the memory.
  bool submit(const IoRequest& request);
  std::size_t reap(std::span<IoCompletion> completions);
  /// Waits until there is a completion to reap.
  void wait(std::int64_t);

 private:
  struct Ring;
  explicit RegisteredRing(std::unique_ptr<Ring> ring);
  const std::unique_ptr<Ring> ring_;
};

}  // namespace tiermem::cli
