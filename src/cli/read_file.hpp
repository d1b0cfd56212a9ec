// Reads a whole file into memory, decompressed by its ending. For the command-line tools and tests:
// it blocks and allocates, and the runtime never calls it. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// Returns the bytes of `path`, decompressed if it ends in .gz (one or more members) or .zst (one
/// or more frames). Returns at most `limit` bytes. Errors: io_error with errno; invalid_argument
/// for damaged data; no_capacity above the limit; unsupported if built without the library for it.
Result<std::string> read_compressed(const std::string& path,
                                    std::uint64_t limit = std::uint64_t{1} << 30);

}  // namespace tiermem::cli
