// Copies of a list of ranges, out of buffers and into them. One thread creates and uses a call: the
// caller's, or that of its operation.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/arena.hpp"
#include "runtime/call_limits.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/errands.hpp"

namespace tiermem {

class CopyCall final : public Errand {
 public:
  /// The list stays the caller's, which reads the results there. `promotes`: ranges that are read
  /// come to memory, and stay there.
  CopyCall(Context& context, Context::Impl& impl, std::span<CopyItem> list, bool promotes,
           const CallLimits& limits)
      : context_(context), impl_(impl), list_(list), promotes_(promotes), limits_(limits) {}
  Status run() override;
  void refuse(Code why) noexcept override;
  std::int64_t deadline() const noexcept override { return limits_.deadline_to_begin(); }

 private:
  /// One item, as it was when the call began. The caller may change its list, and must not.
  struct Copy {
    CopyItem item;
    Status status;
  };
  Status check(std::size_t index) const;
  void read_below();
  void copy_all();
  Status at_item(std::size_t index) const;

  Context& context_;
  Context::Impl& impl_;
  const std::span<CopyItem> list_;
  const bool promotes_;
  const CallLimits limits_;
  Vector<Copy> copies_;
};

}  // namespace tiermem
