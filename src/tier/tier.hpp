// The contract of a memory in which extents live. There are two kinds. An AddressableTier holds
// frames that a processor addresses (DRAM; in the simulator also an opaque device). A SlotTier
// holds slots that only I/O reaches (files, raw devices). The mover asks for the guarantees of a
// tier, never for its name.
//
// Threads: calls marked [mover] come only from the mover's thread, and return at once. Calls marked
// [hand] come from a hand and may block. Calls marked [any] come from callers' threads.
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

/// The pool of a frame (design §5). `locked` frames never change address: buffers of one extent,
/// staging. `movable` frames appear in windows and use huge pages. `small` frames appear in windows
/// and use 4 KiB pages.
enum class Pool : std::uint8_t { locked, movable, small };

/// A frame: room for one extent in an addressable tier. Opaque except to its tier.
struct FrameId {
  std::uint64_t value = ~std::uint64_t{0};
  bool valid() const { return value != ~std::uint64_t{0}; }
  friend bool operator==(FrameId, FrameId) = default;
};

/// How a frame came to appear in its window. Receipts name it.
enum class Mechanism : std::uint8_t { in_place, uffd_move, remap, copy };

/// A set of pages of an extent: bit i is its i-th page of kSmallestExtent.
using PageMask = std::uint32_t;
/// Number of pages of the largest extent that can be in parts.
inline constexpr unsigned kMostParts = 32;

struct FrameRequest {
  Pool pool = Pool::locked;
  std::uint64_t bytes = kDefaultExtent;  ///< Size of the extent: a power of two.
  /// The owner of the bytes that the frame will hold: 0, or the handle of an isolated buffer. A
  /// frame that changes domain is cleared before use. A handle is never reused, so two domains
  /// never have the same number; a counter of domains would wrap.
  std::uint64_t domain = 0;
};

/// The accounting of an addressable tier in bytes. used = in_use + cached, and used <= budget
/// except after set_budget() below used().
struct FrameBooks {
  std::uint64_t budget = 0;
  std::uint64_t in_use = 0;   ///< Acquired frames, including slab and staging remainders.
  std::uint64_t cached = 0;   ///< Free frames with pages that are kept for the next request.
  std::uint64_t leaving = 0;  ///< Part of in_use: returned, and freed by the next trim.
  std::uint64_t used() const { return in_use + cached; }
};

/// Page-locks host memory for devices: their copies then run at the link's rate and in parallel.
/// [hand] Calls may take 0.1 ms for each 2 MiB.
class PageLocker {
 public:
  virtual ~PageLocker() = default;
  /// The pages are present, and stay so until unlock(at).
  virtual Status lock(std::byte* at, std::uint64_t bytes) = 0;
  /// No copy may be in progress. May wait for any work of the devices.
  virtual void unlock(std::byte* at) = 0;
};

class AddressableTier {
 public:
  virtual ~AddressableTier() = default;
  virtual Place place() const = 0;
  /// [any] Returns whether its memory is lost for good, with all content; loss() returns the
  /// reason. Calls for accounting still work.
  virtual bool lost() const { return false; }
  virtual Status loss() const { return {}; }
  /// Returns false for memory that the host cannot touch: bytes pass through `copy_in` and
  /// `copy_out`.
  virtual bool host_addressable() const = 0;

  /// [mover] Acquires a frame within the budget, preferring cached frames of its class. Returns an
  /// invalid id if there is no room. A frame is *fresh* until populate() has run: it has an address
  /// and a charge, and no pages.
  virtual FrameId acquire_frame(const FrameRequest& request) = 0;
  /// [mover] Releases a frame to the tier. Its pages stay cached for the next request. The tier may
  /// free them instead, at once or with the next trim, while used() exceeds the budget. It does so
  /// if the frame was marked as referenced by other code.
  virtual void return_frame(FrameId frame) = 0;
  virtual FrameBooks books() const = 0;  // [mover]
  // [mover] May be below used(); cached frames are freed first.
  virtual void set_budget(std::uint64_t bytes) = 0;
  /// [mover] Replaces the charge for the records of extents. Returns false, and changes nothing, if
  /// there is no room for more.
  virtual bool charge_records(std::uint64_t /*bytes*/) { return true; }
  /// [mover] Returns whether populate() must run on a hand before the frame receives bytes: it has
  /// no pages, or bytes of another domain.
  virtual bool needs_populate(FrameId frame) const = 0;
  /// [hand] Populates the frame with pages. Clears it if it holds bytes of another domain, or if
  /// `clear` is set; fresh huge pages are zero already and are not cleared twice. `at`: its future
  /// address in a window, or null. A tier of frames without memory of their own populates this
  /// address, and unmap() must follow. Errors: no_capacity: the kernel has no pages.
  virtual Status populate(FrameId frame, bool clear, std::byte* at) = 0;
  /// The three steps of a trim return cached frames to the kernel until `bytes` are free or none is
  /// left, and return the bytes freed. All frames that are leaving are freed. A tier may limit the
  /// number of frames of one trim. The steps run between the mover's steps, on the mover's order;
  /// finish_trim updates the accounting.
  // [mover] Takes victims off the cache; returns their bytes.
  virtual std::uint64_t begin_trim(std::uint64_t bytes) = 0;
  virtual void run_trim() = 0;     // [hand]
  virtual void finish_trim() = 0;  // [mover]

