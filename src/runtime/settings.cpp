// The two grammars. toml11 throws; nothing of that leaves this file.
#include "runtime/settings.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include <toml.hpp>

#include "base/error.hpp"
#include "base/results.hpp"
#include "base/shown.hpp"

namespace tiermem {
namespace {

constexpr std::size_t kLongestText = std::size_t{64} << 10;
// toml11 recurses for every level of nesting, also of dotted keys, and its stack is ours: a file
// with more of either than any configuration has is refused before it is parsed.
constexpr std::ptrdiff_t kMostBrackets = 128;
constexpr std::ptrdiff_t kMostDotsInLine = 64;

constexpr std::array kKindsOfLater = {"numa", "pmem", "s3"};

/// A key as a message names it. Errors escape it.
std::string_view clipped(std::string_view text) {
  return whole_characters(text.substr(0, 48));
}

/// The option of that name, not yet in `settings`.
Result<const Option*> option_for(std::string_view key, std::string_view origin,
                                 const Settings& settings) {
  if (std::find(kKindsOfLater.begin(), kKindsOfLater.end(), key) != kKindsOfLater.end()) {
    return fail(Code::unsupported,
                "{} ({:.80}): this build has no tier of that kind; it knows dram, gpu and nvme",
                key, origin);
  }
  const Option* option = find_option(key);
  if (option == nullptr) {
    return fail(Code::invalid_argument,
                "unknown option '{}' ({:.80}); the nearest is '{}', all are in "
                "docs/configuration.md",
                clipped(key), origin, nearest_option(key));
  }
  for (const Setting& other : settings) {
    if (other.option == option) {
      return fail(Code::invalid_argument, "{} ({:.80}): given twice, before in {:.80}",
                  option->name, origin, other.origin);
    }
  }
  return option;
}

std::vector<std::string> split_devices(std::string_view text) {
  std::vector<std::string> items;
  while (true) {
    const auto comma = text.find(',');
    items.emplace_back(trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) {
      return items;
    }
    text = text.substr(comma + 1);
  }
}

std::string place_of(const std::string& file, const toml::source_location& location) {
  return fmt::format("{}, line {}", file, location.line());
}
std::string place_of(const std::string& file, const toml::value& value) {
  return place_of(file, value.location());
}

/// A TOML scalar as one would write it in a spec string.
Result<std::string> scalar_text(const toml::value& value, const std::string& origin,
                                const std::string& key) {
  switch (value.type()) {
    case toml::value_t::string:
      return std::string(trim(value.as_string().str));
    case toml::value_t::integer:
      return std::to_string(value.as_integer());
    case toml::value_t::boolean:
      return std::string(value.as_boolean() ? "on" : "off");
    default:
      return fail(Code::invalid_argument,
                  "{} ({:.80}): accepted are strings, whole numbers and booleans, and for nvme "
                  "and gpu arrays of strings",
                  clipped(key), origin);
  }
}

Result<Setting> setting_from(const std::string& key, const toml::value& value, const Option& option,
                             const std::string& origin) {
  Setting setting{&option, {}, origin};
  if (!value.is_array() || !option.is_list()) {
    auto text = scalar_text(value, origin, key);
    if (!text.ok()) {
      return std::move(text).status();
    }
    return make_setting(option, *text, origin);
  }
  for (const toml::value& item : value.as_array()) {
    auto text = scalar_text(item, origin, key);
    if (!text.ok()) {
      return std::move(text).status();
    }
    setting.items.push_back(*text);
  }
  return setting;
}

Status add_table(const std::string& name, const toml::value& table, const std::string& file,
                 Settings& settings) {
  if (!table.is_table() || (name != "tiers" && name != "options")) {
    return fail(Code::invalid_argument,
                "{:.120}: '{}' is not accepted here; accepted are the tables [tiers] and [options]",
                place_of(file, table), clipped(name));
  }
  // toml11 keeps tables unordered: errors would otherwise name any of several mistakes.
  std::vector<std::pair<std::string, const toml::value*>> entries;
  for (const auto& [key, value] : table.as_table()) {
    entries.emplace_back(key, &value);
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->location().line(), a.first) <
           std::pair(b.second->location().line(), b.first);
  });
  for (const auto& [key, value] : entries) {
    const std::string origin = place_of(file, *value);
    const auto option = option_for(key, origin, settings);
    if (!option.ok()) {
      return option.status().clone();
    }
    if ((*option)->is_tier() != (name == "tiers")) {
      return fail(Code::invalid_argument, "{} ({:.80}): belongs in [{}], not in [{}]", key, origin,
                  (*option)->is_tier() ? "tiers" : "options", name);
    }
    auto setting = setting_from(key, *value, **option, origin);
    if (!setting.ok()) {
      return std::move(setting).status();
    }
    settings.push_back(std::move(*setting));
  }
  return {};
}

