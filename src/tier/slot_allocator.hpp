// The allocation of slots on a tier's devices. It only keeps records: it does no I/O, takes no lock
// and reads no clock. Its owner calls it from one thread at a time.
//
// A device is divided into chunks of 64 MiB, and each chunk is a binary buddy system down to 4 KiB:
// two free neighbours of the same size form one block of twice the size. Room freed in one size
// thus serves every other size, even on a device of a single chunk. A request takes the smallest
// block that fits, lowest address first; this keeps small slots together and large blocks whole.
// Slots come only from the preallocated part of a device; extend() moves its end.
//
// Invariant: size == in_use + sum over orders of free_blocks[order] * (4 KiB << order).
// A chunk costs 80 bytes while all its blocks are 2 MiB or larger, and 4 KiB more once some are
// smaller.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/arena.hpp"
#include "tier/frame.hpp"
#include "tier/slot_tier.hpp"

namespace tiermem {

class SlotAllocator {
 public:
  static constexpr std::uint64_t kChunkBytes = kLargestExtent;
  static constexpr unsigned kOrders = 15;       ///< A block of order n has 4 KiB << n bytes.
  static constexpr unsigned kMostDevices = 64;  ///< The number of bits of `avoid`.

  /// One limit in bytes for each device, rounded down to 4 KiB. Nothing is preallocated yet.
  explicit SlotAllocator(std::span<const std::uint64_t> limits);

  /// Returns whether `bytes` is a power of two from 4 KiB to 64 MiB.
  static bool is_slot_size(std::uint64_t bytes);
  // A SlotId is | device 8 bits | order 8 bits | position 48 bits |; the position is in units of 4
  // KiB.
  static std::uint16_t device_of(SlotId slot);
  static std::uint64_t bytes_of(SlotId slot);
  static std::uint64_t offset_of(SlotId slot);  ///< Offset in bytes on its device.

  /// Returns a slot from the preallocated part, or an invalid id if it has no room.
  SlotId allocate(std::uint16_t device, std::uint64_t bytes);
  void free(SlotId slot);
  bool has_room(std::uint16_t device, std::uint64_t bytes) const;

  /// Sets the end of the preallocated part, which never shrinks.
  void extend(std::uint16_t device, std::uint64_t size);
  /// Returns where the preallocated part must end for one more slot of `bytes`: `step` further or a
  /// little more, but not above `most` bytes or the limit. Returns 0 if that makes no room.
  std::uint64_t growth_for(std::uint16_t device, std::uint64_t bytes, std::uint64_t step,
                           std::uint64_t most) const;

  /// Adds a device at the end.
  void add_device(std::uint64_t limit);
  unsigned devices() const { return static_cast<unsigned>(devices_.size()); }
  std::uint64_t limit(std::uint16_t device) const { return devices_[device].limit; }
  std::uint64_t size(std::uint16_t device) const { return devices_[device].size; }
  std::uint64_t in_use(std::uint16_t device) const { return devices_[device].in_use; }

  /// Counts everything again. Returns the first contradiction as an `internal` error.
  Status check_invariants() const;

 private:
  /// Free blocks, one bit for each, numbered as the nodes of a binary heap: node 1 is the whole
  /// chunk, and node n has the halves 2n and 2n + 1. Nodes below 64 are the blocks of 2 MiB and
  /// more.
  struct Chunk {
    std::uint64_t coarse = 0;    ///< Nodes 1 to 63.
    Vector<std::uint64_t> fine;  ///< The other nodes; empty as long as none was ever free.
    std::array<std::uint16_t, kOrders> free_blocks{};

    bool is_free(std::uint32_t node) const;
    void flip(std::uint32_t node);
    std::uint32_t first_free(unsigned order) const;
  };
  struct Device {
    std::uint64_t limit = 0;
    std::uint64_t size = 0;    ///< Preallocated bytes.
    std::uint64_t in_use = 0;  ///< Bytes of allocated slots.
    Vector<Chunk> chunks;
    std::array<std::uint64_t, kOrders> free_blocks{};
    /// One bit for each chunk with free blocks of the order.
    std::array<Vector<std::uint64_t>, kOrders> chunks_with;
    /// No word of chunks_with before this one has a set bit.
    std::array<std::uint32_t, kOrders> cursor{};
  };

  static unsigned smallest_fit(const Device& device, unsigned order);
  static void add_free(Device& device, std::uint32_t chunk, std::uint32_t node, unsigned order);
  static void take_free(Device& device, std::uint32_t chunk, std::uint32_t node, unsigned order);
  static void give_back(Device& device, std::uint64_t offset, unsigned order);
  static bool end_is_free(const Device& device, std::uint64_t from);

  Vector<Device> devices_;
};

}  // namespace tiermem
