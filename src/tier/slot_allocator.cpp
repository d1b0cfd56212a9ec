// The buddy systems of the slot allocator. One thread at a time.

#include "tier/slot_allocator.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

#include "base/checked.hpp"
#include "base/error.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kUnit = kSmallestExtent;
constexpr unsigned kUnitBits = 12;
constexpr unsigned kRootOrder = SlotAllocator::kOrders - 1;
constexpr std::uint32_t kFirstFine = 64;
constexpr std::uint32_t kNodes = 2 << kRootOrder;
constexpr std::uint64_t kPositionMask = (std::uint64_t{1} << 48) - 1;

unsigned order_of(std::uint64_t bytes) {
  return static_cast<unsigned>(std::countr_zero(bytes)) - kUnitBits;
}

std::uint64_t bytes_of_order(unsigned order) {
  return kUnit << order;
}

std::uint32_t first_node(unsigned order) {
  return std::uint32_t{1} << (kRootOrder - order);
}

std::uint32_t node_at(std::uint64_t offset, unsigned order) {
  return first_node(order) +
         static_cast<std::uint32_t>(offset % SlotAllocator::kChunkBytes / bytes_of_order(order));
}

std::uint32_t chunk_at(std::uint64_t offset) {
  return static_cast<std::uint32_t>(offset / SlotAllocator::kChunkBytes);
}

}  // namespace

SlotAllocator::SlotAllocator(std::span<const std::uint64_t> limits) {
  for (const std::uint64_t limit : limits) {
    add_device(limit);
  }
}

void SlotAllocator::add_device(std::uint64_t limit) {
  assert(devices_.size() < kMostDevices);
  devices_.emplace_back().limit = std::min(limit / kUnit, kPositionMask) * kUnit;
}

bool SlotAllocator::is_slot_size(std::uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kSmallestExtent && bytes <= kLargestExtent;
}

std::uint16_t SlotAllocator::device_of(SlotId slot) {
  return static_cast<std::uint16_t>(slot.value >> 56);
}

std::uint64_t SlotAllocator::bytes_of(SlotId slot) {
  return bytes_of_order(static_cast<unsigned>(slot.value >> 48 & 0xff));
}

std::uint64_t SlotAllocator::offset_of(SlotId slot) {
  return (slot.value & kPositionMask) << kUnitBits;
}

SlotId SlotAllocator::allocate(std::uint16_t number, std::uint64_t bytes) {
  assert(is_slot_size(bytes));
  Device& device = devices_[number];
  const unsigned order = order_of(bytes);
  unsigned from = smallest_fit(device, order);
  if (from == kOrders) {
    return SlotId{};
  }
  Vector<std::uint64_t>& with = device.chunks_with[from];
  std::uint32_t& cursor = device.cursor[from];
  while (with[cursor] == 0) {
    ++cursor;  // A bit is set, and none is before the cursor.
  }
  const std::uint32_t chunk =
      cursor * 64 + static_cast<std::uint32_t>(std::countr_zero(with[cursor]));
  std::uint32_t node = device.chunks[chunk].first_free(from);
  take_free(device, chunk, node, from);
  while (from > order) {
    --from;
    node *= 2;
    add_free(device, chunk, node + 1, from);  // The upper half stays free.
  }
  device.in_use += bytes;
  const std::uint64_t position = std::uint64_t{chunk} * (kChunkBytes / kUnit) +
                                 (std::uint64_t{node - first_node(order)} << order);
  return SlotId{std::uint64_t{number} << 56 | std::uint64_t{order} << 48 | position};
}

void SlotAllocator::free(SlotId slot) {
  Device& device = devices_.at(device_of(slot));
  device.in_use -= bytes_of(slot);
  give_back(device, offset_of(slot), order_of(bytes_of(slot)));
}

bool SlotAllocator::has_room(std::uint16_t device, std::uint64_t bytes) const {
  return smallest_fit(devices_[device], order_of(bytes)) != kOrders;
}

void SlotAllocator::extend(std::uint16_t number, std::uint64_t size) {
  Device& device = devices_[number];
  assert(size <= device.limit && size % kUnit == 0);
  device.chunks.resize(
      std::max<std::size_t>(device.chunks.size(), round_up(size, kChunkBytes) / kChunkBytes));
  for (Vector<std::uint64_t>& with : device.chunks_with) {
    with.resize((device.chunks.size() + 63) / 64);
  }
  while (device.size < size) {
    // The largest block that starts here and ends before the end.
    unsigned order = kRootOrder;
    while (device.size % bytes_of_order(order) != 0 || device.size + bytes_of_order(order) > size) {
      --order;
    }
    give_back(device, device.size, order);
    device.size += bytes_of_order(order);
  }
}

std::uint64_t SlotAllocator::growth_for(std::uint16_t number, std::uint64_t bytes,
                                        std::uint64_t step, std::uint64_t most) const {
  const Device& device = devices_[number];
  most = std::min(most, device.limit) / kUnit * kUnit;
  // The block that the present end cuts, if its existing part is free; else the next one.
  const std::uint64_t cut = device.size / bytes * bytes;
  const std::uint64_t begin = end_is_free(device, cut) ? cut : round_up(device.size, bytes);
  const std::uint64_t needed = begin + bytes;
  if (needed > most) {
    return 0;
  }
  return std::min(most, round_up(std::max(needed, device.size + step), kChunkBytes));
}

