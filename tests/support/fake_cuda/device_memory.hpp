// The memory of all fake devices. A device address belongs to a range that the host can neither
// read nor write (PROT_NONE). A device pointer therefore differs from every other number in the
// process, and dereferencing it raises SIGSEGV. The bytes are in an Allocation, and only the
// driver's copies find them, through the mappings.
//
//   device.used == sum of the bytes of its Allocations: those with a handle, those mapped, and
//   those that a copy under way holds
//
// Guarded by World::mutex, except for the bytes themselves.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "os/cuda_types.hpp"

namespace tiermem::test {

inline constexpr int kMostDevices = 16;

struct DeviceBooks {
  std::uint64_t capacity = 0;
  std::uint64_t taken = 0;  ///< By other processes.
  /// Shared with the allocations, which may end after a reset() and in a stream's thread.
  std::shared_ptr<std::atomic<std::uint64_t>> used =
      std::make_shared<std::atomic<std::uint64_t>>(0);

  std::uint64_t free() const;
};

/// Physical memory. A fresh allocation is full of 0xA5, because nothing promises zeros.
class Allocation {
 public:
  /// Returns null if the host lacks memory.
  static std::shared_ptr<Allocation> make(int device, std::uint64_t bytes, DeviceBooks& books);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  int device() const { return device_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t id() const { return id_; }  ///< Unique, for ever.
  std::byte* at(std::uint64_t offset) const { return at_ + offset; }

 private:
  Allocation() = default;

  int device_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t id_ = 0;
  std::byte* at_ = nullptr;
  std::shared_ptr<std::atomic<std::uint64_t>> used_;
};

/// Consecutive bytes for a copy. `memory` keeps a device's bytes alive during it; null for the
/// host's.
struct Piece {
  std::byte* at = nullptr;
  std::uint64_t bytes = 0;
  std::shared_ptr<Allocation> memory;

  bool operator==(const Piece&) const = default;
};

class DeviceMemory {
 public:
  ~DeviceMemory();

  cuda::Result reserve(std::uint64_t bytes, std::uint64_t alignment, cuda::DevicePointer wanted,
                       cuda::DevicePointer& at);
  cuda::Result free_reservation(cuda::DevicePointer at, std::uint64_t bytes);
  cuda::Result create(int device, std::uint64_t bytes, cuda::MemoryHandle& handle);
  cuda::Result release(cuda::MemoryHandle handle);
  cuda::Result map(cuda::DevicePointer at, std::uint64_t bytes, cuda::MemoryHandle handle);
  cuda::Result unmap(cuda::DevicePointer at, std::uint64_t bytes);
  cuda::Result set_access(cuda::DevicePointer at, std::uint64_t bytes, int device, int access);

  /// cuMemAlloc: reservation, memory and mapping together, of any size.
  cuda::Result allocate(int device, std::uint64_t bytes, cuda::DevicePointer& at);
  cuda::Result free(cuda::DevicePointer at);
  /// Whether memory of allocate() begins here.
  bool allocated(cuda::DevicePointer at) const;

  /// Whether the address is a device's, mapped or not.
  bool owns(cuda::DevicePointer at) const;
  /// Finds the mapping around an address; returns false if there is none.
  bool find(cuda::DevicePointer at, cuda::DevicePointer& base, std::uint64_t& bytes,
            int& device) const;
  /// The id of the memory mapped there; 0 if there is none.
  std::uint64_t id_at(cuda::DevicePointer at) const;
  /// Appends the positions of the bytes. Returns false unless all are mapped and `device` has the
  /// access `access` (1 read, 3 also write).
  bool resolve(cuda::DevicePointer at, std::uint64_t bytes, int device, int access,
               std::vector<Piece>& to) const;

  std::uint64_t handles() const { return handles_.size(); }
  std::uint64_t reservations() const { return reservations_.size() - allocations_; }
  std::uint64_t mappings() const { return mappings_.size() - allocations_; }
  std::uint64_t allocations() const { return allocations_; }

  std::array<DeviceBooks, kMostDevices> books;
  std::uint64_t granularity = 0;

 private:
  struct Reservation {
    std::uint64_t bytes = 0;         // Whole pages of the host's addresses.
    bool of_one_allocation = false;  // From cuMemAlloc: not for the calls on reservations.
  };
  struct Mapping {
    std::uint64_t bytes = 0;
    std::shared_ptr<Allocation> memory;
    std::array<int, kMostDevices> access{};
    bool of_one_allocation = false;
  };
  using Mappings = std::map<cuda::DevicePointer, Mapping>;

  bool granular(std::uint64_t value) const { return value != 0 && value % granularity == 0; }
  std::map<cuda::DevicePointer, Reservation>::const_iterator reservation_around(
      cuda::DevicePointer at) const;
  Mappings::const_iterator mapping_around(cuda::DevicePointer at) const;
  bool whole_mappings(cuda::DevicePointer at, std::uint64_t bytes, Mappings::iterator& first,
                      Mappings::iterator& last);

  std::map<cuda::DevicePointer, Reservation> reservations_;
  std::map<cuda::MemoryHandle, std::shared_ptr<Allocation>> handles_;
  Mappings mappings_;
  cuda::MemoryHandle next_handle_ = 1;
  std::uint64_t allocations_ = 0;
};

}  // namespace tiermem::test