  /// [any] Reserves an address range for a buffer of several extents. `extent_bytes` divides it.
  /// `mapped`: touches of absent extents wait. Errors: unsupported: the tier cannot make touches
  /// wait, or has no windows for extents of this size.
  virtual Result<std::byte*> reserve_window(std::uint64_t bytes, std::uint64_t extent_bytes,
                                            bool mapped) = 0;
  /// [any] Releases a window, in which no frame may be mapped. Returns at once.
  virtual void release_window(std::byte* window, std::uint64_t bytes) = 0;
  /// [mover] Returns the pool of frames that can appear in a window of this extent size.
  virtual Pool window_pool(std::uint64_t extent_bytes) const = 0;

  /// [any] Returns where bytes must be stored before map(): the frame's own address, or `at` if
  /// mapping happens in place. `at` is the extent's address in its window; nullptr for a buffer
  /// without one.
  virtual std::byte* landing(FrameId frame, std::byte* at) const = 0;
  /// [hand] Makes the frame appear at `at`, with its bytes, atomically. Does nothing without a
  /// window.
  virtual Status map(FrameId frame, std::byte* at, Mechanism& used) = 0;
  /// [hand] Takes the frame out of its window. If its pages cannot leave (shared by a fork,
  /// page-locked), they are dropped and the frame is fresh again. Only for extents with their bytes
  /// elsewhere. After an error the frame is still in its window, and belongs to it until a later
  /// call succeeds.
  virtual Status unmap(FrameId frame, std::byte* at) = 0;
  /// [hand] Takes the frame out of its mapped window with its bytes; later touches wait. After an
  /// error the whole frame is still in the window.
  virtual Status withdraw(FrameId frame, std::byte* at);
  /// [mover] Returns whether withdraw() of this frame takes long and may wait in a fault: it must
  /// run on a hand, and not on the thread that serves faults.
  virtual bool withdraws_slowly(FrameId) const { return false; }
  /// [hand] Makes the frame appear in its mapped window. Its bytes may be the only copy, and the
  /// program may write each page as soon as it appears. Nothing may be dropped or undone, so the
  /// call repeats until the kernel has done it.
  virtual Status restore(FrameId frame, std::byte* at);
  /// [mover] Returns whether restore() of this frame is one short call, even for a large frame.
  virtual bool restores_at_once(FrameId) const { return false; }
  /// [any] Returns whether the program has mapped memory of its own over a part of the range, which
  /// is in a mapped window.
  virtual bool lent(const std::byte*, std::uint64_t) const { return false; }
  /// [any] Returns the mechanism of restore(), for receipts.
  virtual Mechanism restores_by() const { return Mechanism::uffd_move; }

