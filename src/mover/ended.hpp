// The ends of transfers, as values. A transfer that ends changes the extent and appends an `Ended`;
// it wakes no request itself. The step takes the list at one place of its order and lets the
// waiters look at their extents again. So no request runs in the middle of a transfer.
//
// The stepping thread only; never waits.
//
//   ended.number == the number of ends up to and including this one
//   A waiter that began to wait when there were `n` ends is woken by those with a number > n.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "base/arena.hpp"
#include "mover/never.hpp"
#include "residency/extents.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

/// Something that waiters for an extent may go on after: a transfer of it has ended or is parked,
/// or a copy of it to a device has begun.
struct Ended {
  /// Which bytes an error is about.
  enum class Failed : std::uint8_t {
    to_come,   ///< The bytes did not come to the space.
    to_read,   ///< Likewise, but a request that discards the bytes does not need them.
    to_leave,  ///< The bytes were not written, and are where they were.
  };
  ExtentRef ref = 0;
  std::uint8_t space = 0;
  Failed failed = Failed::to_come;
  bool begun = false;  ///< Only a copy has begun: only requests for streams look again.
  std::uint64_t number = 0;
  Status error;  ///< Ok: none.
};

class EndedList {
 public:
  /// Appends. The number is given here.
  void add(Ended ended) {
    ended.number = ++count_;
    list_.push_back(std::move(ended));
  }
  /// Returns what was appended since the last call, oldest first. Valid until the next call.
  std::span<const Ended> take() {
    taken_.clear();
    taken_.swap(list_);
    return taken_;
  }
  bool empty() const { return list_.empty(); }
  /// The number of ends so far.
  std::uint64_t count() const { return count_; }
  /// Returns `now` if there are ends to take, else kNever.
  std::int64_t next(std::int64_t now) const { return list_.empty() ? kNever : now; }

 private:
  std::uint64_t count_ = 0;
  Vector<Ended> list_;
  Vector<Ended> taken_;  // The result of take().
};

}  // namespace tiermem
