// The records of Context::why(): a transfer that happened, and where bytes are and why. They have
// no behaviour, own nothing, and may be copied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiermem/types.hpp"

namespace tiermem {

/// The reason for a movement.
enum class Reason : std::uint8_t {
  none,      ///< No movement is known.
  demand,    ///< A caller waited for the bytes.
  prefetch,  ///< Promoted before a use: by prefetch(), a stream, or read-ahead.
  room,      ///< Moved to make room for bytes that a caller waited for.
  ahead,     ///< Moved to make room before any caller waited.
  asked,     ///< evict(), migrate(), advice, or a pause of a GPU's memory.
  given_up,  ///< No caller needs the bytes: dont_need, a discard, or a freed buffer.
};

/// One movement of one extent, or of parts of it.
struct Receipt {
  static constexpr std::size_t kReasons = 7;
  /// How bytes appear at their address in a window.
  enum class Mechanism : std::uint8_t { in_place, uffd_move, remap, copy };
  /// The path of bytes to or from the memory of a GPU.
  enum class Path : std::uint8_t {
    none,    ///< The transfer did not involve a GPU, or copied no byte.
    locked,  ///< The device accessed page-locked DRAM where the bytes live.
    staged,  ///< Through staging memory in DRAM: to or from a block tier, a file or another GPU.
    /// DRAM that could not be page-locked: the driver made one more copy, which is slower.
    pageable,
    peer,    ///< Directly from one GPU to another.
    direct,  ///< Between a GPU and the block tier without a copy in host memory.
  };

  Handle buffer = 0;
  std::uint64_t offset = 0;   ///< Offset of the extent in the buffer.
  std::uint64_t bytes = 0;    ///< Bytes moved; 0 if a write was found to change nothing.
  std::int64_t begun_ns = 0;  ///< CLOCK_MONOTONIC of the mover's step that decided the movement.
  std::int64_t ended_ns = 0;  ///< CLOCK_MONOTONIC of the step that saw its end.
  /// Number of requests to a device; 0 with bytes > 0: they came with a neighbour's request.
  std::uint32_t requests = 0;
  std::uint32_t retries = 0;  ///< Number of these that were repeated.
  std::uint32_t depth = 0;    ///< Number of extents in progress on the device, including this one.
  /// The tiers. Zeros come from {any, 0}, and dropped bytes go there.
  Place from{}, to{};
  Reason reason = Reason::none;
  Mechanism mechanism = Mechanism::in_place;
  Path path = Path::none;
  bool buffered = false;  ///< Through the page cache, because direct I/O was refused.
  bool failed = false;    ///< The movement failed; the extent is where it was.
};

/// Where the bytes at one offset of a buffer are.
struct Whereabouts {
  enum class State : std::uint32_t {
    zero,      ///< Never written.
    resident,  ///< In the memory that `place` names.
    in_slot,   ///< Only in the block tier or in an adopted file.
    moving,    ///< A transfer is in progress.
    lost,      ///< Lost: damaged on a device, or dropped.
  };
  State state = State::zero;
  Place place{};        ///< Place of the newest bytes; {any, 0} for zero and lost.
  bool dirty = false;   ///< No slot holds the bytes yet.
  bool pinned = false;  ///< Views pin the bytes.
  /// The last movement that led to this state. Reason::none: there was none, or it is too old to be
  /// kept (option `receipts`).
  Receipt last{};
  std::int64_t since_ns = -1;  ///< Nanoseconds since `last` ended; -1 without a movement.
};

}  // namespace tiermem
