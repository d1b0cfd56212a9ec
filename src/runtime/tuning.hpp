// What `tiermem tune` found out about a device, kept in the user's cache directory: one small file
// of text for each device. A context takes its defaults for `depth` and `piece` from there.
//
// Nothing in such a file is trusted: one that is damaged, of another device or kernel, too old, or
// from the future is passed over, with the reason, and never an error.
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
  std::string kernel;       ///< Release it was measured under.
  std::int64_t when = 0;    ///< Seconds since 1970.
  unsigned depth = 0;       ///< Requests under way at once, for the option `depth`.
  std::uint64_t piece = 0;  ///< Bytes of the largest request, for the option `piece`.
  /// Bytes between two wanted ranges up to which one request for both is cheaper than two: the time
  /// that a request costs besides its bytes, in bytes at the device's best rate. 0: not measured.
  std::uint64_t gap = 0;
  std::uint64_t read_rate = 0;   ///< Bytes a second with these, extents in random order.
  std::uint64_t write_rate = 0;  ///< The same; 0 for a raw device, which is only read.
  friend bool operator==(const Tuning&, const Tuning&) = default;
};

/// One fact a line, the last one says that it is whole.
std::string tuning_text(const Tuning& tuning);
/// Errors: invalid_argument with the first thing that is wrong.
Result<Tuning> parse_tuning(std::string_view text);

/// Older ones are measured again: devices fill up and wear.
inline constexpr std::int64_t kTuningDays = 90;

/// What there is of one device. Either a tuning, or why there is none.
struct FoundTuning {
  std::optional<Tuning> tuning;
  std::string reason;
  friend bool operator==(const FoundTuning&, const FoundTuning&) = default;
};

/// `cache`: the user's cache directory of tiermem; empty: there is none. `now` in seconds since
/// 1970.
FoundTuning find_tuning(const std::string& cache, const DeviceId& device, std::string_view kernel,
                        std::int64_t now);
/// Where the tuning of a device is kept.
std::string tuning_file(const std::string& cache, const DeviceId& device);
/// Whole or not at all, in the place of an older one. Errors: io_error with errno.
Status keep_tuning(const std::string& cache, const Tuning& tuning);

}  // namespace tiermem
