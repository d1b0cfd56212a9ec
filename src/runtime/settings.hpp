// Settings: option values as written, before they are checked. Read from a spec string ("dram=4G;
// nvme=/data/a:100G,/data/b:100G; depth=16") or from TOML ([tiers] and [options]). Keys are checked
// here, so that a typing error is reported with its source. Pure except for settings_from_file(),
// which reads a file; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/options.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

struct Setting {
  const Option* option;
  std::vector<std::string> items;  ///< One item, except for a list of devices.
  std::string origin;              ///< "TIERMEM_TIERS", "tiers.toml, line 3".
};

/// No option occurs twice.
using Settings = std::vector<Setting>;

/// `text` is a value as in a spec string: only a list of devices is split at its commas.
Setting make_setting(const Option& option, std::string_view text, std::string_view origin);
/// `key=value` separated by `;`; blanks and empty parts are ignored. Errors: invalid_argument for
/// an unknown or repeated key or an empty value; unsupported for a kind of tier that this build
/// lacks.
Result<Settings> settings_from_spec(std::string_view spec, std::string_view origin);
/// The same for several texts that together name no option twice.
Result<Settings> settings_from_specs(std::span<const Spec> specs);
/// `file` appears in messages only. Errors as above, with file and line.
Result<Settings> settings_from_toml(std::string_view text, const std::string& file);
/// As settings_from_toml. Errors: io_error if the file cannot be read.
Result<Settings> settings_from_file(const std::string& path);

}  // namespace tiermem
