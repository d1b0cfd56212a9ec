// Waiters: the needs that wait, and what each waits for. A need waits in one list: for the end of
// the extent's transfer, for pins of the extent, or to be prefetched. The desk lets them look
// again. The stepping thread only; never waits.
//
//   need.waiting  <=>  the need is in one of the lists
//   request.pending == the number of its needs that wait
//   each record of a waiter for a transfer is in the list of one extent, or free
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/arena.hpp"
#include "mover/ended.hpp"
#include "mover/request.hpp"
#include "mover/transfer_engine.hpp"
#include "residency/directory.hpp"

namespace tiermem {

class Waiters {
 public:
  /// A need that waited: its request, and its number there.
  using Woken = std::pair<Request*, std::uint32_t>;

  Waiters(const Directory& directory, TransferEngine& engine)
      : directory_(directory), engine_(engine) {}

  // ---- A need begins to wait, and counts as pending from now on.

  void wait_for_transfer(Request& request, std::uint32_t index);
  void wait_for_pins(Request& request, std::uint32_t index);
  void wait_for_prefetch(Request& request, std::uint32_t index);

  // ---- Needs that may look again. Each counts as waiting until stop(): an earlier one may end its
  // request.

  /// Takes the waiters that the end wakes off the list of the extent, oldest first.
  Vector<Woken> take(const Ended& ended);
  /// Takes all that wait for pins.
  Vector<Woken> take_for_pins();
  /// Returns false if the need does not wait any more.
  static bool stop(Request& request, std::uint32_t index);
  /// The request ends: none of its needs waits any more.
  void forget(Request& request);

  // ---- Needs to be prefetched, oldest first

  std::size_t prefetches() const { return prefetches_.size(); }
  Woken next_prefetch() const { return prefetches_.front(); }
  void take_prefetch();

  /// Any need waits for pins.
  bool any_for_pins() const { return !for_pins_.empty(); }
  std::size_t for_pins() const { return for_pins_.size(); }
  /// Checks the invariants against the active requests. Empty, or the breach.
  std::string check(const Vector<Request*>& active) const;

 private:
  struct Waiter {
    Request* request = nullptr;
    std::uint32_t need = 0;
    std::uint32_t next = 0;   // + 1
    std::uint64_t since = 0;  // The number of ends when it began to wait.
  };

  static void begin(Request& request, std::uint32_t index);
  void take_off(ExtentRef ref, const Request& request);

  const Directory directory_;
  TransferEngine& engine_;
  Vector<Waiter> waiters_;  // For transfers. Each extent has a list of its own, newest first.
  Vector<std::uint32_t> free_;
  Vector<Woken> for_pins_;
  Deque<Woken> prefetches_;
};

}  // namespace tiermem
