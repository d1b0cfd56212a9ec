// libFuzzer target: any bytes are a safetensors file. Either it is refused with a message that
// names it, or all statements of its header are true: it is an object with whole numbers as offsets
// and shapes, each tensor is where f16() says and inside the file, and no other shape is accepted.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "examples/llm/failure.hpp"
#include "examples/llm/safetensors.hpp"

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

bool are_whole_numbers(const nlohmann::json& list) {
  bool all = list.is_array();
  for (const auto& each : list) {
    all = all && each.is_number_unsigned();
  }
  return all;
}

// Compares the file's entry for a tensor with the result.
void compare(const llm::Safetensors& file, const std::string& name, const nlohmann::json& entry,
             std::uint64_t data_begin) {
  require(are_whole_numbers(entry.at("data_offsets")) && are_whole_numbers(entry.at("shape")));
  auto shape = entry.at("shape").get<std::vector<std::uint64_t>>();
  const auto begin = entry.at("data_offsets").at(0).get<std::uint64_t>();
  const auto end = entry.at("data_offsets").at(1).get<std::uint64_t>();
  require(begin <= end && end <= file.data_bytes());
  const bool is_f16 = entry.at("dtype") == "F16" && (data_begin + begin) % 2 == 0;
  const auto refuses = [&] {
    try {
      const llm::ByteRange range = file.f16(name, shape);
      require(range.offset == data_begin + begin && range.end() == data_begin + end);
      return false;
    } catch (const llm::Failure&) {
      return true;
    }
  };
  require(refuses() == !is_f16);
  shape.push_back(2);
  require(refuses());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  require(fd >= 0 && ::ftruncate(fd, 0) == 0);
  require(::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size));
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  try {
    const llm::Safetensors file(path);
    require(file.file_bytes() == size);
    const std::uint64_t data_begin = size - file.data_bytes();
    const auto header = nlohmann::json::parse(data + 8, data + data_begin);
    require(header.is_object());
    for (const auto& [name, entry] : header.items()) {
      if (name != "__metadata__") {
        compare(file, name, entry, data_begin);
      }
    }
  } catch (const llm::Failure& failure) {
    const std::string sentence = failure.what();
    require(sentence.find(path) != std::string::npos && sentence.size() > path.size() + 10);
  }
  return 0;
}
