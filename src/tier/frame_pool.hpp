// The frames of one pool and one size: their homes (permanent addresses, grown a segment at a
// time), and which of them are free, in use, cached or on their way back to the kernel. Knows no
// budget and no window.
//
// Threads: the mover's thread calls everything; hands call frame() and home() for frames that they
// were given, and write the fields marked [hand] of those. Growing makes a few system calls, once
// for each 32 MiB or 8 frames, and one each time that homes are opened, in steps of 2 to 32 MiB or
// a frame; nothing else does, and nothing touches a home.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/arena.hpp"
#include "os/host_memory.hpp"
#include "os/userfault.hpp"
#include "tier/tier.hpp"

namespace tiermem {

struct SlabChunk;

/// Whose bytes a frame carries: a domain's number, or one of these.
inline constexpr std::uint64_t kTagZero = ~std::uint64_t{0};       ///< Zeros: no domain's yet.
inline constexpr std::uint64_t kTagMixed = ~std::uint64_t{0} - 1;  ///< Several domains'.

inline constexpr std::uint32_t kNoFrame = ~std::uint32_t{0};

struct Frame {
  enum class State : std::uint8_t { free, in_use, cached, leaving };

  std::uint64_t tag = kTagZero;        // [hand] Meaningful with pages only.
  std::byte* at = nullptr;             // [hand] Where in a window it is; nullptr: at home.
  Mechanism by = Mechanism::in_place;  // [hand] How it came there.
  SlabChunk* slab = nullptr;           // Cut in smaller frames; owned by SlabPool.
  std::uint64_t stamp = 0;             // When it was cached; the lowest is the coldest.
  std::uint64_t owner = 0;             // The domain it was acquired for.
  // Links of two lists of cached frames: all of them by age, and those of the same tag.
  std::uint32_t older = kNoFrame, younger = kNoFrame;
  std::uint32_t kin_older = kNoFrame, kin_younger = kNoFrame;
  State state = State::free;
  enum class PageLock : std::uint8_t { none, taken, locked, refused };
  /// [hand] For devices. Atomic: a chunk's small frames may be in several hands.
  std::atomic<PageLock> page_lock{PageLock::none};
  std::uint64_t forks = 0;  // [hand] How many there had been when it came into its window.
  bool pages = false;       // [hand] False: fresh.
  bool huge = false;        // [hand] Its pages are huge, as far as known.
  bool mapped = false;      // [hand] It is in a mapped window, if in one.
  bool split = false;       // [hand] They were huge once: populate() repairs.
  std::uint8_t cuts = 0;    // [hand] Mappings, about, that its home costs: FrameMapper.
  bool referenced = false;  // Pages may be referenced from outside: not for reuse.
  // Of parts: until it has all pages of its extent it is charged for `charged` of them, and has
  // those in `has`, all in its window or all at home.
  bool in_parts = false;      // [hand] Set by the mover when it is acquired.
  std::uint32_t charged = 0;  // Pages.
  PageMask has = 0;           // [hand]
  bool watched = false;       // [hand] All of its pages came watched, and none left since.
};

/// What the homes of a pool are made of.
struct HomeOptions {
  bool memory = true;      ///< False: frames are charges only, without an address.
  bool huge = false;       ///< Huge pages asked for; else refused.
  bool inherited = false;  ///< A forked child sees them.
  bool dumped = false;     ///< In core dumps: views have addresses in them.
  const Userfault* registered_with = nullptr;
};

class FramePool : public InArena {
 public:
  /// `bytes`: a frame's size, a power of two. `homes.registered_with` outlives the pool.
  FramePool(std::uint64_t bytes, const HomeOptions& homes);

  std::uint64_t bytes() const { return bytes_; }
  const HomeOptions& homes() const { return homes_; }

  /// A cached frame with the domain's own bytes, else the coldest, else kNoFrame.
  std::uint32_t take_cached(std::uint64_t domain);
  /// A frame without pages, or kNoFrame when no address space can be had.
  std::uint32_t take_fresh(std::uint64_t domain);
  /// Keeps a frame in use for the next taker. `stamp` grows from call to call.
  void cache(std::uint32_t index, std::uint64_t stamp);
  /// A frame without pages (in use or leaving) is free again.
  void give_back(std::uint32_t index);
  /// The coldest cached frame, or kNoFrame; and the same, taken off the cache.
  std::uint32_t coldest() const { return age_.oldest; }
  std::uint32_t take_coldest();

  /// [child of fork, its only thread] Homes are not inherited: they are mapped again, empty, and
  /// may have moved.
  Status follow_fork();

  /// [hand] The home of a frame, whatever is mapped there, is empty and like its neighbours again.
  /// 0 or errno.
  int renew(std::uint32_t index) const;

  Frame& frame(std::uint32_t index) const;
  std::byte* home(std::uint32_t index) const;

  /// Re-derives the lists from the frames' states; false when they disagree. Tests only.
  bool test_consistent() const;
  /// Bytes of frames in a state. Tests only.
  std::uint64_t test_bytes(Frame::State state) const;

 private:
  struct Segment : InArena {
    host::AddressRange range;
    Vector<Frame> frames;  // As many as they were made with: an atomic does not move.
  };
  // Hands look segments up while the mover adds some, so nothing here ever moves.
  struct Shelf : InArena {
    std::array<std::atomic<Segment*>, 1024> segments{};
    ~Shelf();
  };
  struct List {
    std::uint32_t oldest = kNoFrame, youngest = kNoFrame;
  };

  bool grow();
  bool open_more();
  std::uint64_t home_alignment() const { return std::max(bytes_, host::kHugePage); }
  int dress(std::byte* base, std::uint64_t bytes) const;
  Segment& segment(std::uint32_t index) const;
  void link(std::uint32_t index);
  void unlink(std::uint32_t index);

  const std::uint64_t bytes_;
  const std::uint64_t segment_bytes_;
  const std::uint32_t frames_in_segment_;
  const HomeOptions homes_;

  std::array<std::atomic<Shelf*>, 1024> shelves_{};  // Written by the mover, read by all.
  Vector<std::unique_ptr<Shelf>> shelf_owner_;
  std::uint32_t segments_ = 0;
  std::uint32_t opened_ = 0;        // Homes below this number can be touched.
  std::uint32_t used_once_ = 0;     // Homes below this number were given out before.
  Vector<std::uint32_t> free_;      // Of these, the free ones.
  std::byte* next_home_ = nullptr;  // The end of the newest segment.
  List age_;
  HashMap<std::uint64_t, List> kin_;  // By tag.
};

}  // namespace tiermem
