// The contract of a memory in which extents live. Two kinds: an AddressableTier holds frames that a
// processor addresses (DRAM; in the simulator also an opaque device); a SlotTier holds slots that
// only I/O reaches (files, raw devices). The mover asks what a tier guarantees, never what it is
// called.
//
// Threads: calls marked [mover] come from the mover's thread only, and return at once. Calls marked
// [hand] come from a worker and may block. Calls marked [any] come from callers' threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ending.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

inline constexpr std::uint64_t kSmallestExtent = 4096;
inline constexpr std::uint64_t kDefaultExtent = std::uint64_t{2} << 20;
inline constexpr std::uint64_t kLargestExtent = std::uint64_t{64} << 20;

/// Which pool a frame comes from (design §5). `locked` frames never change address: buffers of one
/// extent, staging. `movable` frames appear in windows and are made of huge pages. `small` frames
/// appear in windows and are made of 4 KiB pages.
enum class Pool : std::uint8_t { locked, movable, small };

/// A frame: room for one extent in an addressable tier. Opaque to all but its tier.
struct FrameId {
  std::uint64_t value = ~std::uint64_t{0};
  bool valid() const { return value != ~std::uint64_t{0}; }
  friend bool operator==(FrameId, FrameId) = default;
};

/// How a frame came to appear in its window. Named in receipts.
enum class Mechanism : std::uint8_t { in_place, uffd_move, remap, copy };

/// Some pages of an extent: bit i is its i-th page of kSmallestExtent.
using PageMask = std::uint32_t;
inline constexpr unsigned kMostParts = 32;  ///< Pages of the largest extent that can be in parts.

struct FrameRequest {
  Pool pool = Pool::locked;
  std::uint64_t bytes = kDefaultExtent;  ///< The extent's size: a power of two.
  /// Whose bytes the frame will carry: 0, or the handle of an isolated buffer. A frame that changes
  /// domain is cleared before use. A handle is never given out twice, so two domains never have the
  /// same number; a counter of domains would wrap.
  std::uint64_t domain = 0;
};

/// What the books of an addressable tier say, in bytes. used = in_use + cached, and used <= budget.
struct FrameBooks {
  std::uint64_t budget = 0;
  std::uint64_t in_use = 0;   ///< Frames given out, slab and staging remainders included.
  std::uint64_t cached = 0;   ///< Free frames whose pages are kept for the next request.
  std::uint64_t leaving = 0;  ///< Of in_use: given back, and gone with the next trim.
  std::uint64_t used() const { return in_use + cached; }
};

/// Page-locks host memory for devices: their copies then go at the link's rate, beside each other.
/// [hand] Calls may take a tenth of a millisecond for each 2 MiB.
class PageLocker {
 public:
  virtual ~PageLocker() = default;
  /// The pages are there, and stay until unlock(at).
  virtual Status lock(std::byte* at, std::uint64_t bytes) = 0;
  /// No copy is under way. May wait for whatever the devices do.
  virtual void unlock(std::byte* at) = 0;
};

class AddressableTier {
 public:
  virtual ~AddressableTier() = default;
  virtual Place place() const = 0;
  /// [any] Its memory is gone for good, with all that was in it; loss() says why. Calls go on
  /// working as far as books are concerned.
  virtual bool lost() const { return false; }
  virtual Status loss() const { return {}; }
  /// False for memory the host cannot touch: bytes then pass through `copy_in` and `copy_out`.
  virtual bool host_addressable() const = 0;

  /// [mover] A frame within the budget, preferring cached ones of its class; an invalid id when
  /// there is no room. A frame is *fresh* until populate() ran: it has an address and a charge, and
  /// no pages.
  virtual FrameId acquire_frame(const FrameRequest& request) = 0;
  /// [mover] Gives a frame back. Its pages stay cached, unless used() is above the budget or the
  /// frame was marked as referenced from outside.
  virtual void return_frame(FrameId frame) = 0;
  virtual FrameBooks books() const = 0;  // [mover]
  virtual void set_budget(
      std::uint64_t bytes) = 0;  // [mover] May be below used(); cached frames go first.
  /// [mover] The records of extents take so much of the budget, in place of what they took before.
  /// False, and nothing is changed, where there is no room for more.
  virtual bool charge_records(std::uint64_t /*bytes*/) { return true; }
  /// [mover] True when populate() must run on a hand before bytes land: no pages yet, or another
  /// domain's bytes.
  virtual bool needs_populate(FrameId frame) const = 0;
  /// [hand] Pages for the frame; clears it when it carries another domain's bytes or `clear` is
  /// set. Fresh huge pages are zero already and are not cleared twice. `at`: where in a window it
  /// will appear, or null; a tier whose frames have no memory of their own brings the pages there,
  /// and unmap() must follow. no_capacity when the kernel has no pages.
  virtual Status populate(FrameId frame, bool clear, std::byte* at) = 0;
  /// [hand] Cached frames given back to the kernel until `bytes` are free or none is left; returns
  /// bytes freed. Called between the mover's steps by the mover's order: the books change in
  /// finish_trim.
  virtual std::uint64_t begin_trim(
      std::uint64_t bytes) = 0;    // [mover] Takes victims off the cache; their bytes.
  virtual void run_trim() = 0;     // [hand]
  virtual void finish_trim() = 0;  // [mover]

