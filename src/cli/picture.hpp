// Pictures in files, by the ending of the file's name: an SVG as it is, or as PNG where the
// machine has librsvg. One thread.
#pragma once

#include <string>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// Whether a picture can be written there, to be asked before any work is done for it. Errors:
/// invalid_argument for another ending; unavailable for PNG without librsvg.
Status check_picture(const std::string& path);

/// Whether both outputs of a command can be written, to be asked before any work is done for them.
/// Errors: those of check_picture() and check_output(); invalid_argument where both are stdout.
Status check_outputs(const char* command, const std::string& json, const std::string& plot);

/// A `path` that ends with .png gets PNG, on white and at twice the size in pixels; any other, and
/// "-", which is stdout, the SVG. Written whole or not at all. Errors: those of check_picture();
/// io_error with errno; no_capacity for the memory of a PNG.
Status write_picture(const std::string& path, const std::string& svg);

}  // namespace tiermem::cli
