// Source "memory": the whole file in ordinary memory. The yardstick: no wait, no budget.
#include <cstring>
#include <fstream>

#include "failure.hpp"
#include "weights.hpp"

namespace llm {
namespace {

class MemoryWeights final : public Weights {
 public:
  MemoryWeights(const Safetensors& file, std::vector<ByteRange> parts)
      : Weights(std::move(parts), 0), bytes_(new std::byte[file.file_bytes()]) {
    std::ifstream stream(file.path(), std::ios::binary);
    stream.read(reinterpret_cast<char*>(bytes_.get()),
                static_cast<std::streamsize>(file.file_bytes()));
    if (!stream) {
      throw Failure(Exit::files, file.path() + ": could not be read to its end");
    }
  }

 private:
  Lease acquire(ByteRange range) override { return {bytes_.get() + range.offset, {}}; }
  void copy(ByteRange range, void* to) override {
    std::memcpy(to, bytes_.get() + range.offset, range.length);
  }

  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace

std::unique_ptr<Weights> open_memory_weights(const Safetensors& file,
                                             std::vector<ByteRange> parts) {
  return std::make_unique<MemoryWeights>(file, std::move(parts));
}

}  // namespace llm
