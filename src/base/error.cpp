// Names of codes and numbers for messages.
#include "base/error.hpp"

#include <algorithm>
#include <array>

#include "base/shown.hpp"

namespace tiermem {
namespace {

// A defect of tiermem has no other remedy. A message that ends with another one has it already.
// Returns the length of the message.
std::size_t add_report(ErrorInfo& info, std::size_t used) noexcept {
  constexpr std::string_view kReport = "; report it";
  if (info.code != Code::internal || used + kReport.size() >= sizeof(info.text) ||
      std::string_view(info.text, used).ends_with(kReport)) {
    return used;
  }
  std::copy(kReport.begin(), kReport.end(), info.text + used);
  return used + kReport.size();
}

}  // namespace

const char* code_name(Code code) noexcept {
  static constexpr std::array kNames = {
      "ok",        "invalid_argument", "stale_handle", "no_capacity", "busy",      "timed_out",
      "cancelled", "unsupported",      "unavailable",  "io_error",    "discarded", "lost",
      "shut_down", "internal"};
  const auto index = static_cast<std::size_t>(code);
  return index < kNames.size() ? kNames[index] : "unknown";
}

// Labels and paths in a message may contain any bytes. Programs print the message as one line.
void end_text(ErrorInfo& info, std::size_t formatted) noexcept {
  constexpr std::size_t kRoom = sizeof(info.text) - 1;
  std::string_view made(info.text, std::min(formatted, kRoom));
  made = formatted > kRoom ? whole_characters(made) : made;
  std::size_t used = made.size();
  if (!is_plain(made)) {
    char copy[kRoom];
    std::copy(made.begin(), made.end(), copy);
    used = show_into(info.text, kRoom, {copy, made.size()});
  }
  info.text[add_report(info, used)] = '\0';
}

const char* kind_name(Kind kind) noexcept {
  static constexpr std::array kNames = {"any", "host",  "dram",   "numa",       "pmem",
                                        "gpu", "block", "remote", "compressed", "file"};
  const auto index = static_cast<std::size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string place_name(Place place) {
  const bool one_of_several =
      (place.kind >= Kind::numa && place.kind != Kind::file) || place.index != 0;
  return one_of_several ? fmt::format("{} {}", kind_name(place.kind), place.index)
                        : kind_name(place.kind);
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, kUnits[unit]);
}

}  // namespace tiermem
