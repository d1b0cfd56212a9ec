// The header of a safetensors file, checked. One thread, once, before anything else.
#include "safetensors.hpp"

#include <algorithm>
#include <fstream>
#include <optional>

#include <nlohmann/json.hpp>

#include "failure.hpp"

namespace llm {
namespace {

// The format allows 100 MB; a model of a few hundred tensors needs a few dozen KB.
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;

std::uint64_t bytes_of(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::uint64_t> kSizes[] = {
      {"F16", 2}, {"BF16", 2}, {"F32", 4}, {"F64", 8}, {"I8", 1},  {"U8", 1},
      {"I16", 2}, {"U16", 2},  {"I32", 4}, {"U32", 4}, {"I64", 8}, {"U64", 8},
  };
  for (const auto& [name, bytes] : kSizes) {
    if (name == dtype) {
      return bytes;
    }
  }
  return 0;
}

// Returns nothing if a value is not a whole number, such as -1, 1.5 or true.
std::optional<std::vector<std::uint64_t>> whole_numbers(const nlohmann::json& list) {
  const auto is_whole = [](const nlohmann::json& each) { return each.is_number_unsigned(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_whole)) {
    return std::nullopt;
  }
  return list.get<std::vector<std::uint64_t>>();
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text;
  for (std::uint64_t n : shape) {
    text += (text.empty() ? "" : " × ") + std::to_string(n);
  }
  return text;
}

}  // namespace

Safetensors::Safetensors(std::string path) : path_(std::move(path)) {
  std::ifstream file(path_, std::ios::binary | std::ios::ate);
  if (!file) {
    reject("cannot be opened; examples/llm/prepare makes it");
  }
  file_bytes_ = static_cast<std::uint64_t>(file.tellg());
  file.seekg(0);

  unsigned char prefix[8];
  if (!file.read(reinterpret_cast<char*>(prefix), sizeof(prefix))) {
    reject("has " + std::to_string(file_bytes_) + " bytes; the header's length alone takes 8");
  }
  std::uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) {
    header_bytes = header_bytes << 8 | prefix[i];
  }
  if (header_bytes > kHeaderBytesMax || header_bytes > file_bytes_ - sizeof(prefix)) {
    reject("claims a header of " + std::to_string(header_bytes) + " bytes in a file of " +
           std::to_string(file_bytes_));
  }
  data_begin_ = sizeof(prefix) + header_bytes;

  std::string text(header_bytes, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(header_bytes))) {
    reject("ends inside its header");
  }
  try {
    const auto header = nlohmann::json::parse(text);
    if (!header.is_object()) {
      reject("has a header that is not an object of tensors");
    }
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        continue;
      }
      const auto offsets = whole_numbers(entry.at("data_offsets"));
      const auto shape = whole_numbers(entry.at("shape"));
      if (!offsets || offsets->size() != 2 || !shape) {
        reject("tensor " + name + " lacks two offsets or a shape in whole numbers");
      }
      const std::uint64_t begin = offsets->front(), end = offsets->back();
      if (begin > end || end > data_bytes()) {
        reject("tensor " + name + " lies at " + std::to_string(begin) + " to " +
               std::to_string(end) + " of " + std::to_string(data_bytes()) + " bytes of data");
      }
      add(name, {entry.at("dtype").get<std::string>(), *shape, {data_begin_ + begin, end - begin}});
    }
  } catch (const nlohmann::json::exception& error) {
    reject(std::string("has a header that is not what it should be: ") + error.what());
  }
  check_cover();
}

void Safetensors::add(const std::string& name, Tensor tensor) {
  std::uint64_t bytes = bytes_of(tensor.dtype);
  for (std::uint64_t n : tensor.shape) {
    if (__builtin_mul_overflow(bytes, n, &bytes)) {
      reject("tensor " + name + " has the impossible shape " + shape_text(tensor.shape));
    }
  }
  if (bytes_of(tensor.dtype) == 0 || bytes != tensor.bytes.length) {
    reject("tensor " + name + ", " + tensor.dtype + " of " + shape_text(tensor.shape) + ", has " +
           std::to_string(tensor.bytes.length) + " bytes");
  }
  tensors_.emplace(name, std::move(tensor));
}

// The tensors follow each other without overlap or hole, from the first data byte to the last.
void Safetensors::check_cover() const {
  std::vector<ByteRange> ranges;
  for (const auto& [name, tensor] : tensors_) {
    ranges.push_back(tensor.bytes);
  }
  std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.length < b.length;
  });
  std::uint64_t cursor = data_begin_;
  for (const ByteRange& range : ranges) {
    if (range.offset != cursor) {
      reject(std::string("has ") + (range.offset < cursor ? "overlapping tensors" : "a hole") +
             " at offset " + std::to_string(range.offset));
    }
    cursor = range.end();
  }
  if (cursor != file_bytes_) {
    reject("has " + std::to_string(file_bytes_ - cursor) + " bytes behind its last tensor");
  }
}

ByteRange Safetensors::f16(std::string_view name, const std::vector<std::uint64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    reject("has no tensor " + std::string(name));
  }
  const Tensor& tensor = found->second;
  if (tensor.dtype != "F16" || tensor.shape != shape) {
    reject("tensor " + std::string(name) + " is " + tensor.dtype + " of " +
           shape_text(tensor.shape) + "; the configuration asks for F16 of " + shape_text(shape));
  }
  if (tensor.bytes.offset % 2 != 0) {
    reject("tensor " + std::string(name) + " begins at the odd offset " +
           std::to_string(tensor.bytes.offset));
  }
  return tensor.bytes;
}

void Safetensors::reject(const std::string& why) const {
  throw Failure(Exit::files, path_ + ": " + why);
}

}  // namespace llm
