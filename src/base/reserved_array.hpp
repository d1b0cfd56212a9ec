// An array over reserved address space. It never moves, reads as zeros where it was not written,
// and may be written up to the committed size. It is excluded from core dumps: it holds records of
// tiermem and no bytes of the program.
//
// Threads: one at a time calls commit(). Any thread may read every element, and may write the
// committed ones.
#pragma once

#include <atomic>
#include <cstddef>

namespace tiermem {

/// The address space of a ReservedArray.
class ReservedBytes {
 public:
  static constexpr std::size_t kLeastStep = std::size_t{64} << 10;
  static constexpr std::size_t kMostStep = std::size_t{32} << 20;

  /// Reserves readable zeros without pages and without a charge. Throws std::bad_alloc if the
  /// kernel refuses the address space.
  explicit ReservedBytes(std::size_t bytes);
  ~ReservedBytes();
  ReservedBytes(const ReservedBytes&) = delete;
  ReservedBytes& operator=(const ReservedBytes&) = delete;

  std::byte* data() const noexcept { return data_; }
  /// Makes at least the first `bytes` bytes writable. To save later calls it tries to double the
  /// writable size, by at least kLeastStep and at most kMostStep. Returns false with errno and
  /// changes nothing if the kernel refuses, or if `bytes` is beyond the end (ENOMEM).
  bool commit(std::size_t bytes) noexcept { return bytes <= committed_ || commit_more(bytes); }
  std::size_t committed() const noexcept { return committed_; }
  /// Releases the whole pages inside [from, to): they read as zeros afterwards.
  void drop(std::size_t from, std::size_t to) noexcept;

 private:
  bool commit_more(std::size_t bytes) noexcept;
  bool open(std::size_t bytes) noexcept;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t committed_ = 0;
};

/// Returns the offset of a cache line in a page: the n-th array gets a different one than its
/// neighbours.
std::size_t next_page_offset() noexcept;

/// `n` objects, of which commit() makes the first ones writable. T is all-zero-initializable.
///
/// Arrays begin at different offsets in a page. The hit path accesses several of them with the same
/// small index. Some processors compare only the page offsets of accesses. With equal offsets they
/// would delay each load until the locked add before it ends (measured: 28 ns instead of 20 for a
/// view).
template <typename T>
class ReservedArray {
 public:
  /// Throws std::bad_alloc.
  explicit ReservedArray(std::size_t n)
      : n_(n),
        offset_(next_page_offset()),
        memory_(n * sizeof(T) + offset_),
        data_(reinterpret_cast<T*>(memory_.data() + offset_)) {}

  /// Makes the first `n` objects writable. Returns false with errno if the kernel refuses.
  bool commit(std::size_t n) noexcept { return memory_.commit(offset_ + n * sizeof(T)); }
  /// Releases the pages that lie completely in [from, to); their objects become zero.
  void drop(std::size_t from, std::size_t to) noexcept {
    memory_.drop(offset_ + from * sizeof(T), offset_ + to * sizeof(T));
  }

  /// Releases all pages; all objects become zero.
  void release_memory() noexcept { memory_.drop(0, memory_.committed()); }

  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  std::size_t size() const noexcept { return n_; }
  std::size_t committed_bytes() const noexcept { return memory_.committed(); }

 private:
  std::size_t n_, offset_;
  ReservedBytes memory_;
  T* data_;
};

}  // namespace tiermem
