// Writes pictures to files. The file name's ending selects SVG, or PNG if the machine has librsvg.
// One thread.
#pragma once

#include <string>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// Checks, before any work, that a picture can be written to the path. Errors: invalid_argument for
/// another ending; unavailable for PNG without librsvg.
Status check_picture(const std::string& path);

/// Checks, before any work, that both outputs of a command can be written. Errors: those of
/// check_picture() and check_output(); invalid_argument if both are stdout.
Status check_outputs(const char* command, const std::string& json, const std::string& plot);

/// Writes PNG, on white and at twice the size in pixels, if `path` ends with .png. Otherwise, and
/// to "-", which is stdout, it writes the SVG. Writes completely or not at all. Errors: those of
/// check_picture(); io_error with errno; no_capacity for the memory of a PNG.
Status write_picture(const std::string& path, const std::string& svg);

}  // namespace tiermem::cli