/// Returns whether everything from here to the end is free. `from` is the start of the aligned
/// block that contains the end.
bool SlotAllocator::end_is_free(const Device& device, std::uint64_t from) {
  // A free rest consists of ever smaller blocks: the other halves of the larger ones are beyond the
  // end.
  for (unsigned order = kOrders; order-- > 0 && from < device.size;) {
    if (from + bytes_of_order(order) > device.size) {
      continue;
    }
    if (!device.chunks[chunk_at(from)].is_free(node_at(from, order))) {
      return false;
    }
    from += bytes_of_order(order);
  }
  return true;
}

unsigned SlotAllocator::smallest_fit(const Device& device, unsigned order) {
  while (order < kOrders && device.free_blocks[order] == 0) {
    ++order;
  }
  return order;
}

void SlotAllocator::add_free(Device& device, std::uint32_t index, std::uint32_t node,
                             unsigned order) {
  Chunk& chunk = device.chunks[index];
  assert(!chunk.is_free(node));
  chunk.flip(node);
  ++device.free_blocks[order];
  if (++chunk.free_blocks[order] == 1) {
    device.chunks_with[order][index / 64] |= std::uint64_t{1} << (index % 64);
    device.cursor[order] = std::min(device.cursor[order], index / 64);
  }
}

void SlotAllocator::take_free(Device& device, std::uint32_t index, std::uint32_t node,
                              unsigned order) {
  Chunk& chunk = device.chunks[index];
  assert(chunk.is_free(node));
  chunk.flip(node);
  --device.free_blocks[order];
  if (--chunk.free_blocks[order] == 0) {
    device.chunks_with[order][index / 64] &= ~(std::uint64_t{1} << (index % 64));
  }
}

/// Frees the block, and merges it with its free neighbours.
void SlotAllocator::give_back(Device& device, std::uint64_t offset, unsigned order) {
  const std::uint32_t chunk = chunk_at(offset);
  std::uint32_t node = node_at(offset, order);
  while (node > 1 && device.chunks[chunk].is_free(node ^ 1)) {
    take_free(device, chunk, node ^ 1, order);
    node /= 2;
    ++order;
  }
  add_free(device, chunk, node, order);
  if (node == 1) {
    Vector<std::uint64_t>().swap(device.chunks[chunk].fine);
  }
}

bool SlotAllocator::Chunk::is_free(std::uint32_t node) const {
  if (node < kFirstFine) {
    return (coarse >> node & 1) != 0;
  }
  return !fine.empty() && (fine[node / 64 - 1] >> (node % 64) & 1) != 0;
}

void SlotAllocator::Chunk::flip(std::uint32_t node) {
  if (node < kFirstFine) {
    coarse ^= std::uint64_t{1} << node;
    return;
  }
  if (fine.empty()) {
    fine.resize(kNodes / 64 - 1);
  }
  fine[node / 64 - 1] ^= std::uint64_t{1} << (node % 64);
}

/// Returns the lowest free block of this order; one exists.
std::uint32_t SlotAllocator::Chunk::first_free(unsigned order) const {
  const std::uint32_t first = first_node(order);
  if (first < kFirstFine) {
    return first + static_cast<std::uint32_t>(std::countr_zero(coarse >> first));
  }
  std::uint32_t word = first / 64;
  while (fine[word - 1] == 0) {
    ++word;
  }
  return word * 64 + static_cast<std::uint32_t>(std::countr_zero(fine[word - 1]));
}

Status SlotAllocator::check_invariants() const {
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    const Device& device = devices_[d];
    std::array<std::uint64_t, kOrders> total{};
    std::uint64_t free_bytes = 0;
    for (std::size_t c = 0; c < device.chunks.size(); ++c) {
      const Chunk& chunk = device.chunks[c];
      for (unsigned order = 0; order < kOrders; ++order) {
        std::uint64_t count = 0;
        for (std::uint32_t i = 0; i < first_node(order); ++i) {
          const std::uint32_t node = first_node(order) + i;
          if (!chunk.is_free(node)) {
            continue;
          }
          ++count;
          for (std::uint32_t above = node / 2; above > 0; above /= 2) {
            if (chunk.is_free(above)) {
              return fail(Code::internal, "slots: device {} chunk {} node {} is free twice", d, c,
                          node);
            }
          }
          if (node > 1 && chunk.is_free(node ^ 1)) {
            return fail(Code::internal, "slots: device {} chunk {} node {} is not joined", d, c,
                        node);
          }
        }
        const bool listed = (device.chunks_with[order][c / 64] >> (c % 64) & 1) != 0;
        if (count != chunk.free_blocks[order] || listed != (count != 0) ||
            (listed && device.cursor[order] > c / 64)) {
          return fail(Code::internal, "slots: device {} chunk {} has {} free blocks of order {}", d,
                      c, count, order);
        }
        total[order] += count;
        free_bytes += count * bytes_of_order(order);
      }
    }
    if (total != device.free_blocks || device.size != device.in_use + free_bytes ||
        device.size > device.limit) {
      return fail(Code::internal, "slots: device {}: size {}, in use {}, free {}", d, device.size,
                  device.in_use, free_bytes);
    }
  }
  return Code::ok;
}

}  // namespace tiermem
