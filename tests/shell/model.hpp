// The expected bytes of a buffer. A byte is known, or a failed call has left it open; a successful
// call makes it known again. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tiermem::shell {

class Model {
 public:
  explicit Model(std::uint64_t bytes) : bytes_(bytes), known_(bytes, 1) {}

  std::uint64_t size() const { return bytes_.size(); }
  std::uint8_t at(std::uint64_t i) const { return bytes_[i]; }
  void set(std::uint64_t offset, std::span<const std::uint8_t> from) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      bytes_[offset + i] = from[i];
      known_[offset + i] = 1;
    }
  }
  void zero(std::uint64_t offset, std::uint64_t length) {
    for (std::uint64_t i = 0; i < length; ++i) {
      bytes_[offset + i] = 0;
      known_[offset + i] = 1;
    }
  }
  void forget(std::uint64_t offset, std::uint64_t length) {
    for (std::uint64_t i = 0; i < length; ++i) {
      known_[offset + i] = 0;
    }
  }
  /// The bytes of `from` become those of this one, open ones included.
  void copy(std::uint64_t offset, const Model& from, std::uint64_t from_offset,
            std::uint64_t length) {
    for (std::uint64_t i = 0; i < length; ++i) {
      bytes_[offset + i] = from.bytes_[from_offset + i];
      known_[offset + i] = from.known_[from_offset + i];
    }
  }
  bool known(std::uint64_t i) const { return known_[i] != 0; }
  /// Returns the first offset at which `seen` differs from a known byte; -1 if there is none.
  std::int64_t differs(std::uint64_t offset, std::span<const std::uint8_t> seen) const {
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (known_[offset + i] != 0 && bytes_[offset + i] != seen[i]) {
        return static_cast<std::int64_t>(offset + i);
      }
    }
    return -1;
  }

 private:
  std::vector<std::uint8_t> bytes_, known_;
};

}  // namespace tiermem::shell
