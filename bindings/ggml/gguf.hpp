// The header of a GGUF file: its tensors and where their bytes are. ggml reads it; this file checks
// that it fits the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "library.hpp"

namespace tiermem::ggml {

/// A tensor's bytes: [offset, offset + bytes) of the file.
struct Entry {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  /// For the routed experts of a layer: its number. Expert i has the i-th of `experts` parts.
  std::optional<std::uint32_t> layer;
};

struct Gguf {
  /// Throws Failure.
  Gguf(const Library& library, const std::string& path, std::uint64_t file_bytes);

  std::vector<Entry> entries;  ///< In the order of the file.
  std::unordered_map<std::string, std::size_t> by_name;
  std::uint32_t experts = 0;  ///< Experts of a layer; 0 for a dense model.
};

}  // namespace tiermem::ggml
