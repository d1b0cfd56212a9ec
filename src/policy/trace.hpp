// Recorded references of real programs, as block numbers in order. Pure: it parses bytes in memory
// (src/cli/read_file.hpp reads and decompresses them). Any thread.
//
// The file name selects the format; a final .gz or .zst is ignored:
//   .lis     ARC: "start count ignored request", a run of blocks a line
//   .trace   LIRS: a block number a line; lines starting with * are ignored
//   .jsonl   Mooncake: an object a line, its "hash_ids" an array of block ids
//   .ttrace  tensor trace v1: tensors and the kernels that read and write them, in extents of 2 MiB
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tiermem/status.hpp"

namespace tiermem {

struct Reference {
  std::uint32_t block = 0;
  bool write = false;  ///< False for formats without this information.
};

struct Trace {
  std::string name;                    ///< The file name without folders and extensions.
  std::uint64_t block_bytes_hint = 0;  ///< Size of a block; 0: not in the format.
  std::vector<Reference> references;   ///< At least one.
  std::uint32_t blocks = 0;  ///< Blocks are 0 .. blocks-1, in the order of their first reference.
  bool one_step = false;     ///< It is one step of a program that repeats it, as in training.
  /// The end of each request, as a number of references; empty if the format has none.
  std::vector<std::uint64_t> request_ends;
};

/// The limits of a trace: a few bytes of text can name any number of references.
struct TraceLimits {
  std::uint64_t references = std::uint64_t{1} << 27;  ///< 1 GiB of them.
  std::uint64_t blocks = std::uint64_t{1} << 25;      ///< 1.2 GiB while they are numbered.
};

/// Parses a trace. Errors: invalid_argument names the file, the line and the expected content.
/// no_capacity: a limit is exceeded, or an allocation failed.
Result<Trace> parse_trace(std::string_view file_name, std::string_view bytes,
                          const TraceLimits& limits = {});

}  // namespace tiermem
