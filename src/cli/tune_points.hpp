// What was measured of a device, point by point, and what follows from it: which depth and piece
// are best, and how far apart two reads must be before one for both is dearer. Values in, values
// out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tiermem::cli {

enum class TuneEngine : std::uint8_t { io_uring, threads };
enum class TuneMemory : std::uint8_t { huge, small, registered };

/// One way to use a device, and how fast it was.
struct TunePoint {
  std::uint64_t block = 0;  ///< Bytes of each request.
  unsigned depth = 0;       ///< Requests, or threads, at once.
  TuneEngine engine = TuneEngine::io_uring;
  TuneMemory memory = TuneMemory::huge;
  bool direct = true;
  bool write = false;
  double rate = 0;     ///< Bytes a second; 0: not measured.
  std::string reason;  ///< Then: why not, where it is worth telling.

  /// Seconds from a request to its end, on average.
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

/// The point of the map with io_uring (threads, if there is nothing else), huge pages and direct
/// I/O; null where it was not measured.
const TunePoint* find_point(std::span<const TunePoint> points, TuneEngine engine, bool write,
                            std::uint64_t block, unsigned depth);
/// What a context would use: io_uring where any point of it was measured.
TuneEngine engine_of(std::span<const TunePoint> points);

/// The pair that does best at reads and writes together, each as a part of the best there is; of
/// those within 3 % the one with fewest bytes under way. Small reads must have all of their speed
/// at its depth, since extents may be small. `fallback` where nothing was measured.
TunePair best_pair(std::span<const TunePoint> points, const TunePair& fallback);

/// Whether a challenger takes the place of what is used without tuning: rates of both, measured by
/// turns. Only if one direction is faster in every round, by 3 % in the median, and the other not
/// slower in the median: chance does that once in thirty times where they are the same.
struct TuneDuel {
  std::vector<double> read[2], write[2];  ///< 0: the incumbent, 1: the challenger.
};
bool challenger_wins(const TuneDuel& duel);

/// See Tuning::gap: (time of a 4 KiB read - its bytes at the best rate) x the best rate, all at
/// `depth` requests at once. 0 where nothing was measured.
std::uint64_t coalescing_gap(std::span<const TunePoint> points, unsigned depth);

}  // namespace tiermem::cli
