// The contract of a slot tier: slots that only transfers reach (files, raw devices). The mover asks
// for the guarantees of a tier, never for its name.
//
// Threads: calls marked [mover] come only from the mover's thread, and return at once. Calls marked
// [worker] come from a worker and may block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tier/frame.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

/// A slot: room for one extent in a slot tier. Only the tier interprets the device and position.
struct SlotId {
  std::uint64_t value = ~std::uint64_t{0};
  bool valid() const { return value != ~std::uint64_t{0}; }
  friend bool operator==(SlotId, SlotId) = default;
};

/// One read or write of a slot, or of a part of it.
struct SlotTransfer {
  std::uint64_t cookie = 0;
  SlotId slot{};
  bool write = false;
  std::byte* data = nullptr;  ///< Memory that stays present and in place until the completion.
  /// The tier rounds it up to the block size if needed: the frame has the room. Bytes of an adopted
  /// file after its end read as zeros.
  std::uint64_t length = 0;
  std::uint64_t offset = 0;  ///< Offset in the slot: a multiple of kSmallestExtent.
  /// For a read: `data` is memory of the program. Its pages may be absent, and only threads that
  /// may wait for them touch it. `data` and `length` are multiples of kSmallestExtent, and nothing
  /// is rounded up.
  bool to_program = false;
};

struct SlotCompletion {
  std::uint64_t cookie = 0;
  Code code = Code::ok;     ///< ok only when all bytes were transferred.
  std::int32_t native = 0;  ///< errno
  std::uint16_t device = 0;
  std::uint32_t retries = 0;
  std::uint32_t requests = 0;  ///< Without retries. 0: it was part of a neighbour's request.
  bool buffered = false;       ///< Some of it went through the page cache.
  std::uint64_t device_offset = 0;
};

struct SlotUsage {
  std::uint64_t budget = 0;
  std::uint64_t in_use = 0;  ///< Bytes of allocated slots.
  /// Bytes that the files occupy; <= budget except after set_budget() below it, as files never
  /// shrink.
  std::uint64_t physical = 0;
};

class SlotTier {
 public:
  virtual ~SlotTier() = default;
  virtual Place place() const = 0;
  /// Returns whether slots are charged for what is stored in them, which a processor packs. Such a
  /// tier suits extents that are read page by page. A tier that does not compress follows it, reads
  /// never go to the program's memory, and a child of fork has slots of its own.
  virtual bool compresses() const { return false; }

  /// [mover] Allocates room for `bytes` (a power of two) on a device without its bit set in
  /// `avoid`. Errors: busy: grow() must first make room on a worker. no_capacity: the budget or the
  /// devices are full.
  virtual Result<SlotId> allocate(std::uint64_t bytes, std::uint64_t avoid) = 0;
  virtual void free(SlotId slot) = 0;  // [mover]
  /// [mover] Returns the bytes that the slot is charged for. They change only by writes, and only
  /// in a tier that compresses.
  virtual std::uint64_t bytes_of(SlotId) const { return 0; }
  virtual SlotUsage usage() const = 0;  // [mover]
  virtual void set_budget(std::uint64_t bytes) = 0;
  // [worker] Preallocates room for slots of `bytes` on some device.
  virtual Status grow(std::uint64_t bytes) = 0;
  /// [mover] Returns the number of concurrent transfers that keeps the devices busy.
  virtual unsigned depth() const = 0;
  virtual std::uint16_t device_of(SlotId slot) const = 0;
  virtual const char* device_name(std::uint16_t device) const = 0;
  /// [mover] Stops allocating slots on a device that failed, until trust_again().
  virtual void degrade(std::uint16_t device, const char* why) = 0;
  /// [mover] Allocates slots on degraded devices again: the next write decides.
  virtual void trust_again() = 0;
  virtual unsigned degraded() const = 0;

  virtual void submit(const SlotTransfer& transfer) = 0;  // [mover] Never refuses up to depth().
  /// [mover] A DirectPath read or wrote the whole slot, without submit().
  virtual void went_past(SlotId, std::uint64_t, bool) {}
  /// [mover] The last transfer of a group was submitted. A tier that combines neighbours has waited
  /// for this. The devices begin at the next reap() or wait.
  virtual void dispatch() {}
  virtual std::size_t reap(std::span<SlotCompletion> completions) = 0;  // [mover]
  /// [mover] Returns whether reap() has work. No event announces it.
  virtual bool pending() const { return false; }

  /// [mover] Returns whether read_here() may be called.
  virtual bool reads_here() const { return false; }
  /// [any] Reads on the calling thread, which waits for the device. Nothing else reads or writes
  /// the slot at the same time. A read that fails can be repeated with submit(). Waits for no other
  /// thread and allocates nothing.
  virtual SlotCompletion read_here(const SlotTransfer& transfer) {
    return {.cookie = transfer.cookie, .code = Code::unsupported};
  }
};

}  // namespace tiermem
