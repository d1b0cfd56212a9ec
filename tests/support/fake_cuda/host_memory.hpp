// Page-locked host memory: registered, or allocated by the driver. Only records: a registration
// holds no pages, and munmap does not change it.
// Guarded by World::mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>

#include "os/cuda_types.hpp"

namespace tiermem::test {

class HostMemory {
 public:
  /// The meaning of a range for a copy.
  enum class Sort : std::uint8_t {
    pageable,
    locked,
    leaving,  ///< Begins in locked memory and ends outside: the driver refuses it.
  };

  ~HostMemory();

  cuda::Result register_range(const void* at, std::uint64_t bytes);
  cuda::Result unregister(const void* at);
  cuda::Result allocate(std::uint64_t bytes, void*& at);
  cuda::Result free(void* at);

  Sort sort_of(const void* at, std::uint64_t bytes) const;

  std::uint64_t registrations() const { return ranges_.size() - allocations_; }
  std::uint64_t allocations() const { return allocations_; }
  std::uint64_t locked_bytes() const { return locked_bytes_; }

  std::uint64_t lockable = std::numeric_limits<std::uint64_t>::max();

 private:
  struct Range {
    std::uint64_t bytes = 0;
    std::uint64_t pages = 0;  // Bytes of its pages.
    bool ours = false;        // From allocate().
  };

  std::map<std::uintptr_t, Range>::const_iterator around(std::uintptr_t at) const;
  cuda::Result add(std::uintptr_t at, std::uint64_t bytes, bool ours);

  std::map<std::uintptr_t, Range> ranges_;  // No two ranges share a page.
  std::uint64_t allocations_ = 0;
  std::uint64_t locked_bytes_ = 0;
};

}  // namespace tiermem::test
