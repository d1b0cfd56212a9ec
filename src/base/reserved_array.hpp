// An array over reserved address space: it never moves, reads as zeros where it was not written,
// and may be written up to what was committed. Not in core dumps: it holds tiermem's records and no
// byte of the program's.
//
// Threads: one at a time calls commit(). Any thread reads any element, and writes the committed
// ones.
#pragma once

#include <atomic>
#include <cstddef>

namespace tiermem {

/// The address space of a ReservedArray.
class ReservedBytes {
 public:
  static constexpr std::size_t kLeastStep = std::size_t{64} << 10;
  static constexpr std::size_t kMostStep = std::size_t{32} << 20;

  /// Readable zeros, without pages and without a charge. Throws std::bad_alloc when the kernel
  /// refuses the address space.
  explicit ReservedBytes(std::size_t bytes);
  ~ReservedBytes();
  ReservedBytes(const ReservedBytes&) = delete;
  ReservedBytes& operator=(const ReservedBytes&) = delete;

  std::byte* data() const noexcept { return data_; }
  /// Makes the first `bytes` writable, and as many more as were writable before: at least
  /// kLeastStep, at most kMostStep. False, with errno, and nothing changed, when the kernel
  /// refuses; `bytes` beyond the end: ENOMEM.
  bool commit(std::size_t bytes) noexcept { return bytes <= committed_ || commit_more(bytes); }
  std::size_t committed() const noexcept { return committed_; }
  /// Gives the pages of [from, to) back where they lie in it as a whole: they read as zeros.
  void drop(std::size_t from, std::size_t to) noexcept;

 private:
  bool commit_more(std::size_t bytes) noexcept;
  bool open(std::size_t bytes) noexcept;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t committed_ = 0;
};

/// A cache line in a page, for the n-th array another one than for its neighbours.
std::size_t next_page_offset() noexcept;

/// `n` objects, of which commit() makes the first ones writable. T is all-zero-initializable.
///
/// Arrays begin at different places of a page. The hit path goes through several of them with the
/// same small index; were their elements at the same offset in their pages, a processor that
/// compares only those bits would hold each load back for the locked add before it (measured: 28 ns
/// instead of 20 for a view).
template <typename T>
class ReservedArray {
 public:
  /// Throws std::bad_alloc.
  explicit ReservedArray(std::size_t n)
      : n_(n),
        offset_(next_page_offset()),
        memory_(n * sizeof(T) + offset_),
        data_(reinterpret_cast<T*>(memory_.data() + offset_)) {}

  /// The first `n` objects may be written. False, with errno, when the kernel refuses.
  bool commit(std::size_t n) noexcept { return memory_.commit(offset_ + n * sizeof(T)); }
  /// The pages that lie wholly in [from, to) are given back, and their objects are zero.
  void drop(std::size_t from, std::size_t to) noexcept {
    memory_.drop(offset_ + from * sizeof(T), offset_ + to * sizeof(T));
  }

  /// All pages are given back, and all objects are zero.
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
