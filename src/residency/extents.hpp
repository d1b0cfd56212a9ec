// What is known of every extent: the words that callers pin, and the mover's directory of copies.
// Arrays indexed by ExtentRef over reserved address space: they never move and never change type,
// so a caller with a stale handle pins a word that exists, finds the generation changed, and undoes
// the pin.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

#include "base/results.hpp"
#include "policy/part_size.hpp"
#include "policy/watching.hpp"
#include "residency/extent_state.hpp"
#include "tier/tier.hpp"

namespace tiermem {

using ExtentRef = std::uint32_t;
inline constexpr ExtentRef kNoExtent = ~ExtentRef{0};
/// The host's address space and up to two device spaces.
inline constexpr unsigned kMaxSpaces = 3;
inline constexpr unsigned kHost = 0;

inline constexpr std::size_t kPage = 4096;

/// A cache line in a page, for the n-th array another one than for its neighbours.
inline std::size_t next_page_offset() noexcept {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kStride =
      11;  // Odd: all lines come up; and far enough for elements of some lines.
  static std::atomic<std::size_t> arrays{0};
  return arrays.fetch_add(1, std::memory_order_relaxed) * kStride % (kPage / kLine) * kLine;
}

/// Zeroed memory for `n` objects, reserved now and backed when touched. T is
/// all-zero-initializable.
///
/// Arrays begin at different places of a page. The hit path goes through several of them with the
/// same small index; were their elements at the same offset in their pages, a processor that
/// compares only those bits would hold each load back for the locked add before it (measured: 28 ns
/// instead of 20 for a view).
template <typename T>
class ReservedArray {
 public:
  explicit ReservedArray(std::size_t n) : n_(n), bytes_(n * sizeof(T) + kPage) {
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::bad_alloc();
    }
    memory_ = memory;
    data_ = reinterpret_cast<T*>(static_cast<std::byte*>(memory) + next_page_offset());
  }
  ~ReservedArray() { best_effort(::munmap(memory_, bytes_), "it stays reserved"); }
  ReservedArray(const ReservedArray&) = delete;
  ReservedArray& operator=(const ReservedArray&) = delete;

  /// Gives the pages back: all is zero again, and may be read and written.
  void release_memory() noexcept {
    best_effort(::madvise(memory_, bytes_, MADV_DONTNEED),
                "fails for locked memory, which then stays until the array ends");
  }

  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  std::size_t size() const noexcept { return n_; }

 private:
  void* memory_;
  T* data_;
  std::size_t n_, bytes_;
};

struct Checksums;  // mover/checksum.hpp
struct SlotPages;  // mover/slot_pages.hpp

/// The directory entry of one extent: the mover's own, no other thread reads it.
/// Newest bytes: in every space whose phase is shared or exclusive; in the slot iff slot.valid()
/// and no such space is dirty; nowhere iff the host's phase is `zero` or `lost`.
struct Extent {
  SlotId slot{0};  ///< Meaningful iff `has_slot`. All-zero is the state of an unused extent.
  Checksums* sums = nullptr;        ///< Of the bytes in the slot; owned. Null: none recorded.
  SlotPages* slot_pages = nullptr;  ///< Which pages the slot has; owned. Null: all of them.
  std::uint32_t buffer = 0;         ///< Index of the record.
  std::uint32_t transfer = 0;       ///< The one transfer under way, as its number + 1; 0: none.
  std::uint32_t waiters = 0;        ///< Head of the list of needs that wait for this extent, + 1.
  std::uint32_t holds = 0;          ///< Needs of granted requests: not a victim while above 0.
  std::uint32_t slot_stamp = 0;     ///< Forks when the slot was allocated: SharedSlots.
  /// Mapped, in parts: these pages are in the window, and may differ from the slot's, which has the
  /// others. The phase is `none` then, `incoming` while others come, or `outgoing`; there is a
  /// frame. 0: all or none is there, as the phase says.
  PageMask parts = 0;
  /// Of a mapped extent in a slot: pages that are zeros, whatever the slot has of them. None of
  /// them is in memory.
  PageMask zeros = 0;
  PartSize::Memory part_size;
  Watching::Memory unwritten = 0;
  std::uint8_t lost_with = kHost;  ///< Host's phase `lost`: the device space that had the bytes.
  bool has_slot : 1 = false;
  bool slot_stale : 1 =
      false;  ///< The slot's bytes are not whole: a write into it has begun or failed.
  bool prefetched : 1 = false;  ///< Promoted by a prefetch and not acquired since.
  bool stuck : 1 = false;     ///< Mapped: could not leave its window, or be made whole for another
                              ///< slot, when last tried.
  bool charged : 1 = false;   ///< In parts: a request has room for more of them.
  bool writes : 1 = false;    ///< In parts: who last brought some of them was about to write.
  bool bad_once : 1 = false;  ///< A checksum did not match; read again before giving up.
};

/// All extents of a context.
class Extents {
 public:
  explicit Extents(std::uint32_t capacity, unsigned spaces)
      : spaces_(spaces), directory_(capacity), addresses_(capacity) {
    for (unsigned space = 0; space < spaces; ++space) {
      words_[space] = std::make_unique<ReservedArray<ExtentWord>>(capacity);
      frames_[space] = std::make_unique<ReservedArray<FrameId>>(capacity);
      first_word_[space] = &(*words_[space])[0];
    }
  }
  unsigned spaces() const noexcept { return spaces_; }
  /// The context has ended: see ReservedArray.
  void release_memory() noexcept {
    for (unsigned space = 0; space < spaces_; ++space) {
      words_[space]->release_memory();
      frames_[space]->release_memory();
    }
    directory_.release_memory();
    addresses_.release_memory();
  }
  std::uint32_t capacity() const noexcept { return static_cast<std::uint32_t>(directory_.size()); }

  ExtentWord& word(unsigned space, ExtentRef ref) noexcept { return first_word_[space][ref]; }
  const ExtentWord& word(unsigned space, ExtentRef ref) const noexcept {
    return first_word_[space][ref];
  }
  /// Where the bytes are on the host while its phase is readable. Written by the mover before it
  /// publishes the phase, so a relaxed load after a successful pin sees it.
  std::atomic<std::byte*>& address(ExtentRef ref) noexcept { return addresses_[ref]; }

  // The mover only.
  Extent& at(ExtentRef ref) noexcept { return directory_[ref]; }
  const Extent& at(ExtentRef ref) const noexcept { return directory_[ref]; }
  FrameId& frame(unsigned space, ExtentRef ref) noexcept { return (*frames_[space])[ref]; }

 private:
  std::array<ExtentWord*, kMaxSpaces> first_word_{};  // Of words_, one load away for the hit path.
  unsigned spaces_;
  std::array<std::unique_ptr<ReservedArray<ExtentWord>>, kMaxSpaces> words_;
  std::array<std::unique_ptr<ReservedArray<FrameId>>, kMaxSpaces> frames_;
  ReservedArray<Extent> directory_;
  ReservedArray<std::atomic<std::byte*>> addresses_;
};

}  // namespace tiermem