  /// [any] An address range for a buffer of several extents, or nullptr with the reason.
  /// `extent_bytes` divides it. `mapped`: its absent extents may be touched, and wait; unsupported
  /// where the tier cannot make them wait.
  virtual Result<std::byte*> reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                            bool mapped) = 0;
  /// [any] No frame may be mapped in it. Returns at once.
  virtual void release_window(std::byte* window, std::uint64_t bytes) = 0;
  /// [mover] The pool whose frames can appear in a window of this extent size here.
  virtual Pool window_pool(std::uint64_t extent_bytes) const = 0;

  /// [any] Where bytes must land before map(): the frame's own address, or `at` when mapping
  /// happens in place. `at` is the extent's address in its window; nullptr for a buffer without
  /// one.
  virtual std::byte* landing(FrameId frame, std::byte* at) const = 0;
  /// [hand] The frame appears at `at`, with its bytes, atomically. Nothing to do without a window.
  virtual Status map(FrameId frame, std::byte* at, Mechanism& used) = 0;
  /// [hand] The frame leaves its window. If its pages cannot be taken along (shared by a fork,
  /// page-locked) they are dropped and the frame is fresh again: only called for extents whose
  /// bytes are elsewhere. An error: the frame is still in its window, and belongs to it until a
  /// later call succeeds.
  virtual Status unmap(FrameId frame, std::byte* at) = 0;
  /// [hand] The frame leaves its mapped window with its bytes; who touches it there from now on
  /// waits. Any error leaves it in the window, whole.
  virtual Status withdraw(FrameId frame, std::byte* at);
  /// [mover] withdraw() of this frame takes long and may wait in a fault: it is for a hand, and not
  /// for the thread that serves faults.
  virtual bool withdraws_slowly(FrameId) const { return false; }
  /// [hand] The frame appears in its mapped window. Its bytes may be the only ones, and the program
  /// writes each page as soon as it is there: nothing is dropped or undone, the kernel is asked
  /// until it has done it.
  virtual Status restore(FrameId frame, std::byte* at);
  /// [mover] restore() of this frame is one short call, though the frame is large.
  virtual bool restores_at_once(FrameId) const { return false; }
  /// [any] The program has mapped something of its own over a part of the range, which is in a
  /// mapped window.
  virtual bool lent(const std::byte*, std::uint64_t) const { return false; }
  /// [any] How restore() does it, for receipts.
  virtual Mechanism restores_by() const { return Mechanism::uffd_move; }

  // An extent of which some pages are in its mapped window. Its frame is *of parts*: it is charged
  // by the page, gets its pages in the window itself, and is a whole frame once it has all of them.
  /// [any] Extents of this size can be in their windows in parts.
  virtual bool takes_parts(std::uint64_t) const { return false; }
  /// [mover] A frame of parts with a charge of `pages` and none of them yet; invalid when there is
  /// no room.
  virtual FrameId acquire_parts(const FrameRequest&, unsigned) { return {}; }
  /// [mover] So many pages more for a frame of parts. False: no room, or no such frame.
  virtual bool charge_parts(FrameId, unsigned) { return false; }
  /// [mover] Takes back a charge whose pages did not come.
  virtual void discharge_parts(FrameId, unsigned) {}
  /// [hand] Copies of the pages in `pages`, charged and absent so far, appear in the window at
  /// `at`. `data` is where the extent's first page would be; of the rest nothing is read. The
  /// kernel is asked until it has done it. withdraw(), restore() and unmap() then mean the pages
  /// that the frame has.
  /// `watched`: the tier shall see whether they are written, if it can.
  virtual Status insert(FrameId frame, std::byte* at, const std::byte* data, PageMask pages,
                        bool watched);
  /// [hand] Some of the frame's pages, and their bytes, are no more. Its charge stays. With an
  /// error they count as there, with zeros or their bytes.
  virtual Status empty(FrameId frame, std::byte* at, PageMask pages);
  struct Unchanged {
    FrameId frame{};
    std::byte* at = nullptr;
    bool dropped = false;  ///< The answer.
  };
  /// [mover] All of the frame's pages came watched: drop_unchanged() may take them.
  virtual bool may_be_unchanged(FrameId) const { return false; }
  /// [mover] Of these frames, each in its mapped window at `at`, those whose pages are all as
  /// insert() brought them leave it and have none any more; the others stay as they are, and are
  /// no longer watched. One short call for all of them, that waits for no fault.
  virtual void drop_unchanged(std::span<Unchanged>) {}

  // A frame whose bytes devices read and write is at its own address, out of the window (not a
  // mapped one) that it may appear in: what is page-locked does not move.
  /// [hand] The frame's pages are page-locked for devices, if it is at its own address and it can
  /// be done, until it appears in a window or they go back to the kernel. False: they are not.
  virtual bool lock_pages(FrameId) { return false; }
  /// [mover] It is so, or was lately: to appear in a window takes long, as to unlock waits for what
  /// devices do.
  virtual bool has_locked_pages(FrameId) const { return false; }
  /// [hand] The frame leaves its window with its bytes. Any error leaves it there, whole.
  virtual Status take_home(FrameId frame, std::byte* at);
  /// [hand] The frame appears at `at`, with its bytes, perhaps the only ones: any error leaves it
  /// at its own address. Of opaque memory it has that all the time, and appears in a window as
  /// well, until it is another extent's; nothing else appears there from now on.
  virtual Status show(FrameId frame, std::byte* at);

  // Opaque memory only.
  /// [any] It does. For a frame that nobody gives back meanwhile.
  virtual bool shows(FrameId, std::byte*) const { return false; }

  // [hand] Opaque memory only. False: the copy goes on, and `end.ended` will be called, perhaps
  // before this returns. True: it is over, and `end.status` says how.
  virtual bool copy_in(FrameId to, const std::byte* from, std::uint64_t bytes, Ending& end);
  virtual bool copy_out(std::byte* to, FrameId from, std::uint64_t bytes, Ending& end);
  /// [mover] Bytes can come here straight from that other opaque memory.
  virtual bool reaches(const AddressableTier&) const { return false; }
  /// From a frame of such a memory, as copy_in(): in the order of these.
  virtual bool copy_from(FrameId to, AddressableTier& other, FrameId from, std::uint64_t bytes,
                         Ending& end);
};

