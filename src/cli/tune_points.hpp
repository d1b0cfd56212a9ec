// Measurements of a device, point by point, and the choices that follow: the best depth and piece,
// and the distance between two reads from which two requests are cheaper than one. Values in,
// values out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tiermem::cli {

enum class TuneEngine : std::uint8_t { io_uring, threads };
enum class TuneMemory : std::uint8_t { huge, small, registered };

/// One way to use a device, and its speed.
struct TunePoint {
  std::uint64_t block = 0;  ///< Bytes of each request.
  unsigned depth = 0;       ///< Requests, or threads, at once.
  TuneEngine engine = TuneEngine::io_uring;
  TuneMemory memory = TuneMemory::huge;
  bool direct = true;
  bool write = false;
  double rate = 0;     ///< Bytes per second; 0: not measured.
  std::string reason;  ///< Why it was not measured, if that is worth reporting.

  /// Average seconds from a request's start to its end.
  double latency() const { return rate > 0 ? static_cast<double>(block) * depth / rate : 0; }
};

const char* engine_name(TuneEngine engine);
const char* memory_name(TuneMemory memory);

/// The map: every block at every depth.
inline constexpr std::array<std::uint64_t, 9> kTuneBlocks = {
    4096, 16384, 65536, 262144, 1 << 20, 2 << 20, 4 << 20, 16 << 20, 64 << 20};
inline constexpr std::array<unsigned, 7> kTuneDepths = {1, 2, 4, 8, 16, 32, 64};

struct TunePair {
  unsigned depth = 0;
  std::uint64_t piece = 0;
  friend bool operator==(const TunePair&, const TunePair&) = default;
};

/// The map's point with io_uring (threads if nothing else was measured), huge pages and direct I/O;
/// null if it was not measured.
const TunePoint* find_point(std::span<const TunePoint> points, TuneEngine engine, bool write,
                            std::uint64_t block, unsigned depth);
/// The engine that a context would use: io_uring if any of its points was measured.
TuneEngine engine_of(std::span<const TunePoint> points);

/// The pair that is best at reads and writes together, each relative to the best rate. Among pairs
/// within 3 %, it takes the one with the fewest bytes under way. Small reads must reach their full
/// speed at its depth, because extents may be small. `fallback` if nothing was measured.
TunePair best_pair(std::span<const TunePoint> points, const TunePair& fallback);

/// Whether a challenger replaces the pair used without tuning; the rates of both were measured
/// alternately. One direction must be faster in every round, and by 3 % in the median, and the
/// other must not be slower in the median. If both pairs are equal, chance does that once in thirty
/// times.
struct TuneDuel {
  std::vector<double> read[2], write[2];  ///< 0: the incumbent, 1: the challenger.
};
bool challenger_wins(const TuneDuel& duel);

/// See Tuning::gap: (time of a 4 KiB read - its bytes at the best rate) x the best rate, all at
/// `depth` requests at once. 0 if nothing was measured.
std::uint64_t coalescing_gap(std::span<const TunePoint> points, unsigned depth);

}  // namespace tiermem::cli
