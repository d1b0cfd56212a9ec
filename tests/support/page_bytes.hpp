// Page-aligned bytes, which block devices can read and write directly. Unlike a vector with an
// aligned allocator it fills, copies and compares all bytes at once, so tests that are compiled
// without optimisation are fast. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

namespace tiermem::test {

class PageBytes {
 public:
  using value_type = std::byte;
  using iterator = std::byte*;
  using const_iterator = const std::byte*;

  PageBytes() = default;
  explicit PageBytes(std::size_t size, std::byte value = {}) { assign(size, value); }
  template <std::contiguous_iterator It>
  PageBytes(It first, It last) {
    assign(first, last);
  }
  PageBytes(const PageBytes& other) : PageBytes(other.begin(), other.end()) {}
  PageBytes(PageBytes&& other) noexcept
      : bytes_(std::move(other.bytes_)), size_(std::exchange(other.size_, 0)) {}
  PageBytes& operator=(PageBytes other) noexcept {
    bytes_ = std::move(other.bytes_);
    size_ = other.size_;
    return *this;
  }
  ~PageBytes() = default;

  void assign(std::size_t size, std::byte value) {
    *this = PageBytes(allocate(size), size);
    std::fill(begin(), end(), value);
  }
  template <std::contiguous_iterator It>
  void assign(It first, It last) {
    const auto size = static_cast<std::size_t>(last - first);
    PageBytes copied(allocate(size), size);
    std::copy_n(std::to_address(first), size, copied.begin());
    *this = std::move(copied);
  }
  /// Appends bytes with the value, or removes bytes from the end.
  void resize(std::size_t size, std::byte value = {}) {
    PageBytes resized(size, value);
    std::copy_n(begin(), std::min(size, size_), resized.begin());
    *this = std::move(resized);
  }

  std::size_t size() const { return size_; }
  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  iterator begin() { return data(); }
  iterator end() { return data() + size_; }
  const_iterator begin() const { return data(); }
  const_iterator end() const { return data() + size_; }
  std::byte& operator[](std::size_t i) { return data()[i]; }
  const std::byte& operator[](std::size_t i) const { return data()[i]; }
  /// Returns the address of `size` bytes from `first` on. Throws if they are not all in here.
  std::byte* part(std::size_t first, std::size_t size) {
    if (first > size_ || size > size_ - first) {
      throw std::out_of_range("PageBytes::part");
    }
    return data() + first;
  }
  const std::byte* part(std::size_t first, std::size_t size) const {
    return const_cast<PageBytes&>(*this).part(first, size);
  }
  friend bool operator==(const PageBytes& a, const PageBytes& b) {
    return a.size_ == b.size_ && (a.size_ == 0 || std::memcmp(a.data(), b.data(), a.size_) == 0);
  }

 private:
  static constexpr std::align_val_t kPage{4096};
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kPage); }
  };
  using Owned = std::unique_ptr<std::byte[], Free>;
  static Owned allocate(std::size_t size) {
    return Owned(static_cast<std::byte*>(::operator new(size, kPage)));
  }
  PageBytes(Owned bytes, std::size_t size) : bytes_(std::move(bytes)), size_(size) {}

  Owned bytes_;
  std::size_t size_ = 0;
};

}  // namespace tiermem::test