/// A slot: room for one extent in a slot tier. Device and position are the tier's business.
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
  std::byte* data = nullptr;  ///< Stable, present memory until the completion.
  std::uint64_t length =
      0;  ///< Rounded up to the block size by the tier where needed: the frame has the room.
  std::uint64_t offset = 0;  ///< In the slot: a multiple of kSmallestExtent.
};

struct SlotCompletion {
  std::uint64_t cookie = 0;
  Code code = Code::ok;     ///< ok only when all bytes were transferred.
  std::int32_t native = 0;  ///< errno
  std::uint16_t device = 0;
  std::uint32_t retries = 0;
  std::uint32_t requests = 0;  ///< Without retries. 0: it went along in a neighbour's.
  bool buffered = false;       ///< Some of it went through the page cache.
  std::uint64_t device_offset = 0;
};

struct SlotBooks {
  std::uint64_t budget = 0;
  std::uint64_t in_use = 0;    ///< Bytes of slots given out.
  std::uint64_t physical = 0;  ///< Bytes the files occupy; <= budget.
};

class SlotTier {
 public:
  virtual ~SlotTier() = default;
  virtual Place place() const = 0;

  /// [mover] Room for `bytes` (a power of two), not on a device whose bit is set in `avoid`.
  /// busy: room must first be made by grow() on a hand. no_capacity: the cap or the devices are
  /// full.
  virtual Result<SlotId> allocate(std::uint64_t bytes, std::uint64_t avoid) = 0;
  virtual void free(SlotId slot) = 0;  // [mover]
  /// [mover] What the slot is charged with.
  virtual std::uint64_t bytes_of(SlotId) const { return 0; }
  virtual SlotBooks books() const = 0;  // [mover]
  virtual void set_budget(std::uint64_t bytes) = 0;
  virtual Status grow(
      std::uint64_t bytes) = 0;  // [hand] Preallocates room for slots of `bytes` on some device.
  /// [mover] How many transfers may be under way at once to keep the devices busy.
  virtual unsigned depth() const = 0;
  virtual std::uint16_t device_of(SlotId slot) const = 0;
  virtual const char* device_name(std::uint16_t device) const = 0;
  /// [mover] A device that failed is given no new slots until it is trusted again.
  virtual void degrade(std::uint16_t device, const char* why) = 0;
  /// [mover] All that are degraded are given slots again: the next write decides.
  virtual void trust_again() = 0;
  virtual unsigned degraded() const = 0;

  virtual void submit(const SlotTransfer& transfer) = 0;  // [mover] Never refuses up to depth().
  /// [mover] All of this slot was read or written by a DirectPath, and not by submit().
  virtual void went_past(SlotId, std::uint64_t, bool) {}
  /// [mover] The last of a group was submitted: a tier that puts neighbours together has waited for
  /// it. The devices begin at the next reap() or wait.
  virtual void dispatch() {}
  virtual std::size_t reap(std::span<SlotCompletion> completions) = 0;  // [mover]
};

}  // namespace tiermem
