// The frames of one pool and one size: their homes (permanent addresses, grown one segment at a
// time), and which frames are free, in use, cached or being returned to the kernel. It knows no
// budget and no window.
//
// Threads: the mover's thread calls everything. Workers call frame() and home() for frames that
// they hold, and write the fields marked [worker] of these. Growth makes a few system calls, once
// for each 32 MiB or 8 frames. Opening homes makes one, in steps of 2 to 32 MiB or one frame. No
// other function makes a system call, and none touches a home.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/arena.hpp"
#include "os/host_memory.hpp"
#include "os/node_pages.hpp"
#include "os/userfault.hpp"
#include "tier/frame.hpp"

namespace tiermem {

struct SlabChunk;

/// The owner of the bytes in a frame: a domain's number, or one of these.
inline constexpr std::uint64_t kTagZero = ~std::uint64_t{0};  ///< Zeros, which belong to no domain.
inline constexpr std::uint64_t kTagMixed = ~std::uint64_t{0} - 1;  ///< Bytes of several domains.

inline constexpr std::uint32_t kNoFrame = ~std::uint32_t{0};

struct Frame {
  enum class State : std::uint8_t { free, in_use, cached, leaving };

  std::uint64_t tag = kTagZero;        // [worker] Valid only if the frame has pages.
  std::byte* at = nullptr;             // [worker] Its address in a window; nullptr: at home.
  Mechanism by = Mechanism::in_place;  // [worker] The mechanism that moved it there.
  SlabChunk* slab = nullptr;           // Set if it is cut into smaller frames; owned by SlabPool.
  std::uint64_t stamp = 0;             // Time of caching; the lowest stamp is the coldest frame.
  std::uint64_t owner = 0;             // The domain that acquired it.
  // Links of two lists of cached frames: all of them by age, and those with the same tag.
  std::uint32_t older = kNoFrame, younger = kNoFrame;
  std::uint32_t kin_older = kNoFrame, kin_younger = kNoFrame;
  State state = State::free;
  enum class PageLock : std::uint8_t { none, taken, locked, refused };
  /// [worker] Page-locked for devices. Atomic, because the small frames of a chunk may be with
  /// several workers.
  std::atomic<PageLock> page_lock{PageLock::none};
  std::uint64_t forks = 0;  // [worker] Number of forks before it entered its window.
  bool pages = false;       // [worker] False: the frame is fresh.
  bool huge = false;        // [worker] Its pages are huge, as far as known.
  bool mapped = false;      // [worker] Its window, if it is in one, is a mapped window.
  bool split = false;       // [worker] Its pages were huge before: populate() repairs them.
  std::uint8_t cuts =
      0;  // [worker] Approximate number of mappings that its home costs: FrameMapper.
  bool referenced = false;  // Other code may reference its pages: not for reuse.
  // A frame in parts, until it has all pages of its extent. It is charged for `charged` pages and
  // has the pages in `has`, either all in its window or all at home.
  bool in_parts = false;      // [worker] The mover sets it when it acquires the frame.
  std::uint32_t charged = 0;  // Number of pages.
  PageMask has = 0;           // [worker]
  bool watched = false;       // [worker] All of its pages arrived watched, and none has left since.
};

/// The properties of a pool's homes.
struct HomeOptions {
  bool memory = true;      ///< False: frames are charges only, without an address.
  bool on_file = false;    ///< Their pages are mapped over them: DaxPages. The rest is not used.
  bool huge = false;       ///< Huge pages are requested, else disabled.
  bool inherited = false;  ///< A forked child inherits them.
  /// Views point into them. They are in core dumps, and no child of fork reuses their addresses.
  bool viewed = false;
  const Userfault* registered_with = nullptr;
  const host::NodePages* node = nullptr;  ///< Their pages prefer this node.
};

class FramePool : public InArena {
 public:
  /// `bytes`: size of a frame, a power of two. The targets of `homes` outlive the pool.
  FramePool(std::uint64_t bytes, const HomeOptions& homes);

  std::uint64_t bytes() const { return bytes_; }
  const HomeOptions& homes() const { return homes_; }

  /// Returns a cached frame with bytes of the domain, else the coldest one, else kNoFrame.
  std::uint32_t take_cached(std::uint64_t domain);
  /// Returns a frame without pages, or kNoFrame if no address space is available.
  std::uint32_t take_fresh(std::uint64_t domain);
  /// Caches a frame that was in use. `stamp` grows from call to call.
  void cache(std::uint32_t index, std::uint64_t stamp);
  /// Frees a frame without pages that was in use or leaving.
  void give_back(std::uint32_t index);
  /// The first returns the coldest cached frame, or kNoFrame; the second also takes it off the
  /// cache.
  std::uint32_t coldest() const { return age_.oldest; }
  std::uint32_t take_coldest();

  /// [child of fork, its only thread] Homes are not inherited: maps them again, empty and possibly
  /// at other addresses. Calls close_homes().
  Status follow_fork();
  /// [child of fork, its only thread] If views point into homes, closes their addresses for the
  /// rest of the process: a touch raises SIGSEGV.
  void close_homes();
  /// Calls visit(frame) for each frame that was ever acquired.
  template <typename Visit>
  void each_frame(Visit&& visit) const {
    for (std::uint32_t index = 0; index < used_once_; ++index) {
      visit(frame(index));
    }
  }

  /// [worker] Replaces the home of a frame, whatever is mapped there, by empty memory like its
  /// neighbours. Returns 0 or errno.
  int renew(std::uint32_t index) const;

  Frame& frame(std::uint32_t index) const;
  std::byte* home(std::uint32_t index) const;

  /// Derives the lists again from the states of the frames; returns false if they differ. Tests
  /// only.
  bool test_consistent() const;
  /// Returns the bytes of the frames in a state. Tests only.
  std::uint64_t test_bytes(Frame::State state) const;

 private:
  struct Segment : InArena {
    host::AddressRange range;
    Vector<Frame> frames;  // Never resized, because an atomic cannot move.
  };
  // Workers look up segments while the mover adds some, so nothing here ever moves.
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

  std::array<std::atomic<Shelf*>, 1024> shelves_{};  // Written by the mover, read by all threads.
  Vector<std::unique_ptr<Shelf>> shelf_owner_;
  std::uint32_t segments_ = 0;
  std::uint32_t opened_ = 0;        // Homes below this number are accessible.
  std::uint32_t used_once_ = 0;     // Homes below this number have been acquired before.
  Vector<std::uint32_t> free_;      // The free ones among them.
  std::byte* next_home_ = nullptr;  // The end of the newest segment.
  List age_;
  HashMap<std::uint64_t, List> kin_;  // By tag.
};

}  // namespace tiermem
