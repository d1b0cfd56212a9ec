// The headers of a model's GGUF files: its tensors and where their bytes are. ggml reads a header;
// this file checks that it fits its file, and finds the other files of a model that is in parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "library.hpp"

namespace tiermem::ggml {

/// A file, open for reading.
class File {
 public:
  /// Throws Failure.
  explicit File(std::string path);
  File(File&& other) noexcept;
  ~File();
  File& operator=(File&&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }
  /// Returns whether the file has these bytes at this offset.
  bool has(std::uint64_t offset, const void* data, std::size_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
};

/// A tensor's bytes: [offset, offset + bytes) of one file.
struct Entry {
  std::string name;
  std::size_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  /// For the routed experts of a layer: its number. Expert i has the i-th of `experts` parts.
  std::optional<std::uint32_t> layer;
};

class Gguf {
 public:
  /// `path`: the model, or the first of its files. The others are found by their names. Throws
  /// Failure.
  Gguf(const Library& library, const std::string& path);

  std::vector<File> files;     ///< In the order of the model's parts.
  std::vector<Entry> entries;  ///< In the order of the files, and of their bytes.
  std::unordered_map<std::string, std::size_t> by_name;
  std::uint32_t experts = 0;  ///< Experts of a layer; 0 for a dense model.

 private:
  /// Reads the header of the last file. Returns the number of files that it tells.
  std::uint64_t read_header(const Library& library);
};

}  // namespace tiermem::ggml