Status check_nesting(std::string_view text, const std::string& file) {
  const auto brackets =
      std::count_if(text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; });
  std::ptrdiff_t dots = 0;
  std::ptrdiff_t most_dots = 0;
  for (const char c : text) {
    dots = c == '\n' ? 0 : dots + (c == '.' ? 1 : 0);
    most_dots = std::max(most_dots, dots);
  }
  if (brackets > kMostBrackets || most_dots > kMostDotsInLine) {
    return fail(Code::invalid_argument,
                "{:.120}: more than {} brackets, or more than {} dots in a line: no configuration",
                file, kMostBrackets, kMostDotsInLine);
  }
  return {};
}

/// toml11 3.7.0 reads outside of its buffer when it reports a literal string that is no UTF-8
/// (its issue 199), so it is never given one.
Status check_utf8(std::string_view text, const std::string& file) {
  unsigned line = 1;
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0) {
      return fail(Code::invalid_argument, "{:.120}, line {}: the text is no UTF-8", file, line);
    }
    line += text.front() == '\n' ? 1 : 0;
    text.remove_prefix(length);
  }
  return {};
}

/// toml11 explains over many lines, with the source beside it; the first says what is wrong.
std::string first_line(const char* text) {
  std::string line(text, std::strcspn(text, "\n"));
  const std::string noise = "[error] ";
  return line.starts_with(noise) ? line.substr(noise.size()) : line;
}

}  // namespace

Setting make_setting(const Option& option, std::string_view text, std::string_view origin) {
  if (option.is_list()) {
    return {&option, split_devices(text), std::string(origin)};
  }
  return {&option, {std::string(trim(text))}, std::string(origin)};
}

Result<Settings> settings_from_spec(std::string_view spec, std::string_view origin) {
  if (spec.size() > kLongestText) {
    return fail(Code::invalid_argument, "{}: {} bytes, at most {} are accepted", origin,
                spec.size(), kLongestText);
  }
  Settings settings;
  while (!spec.empty()) {
    const auto semicolon = spec.find(';');
    const std::string_view part = trim(spec.substr(0, semicolon));
    spec = semicolon == std::string_view::npos ? std::string_view{} : spec.substr(semicolon + 1);
    if (part.empty()) {
      continue;
    }
    const auto equals = part.find('=');
    if (equals == std::string_view::npos) {
      return fail(Code::invalid_argument, "'{}' ({}): accepted is option=value, such as dram=4G",
                  clipped(part), origin);
    }
    const std::string_view key = trim(part.substr(0, equals));
    const auto option = option_for(key, origin, settings);
    if (!option.ok()) {
      return option.status().clone();
    }
    settings.push_back(make_setting(**option, part.substr(equals + 1), origin));
  }
  return settings;
}

Result<Settings> settings_from_toml(std::string_view text, const std::string& file) {
  if (text.size() > kLongestText) {
    return fail(Code::invalid_argument, "{:.120}: {} bytes, at most {} are accepted", file,
                text.size(), kLongestText);
  }
  Status readable = check_nesting(text, file);
  if (readable.ok()) {
    readable = check_utf8(text, file);
  }
  if (!readable.ok()) {
    return readable;
  }
  try {
    std::istringstream stream{std::string(text)};
    const toml::value root = toml::parse(stream, file);
    Settings settings;
    for (const auto& [name, table] : root.as_table()) {
      Status added = add_table(name, table, file, settings);
      if (!added.ok()) {
        return added;
      }
    }
    return settings;
  } catch (const toml::exception& error) {
    return fail(Code::invalid_argument, "{:.120}: {:.100}", place_of(file, error.location()),
                first_line(error.what()));
  } catch (const std::exception& error) {
    return fail(Code::invalid_argument, "{:.120}: {:.100}", file, first_line(error.what()));
  }
}

Result<Settings> settings_from_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  std::string text;
  char part[4096];
  ssize_t n = file;
  while (n >= 0 && text.size() <= kLongestText && (n = read(file, part, sizeof(part))) != 0) {
    if (n > 0) {
      text.append(part, static_cast<std::size_t>(n));
    } else if (errno == EINTR) {
      n = 0;
    }
  }
  const int error = errno;
  if (file >= 0) {
    best_effort(close(file), "the descriptor is gone in any case");
  }
  if (n < 0) {
    return fail_native(Code::io_error, error, "cannot read the configuration {:.160}: {}", path,
                       std::strerror(error));
  }
  return settings_from_toml(text, path);
}

}  // namespace tiermem
