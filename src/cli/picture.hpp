// Pictures in files, by the ending of the file's name: an SVG as it is, or as PNG where the
// machine has librsvg. One thread.
#pragma once

#include <string>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// Whether a picture can be written there, to be asked before any work is done for it. Errors:
/// unavailable for PNG without librsvg.
Status check_picture(const std::string& path);

/// A `path` that ends with .png gets PNG, on white and at twice the size in pixels; any other, and
/// "-", which is stdout, the SVG. Written whole or not at all. Errors: those of check_picture();
/// io_error with errno; no_capacity for the memory of a PNG.
Status write_picture(const std::string& path, const std::string& svg);

}  // namespace tiermem::cli
