// Results for programs: JSON to a file, or to stdout for "-". One thread.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// Written whole or not at all: to a new file beside `path`, then renamed. Text that is not UTF-8
/// (a path, say) gets replacement characters. Errors: io_error with errno.
Status write_json(const std::string& path, const nlohmann::ordered_json& value);

}  // namespace tiermem::cli
