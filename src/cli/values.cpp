// Checks texts before CLI11 converts them.
#include "cli/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "cli/suggest.hpp"
#include "runtime/options.hpp"

namespace tiermem::cli {
namespace {

template <typename Number>
bool is_between(const std::string& text, Number low, Number high) {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  // This form also refuses not-a-number.
  return read.ec == std::errc() && read.ptr == end && value >= low && value <= high;
}

template <typename Number>
CLI::Validator number(const char* kind, Number low, Number high, const std::string& range) {
  return CLI::Validator(
      [=](const std::string& text) {
        return is_between(text, low, high)
                   ? std::string()
                   : fmt::format("'{:.60}' is not a {}number from {}", text, kind, range);
      },
      range);
}

}  // namespace

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string description = fmt::format("{{{}}}", fmt::join(words, ","));
  return CLI::Validator(
      [words = std::move(words)](const std::string& text) {
        return std::find(words.begin(), words.end(), text) != words.end()
                   ? std::string()
                   : and_then(
                         fmt::format("'{:.60}' is not accepted{}", text, suggestion(text, words)),
                         fmt::format("accepted: {}", fmt::join(words, ", ")));
      },
      description);
}

CLI::Validator whole_number(std::uint64_t low, std::uint64_t high) {
  return number("whole ", low, high, fmt::format("{} to {}", low, high));
}

CLI::Validator positive_number() {
  return CLI::Validator(
      [](const std::string& text) {
        return is_between(text, std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max())
                   ? std::string()
                   : fmt::format("'{:.60}' is not a whole number above 0", text);
      },
      "1 or more");
}

CLI::Validator real_number(double low, double high) {
  return number("", low, high, fmt::format("{:g} to {:g}", low, high));
}

CLI::Validator size_in_bytes(std::uint64_t least) {
  return CLI::Validator(
      [least](const std::string& text) {
        const auto size = parse_size(text);
        return !size.ok()      ? std::string(size.message())
               : *size < least ? fmt::format("{} bytes; accepted are {} and more", *size, least)
                               : std::string();
      },
      "");
}

}  // namespace tiermem::cli
