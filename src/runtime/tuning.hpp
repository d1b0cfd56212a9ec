// Results of `tiermem tune` for a device, kept in the user's cache directory: one small text file
// for each device. A context takes its defaults for `depth` and `piece` from there.
//
// Such a file is not trusted. One that is damaged, of another device or kernel, too old, or from
// the future is ignored, with the reason; that is never an error.
//
// Threads: plain values; finding and keeping may block on files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "os/device_id.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

struct Tuning {
  std::string device;       ///< DeviceId::key.
  std::string kernel;       ///< The kernel release it was measured under.
  std::int64_t when = 0;    ///< Seconds since 1970.
  unsigned depth = 0;       ///< Requests under way at once, for option `depth`.
  std::uint64_t piece = 0;  ///< Bytes of the largest request, for option `piece`.
  /// Bytes between two wanted ranges up to which one request for both is cheaper than two. It is a
  /// request's fixed cost in time, as bytes at the device's best rate. 0: not measured.
  std::uint64_t gap = 0;
  std::uint64_t read_rate = 0;   ///< Bytes per second with these values, extents in random order.
  std::uint64_t write_rate = 0;  ///< The same for writes; 0 for a raw device, which is only read.
  friend bool operator==(const Tuning&, const Tuning&) = default;
};

/// One fact per line; the last line marks the file as complete.
std::string tuning_text(const Tuning& tuning);
/// Errors: invalid_argument with the first mistake.
Result<Tuning> parse_tuning(std::string_view text);

/// Older tunings are measured again, because devices fill up and wear.
inline constexpr std::int64_t kTuningDays = 90;

/// The tuning of one device, or the reason why there is none.
struct FoundTuning {
  std::optional<Tuning> tuning;
  std::string reason;
  friend bool operator==(const FoundTuning&, const FoundTuning&) = default;
};

/// `cache`: tiermem's directory in the user's cache; empty: there is none. `now` in seconds since
/// 1970.
FoundTuning find_tuning(const std::string& cache, const DeviceId& device, std::string_view kernel,
                        std::int64_t now);
/// The file with a device's tuning.
std::string tuning_file(const std::string& cache, const DeviceId& device);
/// Replaces an older tuning, completely or not at all. Errors: io_error with errno.
Status keep_tuning(const std::string& cache, const Tuning& tuning);

}  // namespace tiermem
