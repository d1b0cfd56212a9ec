// The contract of an address space: a processor that can dereference addresses (the host, or one
// GPU), with its windows, its page faults, and the mechanism by which frames appear in windows and
// leave them. The frames are those of its memories (memory.hpp). An address in a window stays the
// same, whichever memory of the space has the bytes.
//
// Threads: calls marked [mover] come only from the mover's thread, and return at once. Calls marked
// [worker] come from a worker and may block. Calls marked [any] come from callers' threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tier/frame.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

class Memory;

class AddressSpace {
 public:
  AddressSpace() = default;
  virtual ~AddressSpace() = default;
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  /// [any] Returns the memories with frames that appear here, by number. They are constant, at
  /// least one and at most kMostMemories.
  virtual std::span<Memory* const> memories() const = 0;
  /// [any] Returns false if the host cannot touch the memories: they are *opaque*, and bytes pass
  /// through Memory::copy_in() and copy_out().
  virtual bool host_addressable() const = 0;

  /// [any] Reserves an address range for a buffer of several extents. `extent_bytes` divides it.
  /// `mapped`: touches of absent extents wait. Errors: unsupported: the space cannot make touches
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
  virtual std::byte* bytes_at(FrameId frame, std::byte* at) const = 0;
  /// [worker] Makes the frame appear at `at`, with its bytes, atomically. Does nothing without a
  /// window.
  virtual Status map(FrameId frame, std::byte* at, Mechanism& used) = 0;
  /// [worker] Takes the frame out of its window. If its pages cannot leave (shared by a fork,
  /// page-locked), they are dropped and the frame is fresh again. Only for extents with their bytes
  /// elsewhere. After an error the frame is still in its window, and belongs to it until a later
  /// call succeeds.
  virtual Status unmap(FrameId frame, std::byte* at) = 0;
  /// [worker] Takes the frame out of its mapped window with its bytes; later touches wait. After an
  /// error the whole frame is still in the window.
  virtual Status withdraw(FrameId frame, std::byte* at);
  /// [mover] Returns whether withdraw() of this frame takes long and may wait in a fault: it must
  /// run on a worker, and not on the thread that serves faults.
  virtual bool withdraws_slowly(FrameId) const { return false; }
  /// [worker] Makes the frame appear in its mapped window. Its bytes may be the only copy, and the
  /// program may write each page as soon as it appears. Nothing may be dropped or undone, so the
  /// call repeats until the kernel has done it.
  virtual Status restore(FrameId frame, std::byte* at);
  /// [mover] Returns whether restore() of this frame to that address is one short call, even for a
  /// large frame.
  virtual bool restores_at_once(FrameId, const std::byte*) const { return false; }
  /// [any] Returns whether the program has mapped memory of its own over a part of the range, which
  /// is in a mapped window.
  virtual bool lent(const std::byte*, std::uint64_t) const { return false; }
  /// [any] Returns the mechanism of restore() to that address, for receipts.
  virtual Mechanism restores_by(const std::byte*) const { return Mechanism::uffd_move; }

  // Extents in parts: some pages of such an extent are in its mapped window. Its frame is *of
  // parts*: it is charged by the page (Memory::charge_parts()), gets its pages in the window
  // itself, and becomes a whole frame once it has all of them.
  /// [any] Returns whether extents of this size can be in their windows in parts. `read_only`: the
  /// windows are those of mapped files that the program may not write.
  virtual bool takes_parts(std::uint64_t, bool /*read_only*/) const { return false; }
  /// [worker] Inserts copies of the pages in `pages`, charged and absent so far, into the window at
  /// `at`. `data` is the address of the extent's first page; only the selected pages are read. The
  /// call repeats until the kernel has done it. Afterwards withdraw(), restore() and unmap() apply
  /// to the pages that the frame has. `watched`: the space detects writes to them, if it can.
  virtual Status insert(FrameId frame, std::byte* at, const std::byte* data, PageMask pages,
                        bool watched);
  /// [worker] Drops some of the frame's pages and their bytes. Its charge stays. After an error
  /// they count as present, with zeros or their bytes.
  virtual Status empty(FrameId frame, std::byte* at, PageMask pages);
  /// [worker] Some of the frame's pages, which are in its mapped window, leave it with their bytes,
  /// for the frame `to`, which was split off and has none (Memory::split_parts()). Afterwards `to`
  /// is like a frame that withdraw() took out of the window. After an error all pages are still in
  /// the window.
  virtual Status withdraw_to(FrameId to, FrameId frame, std::byte* at, PageMask pages);
  /// [worker] The pages of `from` go back to the window of `frame`, which has them again. As with
  /// restore(), the call repeats until the kernel has done it.
  virtual Status restore_from(FrameId from, FrameId frame, std::byte* at);
  struct Unchanged {
    FrameId frame{};
    std::byte* at = nullptr;
    PageMask pages = 0;    ///< For a frame of parts. 0: all that the frame has.
    bool dropped = false;  ///< The result.
  };
  /// [mover] Returns whether all pages of the frame arrived watched, or the program may not write
  /// its window: drop_unchanged() may take them.
  virtual bool may_be_unchanged(FrameId) const { return false; }
  /// [mover] The bytes of the frame, which no worker has, are no longer known elsewhere: it is not
  /// watched any more.
  virtual void end_watch(FrameId) {}
  /// [mover] Each of these frames is in its mapped window at `at`. Drops the pages of each frame
  /// that are unchanged since insert(). The others stay as they are, and their frame is no longer
  /// watched. This is one short call for all of them, and it waits for no fault. The charges stay.
  virtual void drop_unchanged(std::span<Unchanged>) {}

  /// [worker] Takes the frame out of its window with its bytes. After an error the whole frame is
  /// still there.
  virtual Status take_home(FrameId frame, std::byte* at);
  /// [worker] Makes the frame appear at `at`, with its bytes, which may be the only copy: after an
  /// error the frame is at its own address. Opaque memory keeps its own address all the time, and
  /// appears in the window as well until the frame belongs to another extent; nothing else appears
  /// there.
  virtual Status show(FrameId frame, std::byte* at);
  /// [worker] Moves the bytes of one frame to another, of another memory of this space and of the
  /// same size. The frame `from` is in its window at `at`, which may be mapped, or at home with
  /// `at` null. It is whole and has no views; touches of a mapped window wait until the call has
  /// ended. After success `to` has the bytes and is where `from` was, and `from` is at home without
  /// bytes. Sets `home` to whether `to` is at home then: `at` is null, or `to` could not appear in
  /// a window that is not mapped, where show() brings it. After an error everything is as before,
  /// and `to` is at home without bytes. Errors: no_capacity: the other memory has no pages; busy:
  /// the frame cannot leave now.
  virtual Status relocate(FrameId from, FrameId to, std::byte* at, bool& home);
  /// [any] Opaque memory only. Returns whether the frame is mapped at `at`. The frame must not be
  /// released concurrently.
  virtual bool shows(FrameId, std::byte*) const { return false; }
};

}  // namespace tiermem
