// The contract of a memory: frames under one budget, in exactly one address space. The mover asks
// for the guarantees of a memory, never for its name. How a frame appears at an address is the
// contract of the space, address_space.hpp.
//
// Threads: calls marked [mover] come only from the mover's thread, and return at once. Calls marked
// [worker] come from a worker and may block. Calls marked [any] come from callers' threads.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/completion.hpp"
#include "tier/frame.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

class AddressSpace;

struct FrameRequest {
  Pool pool = Pool::locked;
  std::uint64_t bytes = kDefaultExtent;  ///< Size of the extent: a power of two.
  /// The owner of the bytes that the frame will hold: 0, or the handle of an isolated buffer. A
  /// frame that changes domain is cleared before use. A handle is never reused, so two domains
  /// never have the same number; a counter of domains would wrap.
  std::uint64_t domain = 0;
  /// Its window, if it has one, is plain: the program touches it through views only, and may store.
  bool plain = true;
  /// The number of the only memory of its space that may have the extent; kMostMemories: any may.
  unsigned only = kMostMemories;

  bool may_be_in(unsigned number) const { return only == kMostMemories || only == number; }
};

/// The accounting of a memory in bytes. used = in_use + cached, and used <= budget except after
/// set_budget() below used().
struct FrameUsage {
  std::uint64_t budget = 0;
  std::uint64_t in_use = 0;   ///< Acquired frames, including slab and staging remainders.
  std::uint64_t cached = 0;   ///< Free frames with pages that are kept for the next request.
  std::uint64_t leaving = 0;  ///< Part of in_use: returned, and freed by the next trim.
  std::uint64_t used() const { return in_use + cached; }
};

class Memory {
 public:
  /// `space`: the address space of its frames; this constructor does not use it. `number`: the
  /// place of this memory in AddressSpace::memories(), below kMostMemories.
  explicit Memory(AddressSpace& space, unsigned number = 0) : space_(space), number_(number) {
    assert(number < kMostMemories);
  }
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  AddressSpace& space() const { return space_; }  // [any]
  /// [any] Every frame of this memory has this number: FrameId::memory().
  unsigned number() const { return number_; }
  virtual Place place() const = 0;  // [any]
  /// [any] Returns whether it is lost for good, with all content; loss() returns the reason. Calls
  /// for accounting still work.
  virtual bool lost() const { return false; }
  virtual Status loss() const { return {}; }

  /// [mover] Returns whether the memory has such frames at all. The answer depends on the request
  /// alone, and is the same for all domains. acquire_frame() has none if it is false.
  virtual bool takes(const FrameRequest& request) const { return request.may_be_in(number()); }
  /// [mover] Returns the bytes that the budget must have left for a new frame. They are more than
  /// its own where small frames share chunks.
  virtual std::uint64_t room_for(const FrameRequest& request) const { return request.bytes; }
  /// [mover] Acquires a frame within the budget, preferring cached frames of its class. Returns an
  /// invalid id if there is no room. A frame is *fresh* until populate() has run: it has an address
  /// and a charge, and no pages.
  virtual FrameId acquire_frame(const FrameRequest& request) = 0;
  /// [mover] Releases a frame to the memory. Its pages stay cached for the next request. The memory
  /// may free them instead, at once or with the next trim, while used() exceeds the budget. It does
  /// so if the frame was marked as referenced by other code.
  virtual void return_frame(FrameId frame) = 0;
  virtual FrameUsage usage() const = 0;  // [mover]
  // [mover] May be below used(); cached frames are freed first.
  virtual void set_budget(std::uint64_t bytes) = 0;
  /// [mover] Replaces the charge for the records of extents. Returns false, and changes nothing, if
  /// there is no room for more.
  virtual bool charge_records(std::uint64_t /*bytes*/) { return true; }
  /// [mover] Returns whether populate() must run on a worker before the frame receives bytes: it
  /// has no pages, or bytes of another domain.
  virtual bool needs_populate(FrameId frame) const = 0;
  /// [worker] Populates the frame with pages. Clears it if it holds bytes of another domain, or if
  /// `clear` is set; fresh huge pages are zero already and are not cleared twice. `at`: its future
  /// address in a window, or null. Frames without memory of their own get their pages at this
  /// address, and AddressSpace::unmap() must follow. Errors: no_capacity: the kernel has no pages.
  virtual Status populate(FrameId frame, bool clear, std::byte* at) = 0;
  /// The three steps of a trim return cached frames to the kernel until `bytes` are free or none is
  /// left, and return the bytes freed. All frames that are leaving are freed. A memory may limit
  /// the number of frames of one trim. The steps run between the mover's steps, on the mover's
  /// order; finish_trim updates the accounting.
  // [mover] Takes victims off the cache; returns their bytes.
  virtual std::uint64_t begin_trim(std::uint64_t bytes) = 0;
  virtual void run_trim() = 0;     // [worker]
  virtual void finish_trim() = 0;  // [mover]

  // The charges of frames of parts (address_space.hpp).
  /// [mover] Acquires a frame of parts with a charge of `pages`, and none of them present. Returns
  /// an invalid id if there is no room.
  virtual FrameId acquire_parts(const FrameRequest&, unsigned) { return {}; }
  /// [mover] Charges a frame of parts for this many more pages. Returns false if there is no room,
  /// if the extent has no more pages, or if the frame is whole. The frame must not be of the locked
  /// pool.
  virtual bool charge_parts(FrameId, unsigned) { return false; }
  /// [mover] Cancels a charge for pages that did not arrive, or have gone.
  virtual void discharge_parts(FrameId, unsigned) {}
  /// [mover] Acquires a frame of parts of the same size and domain. It gets the charge of `pages`
  /// from this one: in all nothing is charged. Returns an invalid id if there is no frame.
  virtual FrameId split_parts(FrameId, unsigned) { return {}; }
  /// [mover] Returns a frame that split_parts() took from `frame`. `frame` gets its charge back.
  /// The pages must be with `frame`.
  virtual void join_parts(FrameId, FrameId) {}

  // Page-locked frames. A frame that devices read and write is at its own address and outside its
  // window, which is not a mapped one. The reason is that page-locked memory does not move.
  /// [worker] Page-locks the frame's pages for devices, if the frame is at its own address and
  /// locking is possible. They stay locked until the frame appears in a window or its pages return
  /// to the kernel. Returns false if they are not locked.
  virtual bool lock_pages(FrameId) { return false; }
  /// [mover] Returns whether the frame is, or recently was, page-locked. Mapping it may take long,
  /// because unlocking waits for the work of devices.
  virtual bool has_locked_pages(FrameId) const { return false; }

  // [worker] Opaque memory only: its space is not host_addressable(). Returns false if the copy is
  // in progress: `end.ended` will be called, possibly before this returns. Returns true if it has
  // ended, with its result in `end.status`.
  virtual bool copy_in(FrameId to, const std::byte* from, std::uint64_t bytes, Completion& end);
  virtual bool copy_out(std::byte* to, FrameId from, std::uint64_t bytes, Completion& end);
  /// [mover] Returns whether bytes can come here directly from that other opaque memory.
  virtual bool reaches(const Memory&) const { return false; }
  /// Copies from a frame of such a memory, as copy_in() does, and in the order of those copies.
  virtual bool copy_from(FrameId to, Memory& other, FrameId from, std::uint64_t bytes,
                         Completion& end);

 private:
  AddressSpace& space_;
  const unsigned number_;
};

}  // namespace tiermem
