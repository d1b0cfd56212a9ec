// Which parts of a tier's devices hold slots. Pure bookkeeping: it does no I/O, takes no lock and
// reads no clock; its owner calls it from one thread at a time.
//
// A device is divided into chunks of 64 MiB, and each chunk is a binary buddy system down to 4 KiB:
// a free block whose neighbour of the same size is free too is one block of twice the size. So room
// freed in one size serves every other one, also on a device of a single chunk. A request takes the
// smallest block that fits, lowest address first, which keeps small slots together and large
// blocks whole. Only the preallocated part of a device is given out; extend() moves its end.
//
// Equation: size == in_use + sum over orders of free_blocks[order] * (4 KiB << order).
// A chunk costs 80 bytes while its blocks are of 2 MiB and more, and 4 KiB more when some are
// smaller.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/arena.hpp"
#include "tier/tier.hpp"

namespace tiermem {

class SlotAllocator {
 public:
  static constexpr std::uint64_t kChunkBytes = kLargestExtent;
  static constexpr unsigned kOrders = 15;       ///< A block of order n has 4 KiB << n bytes.
  static constexpr unsigned kMostDevices = 64;  ///< As many as `avoid` has bits.

  /// One limit in bytes per device, rounded down to 4 KiB. Nothing is preallocated yet.
  explicit SlotAllocator(std::span<const std::uint64_t> limits);

  /// A power of two from 4 KiB to 64 MiB?
  static bool is_slot_size(std::uint64_t bytes);
  // A SlotId is | device 8 bits | order 8 bits | position 48 bits |, the position in units of 4
  // KiB.
  static std::uint16_t device_of(SlotId slot);
  static std::uint64_t bytes_of(SlotId slot);
  static std::uint64_t offset_of(SlotId slot);  ///< In bytes, on its device.

  /// A slot from the preallocated part; an invalid id when there is no room in it.
  SlotId allocate(std::uint16_t device, std::uint64_t bytes);
  void free(SlotId slot);
  bool has_room(std::uint16_t device, std::uint64_t bytes) const;

  /// The preallocated part now ends at `size`; it never shrinks.
  void extend(std::uint16_t device, std::uint64_t size);
  /// Where the preallocated part must end for one more slot of `bytes`: `step` further or a little
  /// more, not above `most` bytes nor the limit. 0 when that makes no room.
  std::uint64_t growth_for(std::uint16_t device, std::uint64_t bytes, std::uint64_t step,
                           std::uint64_t most) const;

  /// One more device, at the end.
  void add_device(std::uint64_t limit);
  unsigned devices() const { return static_cast<unsigned>(devices_.size()); }
  std::uint64_t limit(std::uint16_t device) const { return devices_[device].limit; }
  std::uint64_t size(std::uint16_t device) const { return devices_[device].size; }
  std::uint64_t in_use(std::uint16_t device) const { return devices_[device].in_use; }

  /// Counts everything again; the first contradiction found, as an `internal` error.
  Status check_invariants() const;

 private:
  /// Free blocks, one bit each, numbered as the nodes of a binary heap: node 1 is the whole chunk,
  /// node n has the halves 2n and 2n + 1. Nodes below 64 are the blocks of 2 MiB and more.
  struct Chunk {
    std::uint64_t coarse = 0;    ///< Nodes 1 to 63.
    Vector<std::uint64_t> fine;  ///< The others; empty while none was ever free.
    std::array<std::uint16_t, kOrders> free_blocks{};

    bool is_free(std::uint32_t node) const;
    void flip(std::uint32_t node);
    std::uint32_t first_free(unsigned order) const;
  };
  struct Device {
    std::uint64_t limit = 0;
    std::uint64_t size = 0;    ///< Preallocated bytes.
    std::uint64_t in_use = 0;  ///< Bytes of slots given out.
    Vector<Chunk> chunks;
    std::array<std::uint64_t, kOrders> free_blocks{};
    /// A bit for each chunk with free blocks of the order.
    std::array<Vector<std::uint64_t>, kOrders> chunks_with;
    /// No word of chunks_with before this one has a bit.
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
