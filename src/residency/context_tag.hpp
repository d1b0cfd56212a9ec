// The tag of a context: 12 bits in every handle, view token and operation of the context, so that
// another context of the process refuses them. Any thread. No lock, so a child of fork finds the
// registry consistent.
#pragma once

#include <cstdint>

namespace tiermem {

/// Owns one tag for its life. No two live contexts have the same tag. Tags are assigned in turn, so
/// that a tag is reused as late as possible.
class ContextTag {
 public:
  static constexpr unsigned kBits = 12;
  /// Max live contexts of a process. Tag 0 is never assigned.
  static constexpr unsigned kMost = (1u << kBits) - 1;

  ContextTag() noexcept;
  ~ContextTag();
  ContextTag(const ContextTag&) = delete;
  ContextTag& operator=(const ContextTag&) = delete;

  /// Returns false if kMost contexts were live at construction.
  bool valid() const noexcept { return value_ != 0; }
  std::uint64_t value() const noexcept { return value_; }

  /// Returns whether a live context has this tag.
  static bool is_live(std::uint64_t value) noexcept;

 private:
  const std::uint32_t value_;
};

}  // namespace tiermem
