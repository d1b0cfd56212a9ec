// A whole file into memory, decompressed by its ending. For the command-line tools and tests: it
// blocks and allocates, and is never called by the runtime. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "tiermem/status.hpp"

namespace tiermem::cli {

/// The bytes of `path`; those inside it when it ends in .gz (one or more members) or .zst (one or
/// more frames). At most `limit` bytes come out. Errors: io_error with errno; invalid_argument for
/// damaged data; no_capacity above the limit; unsupported when built without the library for it.
Result<std::string> read_compressed(const std::string& path,
                                    std::uint64_t limit = std::uint64_t{1} << 30);

}  // namespace tiermem::cli
