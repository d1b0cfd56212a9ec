// The digest of a simulated run: a hash over every call that crosses a seam of the mover, in order
// and with virtual time. Two runs of one seed with equal digests behaved the same, so a refactoring
// that keeps the digest changed nothing. It never hashes addresses of the host.
#pragma once

#include <cstdint>
#include <string_view>

namespace tiermem::sim {

/// One thread.
class Digest {
 public:
  /// Appends one call: its name and its arguments.
  template <typename... Values>
  void add(std::string_view name, Values... values) {
    for (const char c : name) {
      mix(static_cast<unsigned char>(c));
    }
    (mix(static_cast<std::uint64_t>(values)), ...);
  }
  std::uint64_t value() const { return value_; }

 private:
  // One step of a multiplicative hash (Knuth); the shift brings high bits back down.
  void mix(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x9E37'79B9'7F4A'7C15u;
    value_ ^= value_ >> 29;
  }

  std::uint64_t value_ = 0;
};

}  // namespace tiermem::sim
