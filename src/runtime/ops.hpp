// Operations under way: requests whose caller did not wait. A handle is an index and a generation,
// like a buffer's; the generation has the tag of the context above a count that never wraps. Any
// thread; one mutex, never held while waiting for the mover.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "mover/request.hpp"
#include "residency/context_tag.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

class Ops {
 public:
  /// `tag`: of the context.
  explicit Ops(std::uint64_t tag) : tag_(tag) {}
  ~Ops();
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  static constexpr std::size_t kMost = 65536;

  /// Takes the request over; its on_done and context are set. 0 when kMost operations are under
  /// way.
  OpHandle add(std::unique_ptr<Request> request);
  Request* request_of(OpHandle op);
  /// invalid_argument for a handle that is none; `busy` if it is not done at the deadline; else its
  /// status, and the operation is consumed. `deadline_ns` as of now_ns(); 0: only look.
  Status wait(OpHandle op, std::int64_t deadline_ns);
  /// A new descriptor, the caller's, that is readable once the operation is done.
  /// invalid_argument; no_capacity when the process has no descriptor left.
  Result<int> descriptor(OpHandle op);
  /// Marks it cancelled; false for a handle that is none.
  bool cancel(OpHandle op);
  std::size_t live() const;
  /// invalid_argument, for a handle of which the context `tag` knows no operation: whose it is, as
  /// far as its bits say.
  static Status unknown(const char* call, OpHandle op, std::uint64_t tag);
  /// Entries that were never used begin with `lives` left.
  void test_leave_lives(std::uint64_t lives) noexcept { first_life_ = kLifeMask - lives; }

  /// [who forks] Nobody is inside meanwhile.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  struct Entry {
    std::unique_ptr<Request> request;
    std::atomic<std::uint32_t> done{0};
    std::uint64_t life = 1;
    bool claimed = false;  // Somebody is consuming it.
    int event = -1;        // Once somebody asked for a descriptor; theirs are duplicates.
    Ops* table = nullptr;
  };
  // A handle: index + 1, life, tag.
  static constexpr unsigned kIndexBits = 17;
  static_assert(kMost < std::size_t{1} << kIndexBits);
  static constexpr unsigned kLifeBits = 64 - kIndexBits - ContextTag::kBits;
  static constexpr OpHandle kIndexMask = (OpHandle{1} << kIndexBits) - 1;
  static constexpr std::uint64_t kLifeMask = (std::uint64_t{1} << kLifeBits) - 1;
  static std::uint32_t index_of(OpHandle op) noexcept {
    return static_cast<std::uint32_t>(op & kIndexMask) - 1;
  }
  OpHandle handle_of(std::uint32_t index, std::uint64_t life) const noexcept {
    return (tag_ << kLifeBits | life) << kIndexBits | (index + 1);
  }
  Entry* find(OpHandle op);

  const std::uint64_t tag_;
  std::uint64_t first_life_ = 1;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::uint32_t> free_;
  std::size_t worn_ = 0;  // Entries whose lives are used up: they are not used again.
};

}  // namespace tiermem
