// Recorded references of real programs, as block numbers in order. Pure: parses bytes already in
// memory (src/cli/read_file.hpp fetches and decompresses them). Any thread.
//
// Formats, chosen by the file's name, a last .gz or .zst not counted:
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
  bool write = false;  ///< Formats that do not tell say false.
};

struct Trace {
  std::string name;                    ///< The file's name without folders and endings.
  std::uint64_t block_bytes_hint = 0;  ///< Size of a block; 0: the format does not tell.
  std::vector<Reference> references;   ///< At least one.
  std::uint32_t blocks = 0;            ///< Blocks are 0 .. blocks-1, in the order of first mention.
  bool one_step = false;               ///< Of a program that repeats it, as training does.
  /// Where each request ends, as a number of references; empty when the format tells none.
  std::vector<std::uint64_t> request_ends;
};

/// What a trace may ask for: a few bytes of text can name any number of references.
struct TraceLimits {
  std::uint64_t references = std::uint64_t{1} << 27;  ///< 1 GiB of them.
  std::uint64_t blocks = std::uint64_t{1} << 27;
};

/// invalid_argument names file, line and what is expected there; no_capacity when a limit or the
/// memory does not hold it.
Result<Trace> parse_trace(std::string_view file_name, std::string_view bytes,
                          const TraceLimits& limits = {});

}  // namespace tiermem
