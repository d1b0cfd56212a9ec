// "tiermem tuning 1", then `name = value` lines in any order, then "whole".
#include "runtime/tuning.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"
#include "base/results.hpp"
#include "os/file_identity.hpp"
#include "runtime/options.hpp"

namespace tiermem {
namespace {

constexpr std::string_view kFirstLine = "tiermem tuning 1";
constexpr std::string_view kLastLine = "whole";
constexpr std::size_t kLongest = 4096;
constexpr std::int64_t kDay = 86400;

/// Whether it is printable, so that a message with it stays on one line.
bool clean(std::string_view text) {
  for (const char c : text) {
    if (c < ' ' || c > '~') {
      return false;
    }
  }
  return !text.empty() && text.size() <= 250;
}

template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

/// Whether the option of that name accepts the number.
bool accepted(const char* name, std::uint64_t value) {
  const Option& option = *find_option(name);
  return value >= option.low && value <= option.high &&
         (option.type != OptionType::power_of_two || std::has_single_bit(value));
}

/// Returns false if the value is not valid for this field.
bool set_field(Tuning& tuning, std::size_t field, std::string_view text) {
  const auto store = [&](auto& into) {
    const auto value = number<std::remove_reference_t<decltype(into)>>(text);
    into = value.value_or(0);
    return value.has_value();
  };
  switch (field) {
    case 0:
      tuning.device = text;
      return clean(text);
    case 1:
      tuning.kernel = text;
      return clean(text);
    case 2:
      return store(tuning.when) && tuning.when > 0;
    case 3:
      return store(tuning.depth) && accepted("depth", tuning.depth);
    case 4:
      return store(tuning.piece) && accepted("piece", tuning.piece);
    case 5:
      return store(tuning.gap) && tuning.gap <= std::uint64_t{1} << 30;
    case 6:
      return store(tuning.read_rate);
    default:
      return store(tuning.write_rate);
  }
}

constexpr std::array<std::string_view, 8> kFields = {"device", "kernel", "when",      "depth",
                                                     "piece",  "gap",    "read_rate", "write_rate"};

Status malformed(std::string_view what) {
  return fail(Code::invalid_argument, "{:.80}", what);
}

}  // namespace

std::string tuning_text(const Tuning& t) {
  return fmt::format(
      "{}\ndevice = {}\nkernel = {}\nwhen = {}\ndepth = {}\npiece = {}\ngap = {}\nread_rate = "
      "{}\nwrite_rate = {}\n{}\n",
      kFirstLine, t.device, t.kernel, t.when, t.depth, t.piece, t.gap, t.read_rate, t.write_rate,
      kLastLine);
}

Result<Tuning> parse_tuning(std::string_view text) {
  if (text.size() > kLongest) {
    return malformed("it is too long to be a tuning");
  }
  Tuning tuning;
  unsigned seen = 0;
  for (std::size_t line_number = 0;; ++line_number) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) {
      return malformed("it is cut off");
    }
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line_number == 0) {
      if (line != kFirstLine) {
        return malformed("it is not a tuning of this version");
      }
      continue;
    }
    if (line == kLastLine) {
      break;
    }
    const auto equals = line.find(" = ");
    std::size_t field = 0;
    while (field < kFields.size() && kFields[field] != line.substr(0, equals)) {
      ++field;
    }
    if (equals == std::string_view::npos || field == kFields.size() || (seen >> field & 1) != 0) {
      return malformed("it has an unknown line");
    }
    if (!set_field(tuning, field, line.substr(equals + 3))) {
      return fail(Code::invalid_argument, "its {} is not accepted", kFields[field]);
    }
    seen |= 1U << field;
  }
  if (!text.empty()) {
    return malformed("it continues after its end");
  }
  for (std::size_t field = 0; field < kFields.size(); ++field) {
    if ((seen >> field & 1) == 0) {
      return fail(Code::invalid_argument, "it lacks {}", kFields[field]);
    }
  }
  return tuning;
}

std::string tuning_file(const std::string& cache, const DeviceId& device) {
  // The name is only a hash; the file has the whole key.
  return fmt::format("{}/tuned/{:016x}", cache, XXH3_64bits(device.key.data(), device.key.size()));
}

FoundTuning find_tuning(const std::string& cache, const DeviceId& device, std::string_view kernel,
                        std::int64_t now) {
  const auto none = [](std::string reason) { return FoundTuning{std::nullopt, std::move(reason)}; };
  if (cache.empty()) {
    return none("there is no cache directory (HOME, XDG_CACHE_HOME)");
  }
  const std::string path = tuning_file(cache, device);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) {
    return none(errno == ENOENT ? "never measured: tiermem tune"
                                : fmt::format("{:.160}: {}", path, std::strerror(errno)));
  }
  std::array<char, kLongest + 1> text;
  std::size_t size = 0;
  ssize_t n = 1;
  while (n > 0 && size < text.size()) {
    n = ::read(file, text.data() + size, text.size() - size);
    size += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  const int error = errno;
  best_effort(::close(file), "the descriptor is gone in any case");
  if (n < 0) {
    return none(fmt::format("{:.160}: {}", path, std::strerror(error)));
  }
  const auto found = parse_tuning({text.data(), size});
  if (!found.ok()) {
    return none(fmt::format("{:.160} cannot be used: {}", path, found.message()));
  }
  if (found->device != device.key) {
    return none(fmt::format("{:.160} is of another device", path));
  }
  if (found->kernel != kernel) {
    return none(fmt::format("measured under kernel {:.60}, this is {:.60}: tiermem tune",
                            found->kernel, kernel));
  }
  if (found->when > now + kDay) {
    return none(fmt::format("{:.160} has a date in the future", path));
  }
  const std::int64_t days = (now - found->when) / kDay;
  if (days > kTuningDays) {
    return none(fmt::format("measured {} days ago: tiermem tune", days));
  }
  return {*found, {}};
}

Status keep_tuning(const std::string& cache, const Tuning& tuning) {
  const std::string path = tuning_file(cache, {tuning.device, {}});
  const auto refused = [&](int error) {
    return fail_native(Code::io_error, error, "cannot keep the tuning in {:.160}: {}", path,
                       std::strerror(error));
  };
  if (cache.empty()) {
    return fail(Code::io_error,
                "tuning: there is no cache directory to keep it in; set XDG_CACHE_HOME or HOME");
  }
  if (const int error = make_directories(path.substr(0, path.rfind('/'))); error != 0) {
    return refused(error);
  }
  if (const int error = replace_file(path, tuning_text(tuning), 0600); error != 0) {
    return refused(error);
  }
  return {};
}

}  // namespace tiermem
