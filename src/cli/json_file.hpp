// Writes results to files: JSON for programs, or any text; to stdout for "-". One thread.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// Checks that write_text() should work, for commands that run long before they write. The error
/// names `option`. Errors: invalid_argument for a directory; io_error with errno.
Status check_output(const char* option, const std::string& path);

/// The same for JSON. Also returns invalid_argument for an existing file that is not JSON: if FILE
/// is omitted, the next word is taken for it, and that may be the user's data.
Status check_json_output(const char* option, const std::string& path);

/// Writes the file completely or not at all: to a new file beside `path`, which is then renamed.
/// Errors: io_error with errno.
Status write_text(const std::string& path, const std::string& text);
/// The same for JSON. Text that is not UTF-8, such as a path, gets replacement characters.
Status write_json(const std::string& path, const nlohmann::ordered_json& value);

}  // namespace tiermem::cli
