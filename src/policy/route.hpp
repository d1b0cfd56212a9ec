// Route: how the bytes of one transfer travel between two tiers, and which steps of jobs bring them
// there. Values in, values out: the mover gathers the facts, and gives the steps to a worker. Pure;
// any thread.
//
//   from \ to   host                    device                   slot
//   nothing     populate, clear         populate, clear          –
//   host        –                       lock, copy in            write from the frame
//   device      copy out                peer, or copy out and in direct, or copy out and write
//   slot        read into the frame     direct, or read and      –
//                                       copy in
#pragma once

#include <cstdint>

#include "policy/job_steps.hpp"

namespace tiermem {

struct Route {
  /// One end of a transfer.
  enum class End : std::uint8_t { nothing, host, device, slot };

  enum class Way : std::uint8_t {
    straight,  ///< One end is memory of the host, or no bytes travel.
    staging,   ///< Through the staging in the host's memory.
    peer,      ///< From one device to another.
    direct,    ///< Between a slot and a device, past the host.
  };

  struct Ends {
    End from = End::nothing;
    End to = End::nothing;
    bool peer_reaches = false;  ///< Two devices: one reads the other's memory.
    bool slot_reaches = false;  ///< A slot and a device: there is a path past the host.
    bool sums = false;          ///< Checksums are computed or compared: the host sees the bytes.
    bool some_pages = false;    ///< The transfer or the slot has not all pages of the extent.
  };
  static constexpr Way way(const Ends& ends) {
    const bool into = ends.to == End::device;
    const bool out_of = ends.from == End::device;
    if (into && out_of) {
      return ends.peer_reaches ? Way::peer : Way::staging;
    }
    if ((into && ends.from == End::slot) || (out_of && ends.to == End::slot)) {
      return ends.slot_reaches && !ends.sums && !ends.some_pages ? Way::direct : Way::staging;
    }
    return Way::straight;
  }

  /// The frame that bytes come into.
  struct Frame {
    bool lacks_pages = false;  ///< It has no pages yet, or bytes of another domain.
    bool clears = false;       ///< It is filled with zeros.
    bool shows = false;        ///< It must appear in its window on a device.
  };
  /// Returns the steps before bytes come. 0: none.
  static constexpr JobStep prepare(const Frame& frame) {
    return (frame.lacks_pages || frame.clears ? kPopulate : JobStep{0}) |
           (frame.clears ? kClear : JobStep{0}) | (frame.shows ? kShow : JobStep{0});
  }

  /// The checksums of the bytes that were read from a slot.
  enum class Sums : std::uint8_t {
    none,    ///< No checksums are compared.
    all,     ///< Each block has a checksum.
    some,    ///< Some blocks of a file were read before. The others get checksums now.
    record,  ///< The first read of a file: all blocks get checksums.
  };
  struct Arrival {
    End from = End::nothing;
    End to = End::host;
    Way way = Way::straight;
    Sums sums = Sums::none;
    bool spreads = false;     ///< The slot lacks pages: those that came move to their places.
    bool takes_home = false;  ///< From the host: the source leaves its window first.
    bool in_window = false;   ///< To the host: the frame is for a window.
    bool is_mapped = false;   ///< The frame is in its window already.
    bool touchable = false;   ///< The program touches the window without views.
  };
  /// Returns the steps after the bytes have come from a slot, or with which they come from another
  /// memory. 0: none, the bytes are in place. Bytes that were copied from another memory appear in
  /// their window later, when the copy is known to be good.
  static constexpr JobStep arrive(const Arrival& arrival) {
    const bool moves = arrival.from == End::host || arrival.from == End::device;
    const JobStep map = arrival.in_window && !arrival.is_mapped && !moves
                            ? (arrival.touchable ? kRestore : kMap)
                            : JobStep{0};
    return (arrival.from == End::slot ? from_slot(arrival) : JobStep{0}) |
           (moves ? from_memory(arrival) : JobStep{0}) | map;
  }

  /// Returns the steps that bring a device's bytes to the staging, from where they are written.
  static constexpr JobStep stage() { return kLockPages | kCopyOut; }

  /// When the checksums of written bytes are computed.
  enum class Hash : std::uint8_t {
    no,      ///< They are not.
    first,   ///< Before the write: only changed blocks are written.
    beside,  ///< While the bytes are written.
  };
  /// `rewrites`: the slot has the bytes of before, and their checksums.
  static constexpr Hash hash(bool sums, bool rewrites) {
    return !sums ? Hash::no : rewrites ? Hash::first : Hash::beside;
  }

 private:
  static constexpr JobStep from_slot(const Arrival& arrival) {
    JobStep steps = arrival.spreads ? kSpread : JobStep{0};
    steps |= arrival.sums == Sums::all || arrival.sums == Sums::some ? kVerify : JobStep{0};
    steps |= arrival.sums == Sums::some || arrival.sums == Sums::record ? kHash : JobStep{0};
    return steps | (arrival.to == End::device ? kLockPages | kCopyIn : JobStep{0});
  }
  static constexpr JobStep from_memory(const Arrival& arrival) {
    if (arrival.way == Way::peer) {
      return kCopyPeer;
    }
    // A frame that goes to a window next is not locked, because it could not move.
    JobStep steps = arrival.in_window ? JobStep{0} : kLockPages;
    steps |= arrival.from == End::device ? kCopyOut : JobStep{0};
    steps |= arrival.takes_home ? kTakeHome : JobStep{0};
    return steps | (arrival.to == End::device ? kCopyIn : JobStep{0});
  }
};

}  // namespace tiermem
