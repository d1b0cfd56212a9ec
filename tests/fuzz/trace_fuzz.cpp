// libFuzzer target: any bytes, as each of the trace formats, are either parsed or refused with a
// message. A parsed trace names only its own blocks. The first byte chooses the format.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "policy/trace.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  static constexpr std::string_view kNames[] = {"f.lis", "f.trace.gz", "f.jsonl", "f.ttrace.zst"};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const tiermem::TraceLimits limits{1u << 16, 1u << 16};
  const auto trace = tiermem::parse_trace(kNames[data[0] % 4], text, limits);
  if (!trace.ok()) {
    if (trace.status().info() == nullptr || trace.message()[0] == '\0') {
      std::abort();
    }
    return 0;
  }
  if (trace->references.empty() || trace->references.size() > limits.references ||
      trace->blocks > limits.blocks) {
    std::abort();
  }
  for (const tiermem::Reference& reference : trace->references) {
    if (reference.block >= trace->blocks) {
      std::abort();
    }
  }
  return 0;
}
