// The results of the probes in host_probe.cpp: what the kernel allows in the host's address space.
#pragma once

#include "os/userfault.hpp"
#include "tier/frame.hpp"

namespace tiermem {

/// For `topo` and receipts. An empty reason means that nothing was refused.
struct HostSpaceFacts {
  Mechanism windows = Mechanism::in_place;        ///< For extents of 2 MiB and more.
  Mechanism small_windows = Mechanism::in_place;  ///< For smaller extents. Never remap.
  /// For mapped buffers: uffd_move, copy, or remap (touches are signals). in_place: not supported.
  Mechanism mapped = Mechanism::in_place;
  bool huge_pages = false;
  bool watches = false;  ///< Partial extents in mapped windows can be watched.
  char watch_reason[128] = {};
  char move_reason[224] = {};
  char copy_reason[224] = {};
  char remap_reason[128] = {};
  char huge_reason[128] = {};
  UserfaultFacts userfault;

  /// Returns how frames of this pool appear in windows that are not mapped.
  Mechanism mechanism_of(Pool pool) const {
    switch (pool) {
      case Pool::movable:
        return windows;
      case Pool::small:
        return small_windows;
      case Pool::locked:
        break;
    }
    return Mechanism::in_place;
  }
};

}  // namespace tiermem
