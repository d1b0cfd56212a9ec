// What a transfer did, and where bytes are and why: the records of
// Context::why(). No behaviour, no ownership; safe to copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiermem/types.hpp"

namespace tiermem {

/// Why bytes moved.
enum class Reason : std::uint8_t {
  none,      ///< They never did, as far as is known.
  demand,    ///< Somebody waited for them.
  prefetch,  ///< Fetched before they were asked for: by prefetch(), a stream, or
             ///< read-ahead.
  room,      ///< They made room for what somebody waited for.
  ahead,     ///< They made room before anybody waited.
  asked,     ///< evict(), migrate(), advice, or a pause of a GPU's memory.
  given_up,  ///< Nobody wants them: dont_need, a discard, a buffer that was
             ///< freed.
};

/// One movement of one extent, or of parts of it.
struct Receipt {
  /// `nowhere`: zeros come from there, and what is dropped goes there. `file`:
  /// an adopted one.
  enum class End : std::uint8_t { nowhere, dram, gpu, block, file };
  static constexpr std::size_t kEnds = 5;
  static constexpr std::size_t kReasons = 7;
  /// How bytes came to appear at their address, where they have one of several
  /// extents.
  enum class Mechanism : std::uint8_t { in_place, uffd_move, remap, copy };
  /// By which way bytes came to a GPU's memory or left it.
  enum class Path : std::uint8_t {
    none,      ///< No GPU was an end of it, or no byte was copied.
    locked,    ///< The device read or wrote the DRAM that they live in, which is page-locked.
    staged,    ///< Through other DRAM, the staging: from or to a block tier, a file, another GPU.
    pageable,  ///< DRAM that could not be page-locked: the driver copied once more, and slower.
    peer,      ///< From one GPU straight to another.
    direct,    ///< Between a GPU and the block tier past the host's memory.
  };

  Handle buffer = 0;
  std::uint64_t offset = 0;    ///< Of the extent, in the buffer.
  std::uint64_t bytes = 0;     ///< That moved: 0 where a write was found to change nothing.
  std::int64_t begun_ns = 0;   ///< CLOCK_MONOTONIC, as of the mover's step that decided it.
  std::int64_t ended_ns = 0;   ///< Of the step that saw its end.
  std::uint32_t requests = 0;  ///< Given to a device; 0 with bytes: they came with a neighbour's.
  std::uint32_t retries = 0;   ///< Of these, given again.
  std::uint32_t depth = 0;     ///< Extents that its device worked at with it, itself included.
  End from = End::nowhere, to = End::nowhere;
  Reason reason = Reason::none;
  Mechanism mechanism = Mechanism::in_place;
  Path path = Path::none;
  bool buffered = false;  ///< Through the page cache, since direct I/O was refused.
  bool failed = false;    ///< The extent is where it was.
};

/// Where the bytes at one offset of a buffer are.
struct Whereabouts {
  enum class State : std::uint32_t {
    zero,      ///< Never written.
    resident,  ///< In the memory that `place` names.
    in_slot,   ///< In the block tier or an adopted file only.
    moving,    ///< A transfer is under way.
    lost,      ///< Gone: damaged on a device, or dropped.
  };
  State state = State::zero;
  Place place{};        ///< Of the newest bytes; {any, 0} for zero and lost.
  bool dirty = false;   ///< In no slot yet.
  bool pinned = false;  ///< Held by views.
  /// The last movement that made it so. Reason::none: there was none, or too
  /// long ago to be kept (option `receipts`).
  Receipt last{};
  std::int64_t since_ns = -1;  ///< Nanoseconds since `last` ended; -1 without it.
};

}  // namespace tiermem
