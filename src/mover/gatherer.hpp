// Gathers: blocks are read from slots and files without their extents. A request has one transfer
// for each extent, with any number of reads. As with any transfer, the slot does not change while
// it lives. The stepping thread only; never waits.
//
// A request that ends early (late, cancelled, its buffer freed) is answered at once. Its transfers
// go on without it until what a device has been given has ended, and pin the memory it goes to.
// Memory of the program has no pin: a request that reads to it is answered when its transfers with
// reads at a device have ended.
#pragma once

#include <cstdint>
#include <span>

#include "base/arena.hpp"
#include "mover/carrier.hpp"
#include "mover/gather.hpp"
#include "mover/parts.hpp"
#include "mover/request.hpp"
#include "mover/slot_tiers.hpp"
#include "mover/transfer.hpp"

namespace tiermem {

class Gatherer {
 public:
  Gatherer(Residency& residency, Journal& journal, Carrier& carrier, const Parts& parts,
           SlotTiers& slots, bool checksums)
      : residency_(residency),
        directory_(residency),
        journal_(journal),
        carrier_(carrier),
        parts_(parts),
        slots_(slots),
        checksums_(checksums) {}

  void start(Request& request, std::span<GatherRead> reads);
  /// Sends a read that the channel has chosen.
  void send_read(Gather& transfer, std::uint32_t number);
  void read_done(const SlotCompletion& completion);
  /// The request ends early. Reads at a device go on. Returns whether some go to memory of the
  /// program: then the request must wait for their transfers. Otherwise the records of its reads
  /// may go.
  [[nodiscard]] bool desert(const Request& request);
  /// Returns whether the extent's transfer reads for this request.
  bool reads_for(const Request& request, ExtentRef ref) const;
  void end_deserted();
  bool any_deserted() const { return !deserted_.empty(); }

 private:
  void end(Gather& transfer);

  Residency& residency_;
  const Directory directory_;
  Journal& journal_;
  Carrier& carrier_;
  const Parts& parts_;
  SlotTiers& slots_;
  const bool checksums_;
  Vector<std::uint32_t> deserted_;  // To end: no request and no read in progress.
};

}  // namespace tiermem
