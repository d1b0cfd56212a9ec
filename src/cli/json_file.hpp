// Results in files: JSON for programs, or any text; to stdout for "-". One thread.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// Whether write_text() can be expected to work, for commands that take long before they write.
/// `option` is named in the error. Errors: invalid_argument for a directory; io_error with errno.
Status check_output(const char* option, const std::string& path);

/// The same for JSON. Errors: also invalid_argument for a file that is there and is not JSON: where
/// FILE may be left out, the next word is taken for it, and that may be the user's data.
Status check_json_output(const char* option, const std::string& path);

/// Written whole or not at all: to a new file beside `path`, then renamed. Errors: io_error with
/// errno.
Status write_text(const std::string& path, const std::string& text);
/// The same. Text that is not UTF-8 (a path, say) gets replacement characters.
Status write_json(const std::string& path, const nlohmann::ordered_json& value);

}  // namespace tiermem::cli
