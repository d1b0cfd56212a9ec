// Prefetches for a call that copies the ranges of a list one after the other, so that the devices
// have several reads. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/arena.hpp"
#include "tiermem/context.hpp"

namespace tiermem {

class Prefetcher {
 public:
  /// `most`: max bytes ahead. `list` must outlive the object; a range of 0 bytes is passed by.
  Prefetcher(Context& context, std::uint64_t most, std::span<const Access> list)
      : context_(context), most_(most), list_(list) {}

  /// The caller is about to copy this range. Without the prefetch the reads only come later, so its
  /// errors do not matter.
  void begin(std::size_t at) {
    Vector<Access> next;
    for (next_ = std::max(next_, at);
         next_ < list_.size() && (ahead_bytes_ == 0 || ahead_bytes_ < most_); ++next_) {
      if (list_[next_].length != 0) {
        next.push_back(list_[next_]);
        next.back().length = std::min(list_[next_].length, most_);
        ahead_bytes_ += list_[next_].length;
      }
    }
    if (next.size() > 1) {
      (void)context_.prefetch(next);
    }
  }
  /// The range was copied.
  void end(std::size_t at) { ahead_bytes_ -= std::min(ahead_bytes_, list_[at].length); }

 private:
  Context& context_;
  const std::uint64_t most_;
  const std::span<const Access> list_;
  std::size_t next_ = 0;           // The first range that was not prefetched.
  std::uint64_t ahead_bytes_ = 0;  // Bytes of ranges that were prefetched and not copied yet.
};

}  // namespace tiermem
