// Safetensors: the table of contents of a safetensors file; it never reads a weight. The file has 8
// bytes of header length (little endian), a JSON header, and the tensors' bytes. The whole header
// is checked here, so that no later code meets a range outside the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

/// Bytes [offset, offset + length) of the file.
struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t end() const noexcept { return offset + length; }
};

struct Tensor {
  std::string dtype;                 ///< As in the file: "F16", "F32", ...
  std::vector<std::uint64_t> shape;  ///< Slowest dimension first.
  ByteRange bytes;                   ///< length = product(shape) × bytes of dtype.
};

class Safetensors {
 public:
  /// Reads and checks the header. Throws Failure (files) naming the mistake and its position.
  explicit Safetensors(std::string path);

  const std::string& path() const noexcept { return path_; }
  std::uint64_t file_bytes() const noexcept { return file_bytes_; }
  std::uint64_t data_bytes() const noexcept { return file_bytes_ - data_begin_; }
  /// The f16 tensor of that name and shape. Throws Failure (files) if there is none.
  ByteRange f16(std::string_view name, const std::vector<std::uint64_t>& shape) const;

 private:
  [[noreturn]] void reject(const std::string& why) const;
  void add(const std::string& name, Tensor tensor);
  void check_cover() const;

  std::string path_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace llm
