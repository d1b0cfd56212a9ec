// The tag of a context: 12 bits that every handle, view token and operation of the context carries,
// so that another context of the process refuses them. Any thread; no lock, so a child of fork
// finds the registry whole.
#pragma once

#include <cstdint>

namespace tiermem {

/// Owns one tag for its life. No two live contexts have the same tag. Tags are given out in turn,
/// so that a tag is used again as late as possible.
class ContextTag {
 public:
  static constexpr unsigned kBits = 12;
  /// Live contexts that a process may have at most. Tag 0 is nobody's.
  static constexpr unsigned kMost = (1u << kBits) - 1;

  ContextTag() noexcept;
  ~ContextTag();
  ContextTag(const ContextTag&) = delete;
  ContextTag& operator=(const ContextTag&) = delete;

  /// False when kMost contexts were live at construction.
  bool valid() const noexcept { return value_ != 0; }
  std::uint64_t value() const noexcept { return value_; }

  /// A live context has this tag.
  static bool is_live(std::uint64_t value) noexcept;

 private:
  const std::uint32_t value_;
};

}  // namespace tiermem
