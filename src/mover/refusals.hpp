// Refusals: when a request that waits for room must be refused, and what the errors say. Only
// questions: a refusal changes nothing here. The stepping thread only; never waits.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/arena.hpp"
#include "mover/memories.hpp"
#include "mover/mover_options.hpp"
#include "mover/needs.hpp"
#include "mover/request.hpp"
#include "mover/room.hpp"
#include "mover/transfer_engine.hpp"
#include "residency/directory.hpp"
#include "residency/residency.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

class Refusals {
 public:
  Refusals(Residency& residency, const Memories& memories, const TransferEngine& engine,
           const Needs& needs, const Room& room, decltype(MoverOptions::explain) explain)
      : residency_(residency),
        directory_(residency),
        memories_(memories),
        engine_(engine),
        needs_(needs),
        room_(room),
        explain_(explain) {}

  void begin_step(std::int64_t now) { now_ = now; }

  bool nothing_will_change(const Request& asking) const;
  bool tries_again(const MemoryLedger& memory) const;
  std::uint64_t room_for_frame(const Request& request, const MemoryLedger& memory) const;
  std::uint64_t pinned_bytes(unsigned space) const;
  std::uint64_t pinned_bytes(const MemoryLedger& memory) const;

  // ---- Errors

  /// There is no room for `needed` bytes in the space. `request` may be null.
  Status no_room(const Request* request, unsigned space, std::uint64_t needed) const;
  /// Allocation of the records of a request failed.
  Status no_records() const;
  /// The request's deadline has passed.
  Status late(const Request& request) const;
  Status no_bytes(ExtentRef ref) const;
  /// The memory is lost.
  static Status lost(const MemoryLedger& memory);

 private:
  bool any_pin() const;
  std::array<char, 160> why_no_memory(std::uint64_t bytes, std::span<char, 64> setting) const;

  Residency& residency_;
  const Directory directory_;
  const Memories& memories_;
  const TransferEngine& engine_;
  const Needs& needs_;
  const Room& room_;
  decltype(MoverOptions::explain) explain_;
  std::int64_t now_ = 0;
};

}  // namespace tiermem
