// The two grammars. TOML is parsed by toml++, without its exceptions and without its shared
// library, which the preload library would bring into every process.
#include "runtime/settings.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/error.hpp"
#include "base/results.hpp"
#include "base/shown.hpp"

namespace tiermem {
namespace {

constexpr std::size_t kLongestText = std::size_t{64} << 10;
// toml++ recurses for every level of nesting, and frees the tables of dotted keys by recursion,
// both on the caller's stack. A file with more of either than any configuration has is refused
// before parsing.
constexpr std::ptrdiff_t kMostBrackets = 128;
constexpr std::ptrdiff_t kMostDotsInLine = 64;

constexpr std::array kKindsOfLater = {"s3"};

/// A key for a message. Error messages escape it.
std::string_view clipped(std::string_view text) {
  return whole_characters(text.substr(0, 48));
}

/// Finds the option of that name; it must not be in `settings` yet.
Result<const Option*> option_for(std::string_view key, std::string_view origin,
                                 const Settings& settings) {
  if (std::find(kKindsOfLater.begin(), kKindsOfLater.end(), key) != kKindsOfLater.end()) {
    return fail(Code::unsupported,
                "{} ({:.80}): this build has no tier of that kind; accepted are dram, numa, "
                "pmem, gpu, nvme and slow",
                key, origin);
  }
  const Option* option = find_option(key);
  if (option == nullptr) {
    return fail(Code::invalid_argument,
                "'{}' ({:.80}): there is no such option; did you mean '{}'? see `tiermem topo "
                "--options` or docs/configuration.md",
                clipped(key), origin, nearest_option(key));
  }
  for (const Setting& other : settings) {
    if (other.option == option) {
      return fail(Code::invalid_argument, "{} ({:.80}): given twice, before in {:.80}; remove one",
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

std::string place_of(const std::string& file, const toml::source_region& place) {
  return fmt::format("{}, line {}", file, place.begin.line);
}

/// A TOML scalar in the spelling of a spec string.
Result<std::string> scalar_text(const toml::node& value, const std::string& origin,
                                std::string_view key) {
  if (const auto* text = value.as_string()) {
    return std::string(trim(text->get()));
  }
  if (const auto* number = value.as_integer()) {
    return std::to_string(number->get());
  }
  if (const auto* truth = value.as_boolean()) {
    return std::string(truth->get() ? "on" : "off");
  }
  return fail(Code::invalid_argument,
              "{} ({:.80}): accepted are strings, whole numbers and booleans, and for nvme "
              "and gpu arrays of strings",
              clipped(key), origin);
}

Result<Setting> setting_from(std::string_view key, const toml::node& value, const Option& option,
                             const std::string& origin) {
  Setting setting{&option, {}, origin};
  if (!value.is_array() || !option.is_list()) {
    auto text = scalar_text(value, origin, key);
    if (!text.ok()) {
      return std::move(text).status();
    }
    return make_setting(option, *text, origin);
  }
  for (const toml::node& item : *value.as_array()) {
    auto text = scalar_text(item, origin, key);
    if (!text.ok()) {
      return std::move(text).status();
    }
    setting.items.push_back(*text);
  }
  return setting;
}

/// The entries in the order of their lines. toml++ sorts them by name, and the first mistake must
/// be reported.
std::vector<std::pair<std::string_view, const toml::node*>> entries_of(const toml::table& table) {
  std::vector<std::pair<std::string_view, const toml::node*>> entries;
  for (const auto& [key, value] : table) {
    entries.emplace_back(key.str(), &value);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.second->source().begin.line < b.second->source().begin.line;
  });
  return entries;
}

Status add_table(std::string_view name, const toml::node& table, const std::string& file,
                 Settings& settings) {
  if (!table.is_table() || (name != "tiers" && name != "options")) {
    return fail(Code::invalid_argument,
                "{:.120}: '{}' is not accepted here; accepted are the tables [tiers] and [options]",
                place_of(file, table.source()), clipped(name));
  }
  for (const auto& [key, value] : entries_of(*table.as_table())) {
    const std::string origin = place_of(file, value->source());
    const auto option = option_for(key, origin, settings);
    if (!option.ok()) {
      return option.status().clone();
    }
    if ((*option)->is_tier() != (name == "tiers")) {
      return fail(Code::invalid_argument, "{} ({:.80}): belongs in [{}], not in [{}]; move it", key,
                  origin, (*option)->is_tier() ? "tiers" : "options", name);
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
                "{:.120}: more than {} brackets, or more than {} dots in a line; remove some", file,
                kMostBrackets, kMostDotsInLine);
  }
  return {};
}

/// Refuses a file in another encoding with a clear message and the line.
Status check_utf8(std::string_view text, const std::string& file) {
  unsigned line = 1;
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0) {
      return fail(Code::invalid_argument,
                  "{:.120}, line {}: the text is not UTF-8; save the file as UTF-8", file, line);
    }
    line += text.front() == '\n' ? 1 : 0;
    text.remove_prefix(length);
  }
  return {};
}

}  // namespace

Setting make_setting(const Option& option, std::string_view text, std::string_view origin) {
  if (option.is_list()) {
    return {&option, split_devices(text), std::string(origin)};
  }
  return {&option, {std::string(trim(text))}, std::string(origin)};
}

namespace {

/// Appends the settings of `spec`.
Status add_spec(std::string_view spec, std::string_view origin, Settings& settings) {
  if (spec.size() > kLongestText) {
    return fail(Code::invalid_argument, "{}: {} bytes, at most {} are accepted", origin,
                spec.size(), kLongestText);
  }
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
  return {};
}

}  // namespace

Result<Settings> settings_from_specs(std::span<const Spec> specs) {
  Settings settings;
  for (const Spec& spec : specs) {
    if (Status added = add_spec(spec.text, spec.origin, settings); !added.ok()) {
      return added;
    }
  }
  return settings;
}

Result<Settings> settings_from_spec(std::string_view spec, std::string_view origin) {
  const Spec one{std::string(spec), std::string(origin)};
  return settings_from_specs({&one, 1});
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
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return fail(Code::invalid_argument, "{:.120}: {:.110}; correct it",
                place_of(file, error.source()), error.description());
  }
  Settings settings;
  for (const auto& [name, table] : entries_of(parsed.table())) {
    Status added = add_table(name, *table, file, settings);
    if (!added.ok()) {
      return added;
    }
  }
  return settings;
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