  // Extents in parts: some pages of such an extent are in its mapped window. Its frame is *of
  // parts*: it is charged by the page, gets its pages in the window itself, and becomes a whole
  // frame once it has all of them.
  /// [any] Returns whether extents of this size can be in their windows in parts.
  virtual bool takes_parts(std::uint64_t) const { return false; }
  /// [mover] Acquires a frame of parts with a charge of `pages`, and none of them present. Returns
  /// an invalid id if there is no room.
  virtual FrameId acquire_parts(const FrameRequest&, unsigned) { return {}; }
  /// [mover] Charges a frame of parts for this many more pages. Returns false if there is no room,
  /// if the extent has no more pages, or if the frame is whole. The frame must not be of the locked
  /// pool.
  virtual bool charge_parts(FrameId, unsigned) { return false; }
  /// [mover] Cancels a charge for pages that did not arrive.
  virtual void discharge_parts(FrameId, unsigned) {}
  /// [hand] Inserts copies of the pages in `pages`, charged and absent so far, into the window at
  /// `at`. `data` is the address of the extent's first page; only the selected pages are read. The
  /// call repeats until the kernel has done it. Afterwards withdraw(), restore() and unmap() apply
  /// to the pages that the frame has. `watched`: the tier detects writes to them, if it can.
  virtual Status insert(FrameId frame, std::byte* at, const std::byte* data, PageMask pages,
                        bool watched);
  /// [hand] Drops some of the frame's pages and their bytes. Its charge stays. After an error they
  /// count as present, with zeros or their bytes.
  virtual Status empty(FrameId frame, std::byte* at, PageMask pages);
  struct Unchanged {
    FrameId frame{};
    std::byte* at = nullptr;
    bool dropped = false;  ///< The result.
  };
  /// [mover] Returns whether all pages of the frame arrived watched, so that drop_unchanged() may
  /// take them.
  virtual bool may_be_unchanged(FrameId) const { return false; }
  /// [mover] Each of these frames is in its mapped window at `at`. Drops all pages of each frame
  /// that is unchanged since insert(). The others stay as they are, and are no longer watched. This
  /// is one short call for all of them, and it waits for no fault.
  virtual void drop_unchanged(std::span<Unchanged>) {}

  // Page-locked frames. A frame that devices read and write is at its own address and outside its
  // window, which is not a mapped one. The reason is that page-locked memory does not move.
  /// [hand] Page-locks the frame's pages for devices, if the frame is at its own address and
  /// locking is possible. They stay locked until the frame appears in a window or its pages return
  /// to the kernel. Returns false if they are not locked.
  virtual bool lock_pages(FrameId) { return false; }
  /// [mover] Returns whether the frame is, or recently was, page-locked. Mapping it may take long,
  /// because unlocking waits for the work of devices.
  virtual bool has_locked_pages(FrameId) const { return false; }
  /// [hand] Takes the frame out of its window with its bytes. After an error the whole frame is
  /// still there.
  virtual Status take_home(FrameId frame, std::byte* at);
  /// [hand] Makes the frame appear at `at`, with its bytes, which may be the only copy: after an
  /// error the frame is at its own address. Opaque memory keeps its own address all the time, and
  /// appears in the window as well until the frame belongs to another extent; nothing else appears
  /// there.
  virtual Status show(FrameId frame, std::byte* at);

  // Opaque memory only.
  /// [any] Returns whether the frame is mapped at `at`. The frame must not be released
  /// concurrently.
  virtual bool shows(FrameId, std::byte*) const { return false; }

  // [hand] Opaque memory only. Returns false if the copy is in progress: `end.ended` will be
  // called, possibly before this returns. Returns true if it has ended, with its result in
  // `end.status`.
  virtual bool copy_in(FrameId to, const std::byte* from, std::uint64_t bytes, Ending& end);
  virtual bool copy_out(std::byte* to, FrameId from, std::uint64_t bytes, Ending& end);
  /// [mover] Returns whether bytes can come here directly from that other opaque memory.
  virtual bool reaches(const AddressableTier&) const { return false; }
  /// Copies from a frame of such a memory, as copy_in() does, and in the order of those copies.
  virtual bool copy_from(FrameId to, AddressableTier& other, FrameId from, std::uint64_t bytes,
                         Ending& end);
};

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

struct SlotBooks {
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

  /// [mover] Allocates room for `bytes` (a power of two) on a device without its bit set in
  /// `avoid`. Errors: busy: grow() must first make room on a hand. no_capacity: the budget or the
  /// devices are full.
  virtual Result<SlotId> allocate(std::uint64_t bytes, std::uint64_t avoid) = 0;
  virtual void free(SlotId slot) = 0;  // [mover]
  /// [mover] Returns the bytes that the slot is charged for.
  virtual std::uint64_t bytes_of(SlotId) const { return 0; }
  virtual SlotBooks books() const = 0;  // [mover]
  virtual void set_budget(std::uint64_t bytes) = 0;
  // [hand] Preallocates room for slots of `bytes` on some device.
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
};

}  // namespace tiermem
