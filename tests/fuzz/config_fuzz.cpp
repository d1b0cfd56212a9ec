// Fuzzes the two grammars of the configuration. The first byte of the input chooses: 's' is a spec
// string, any other byte TOML. The rest is the text. Property: no crash and no exception, and every
// refusal has a message. An accepted spec string is a configuration that can be formatted and read
// again.
//
// clang++ -std=c++20 -fsanitize=fuzzer,address -Iinclude -Isrc tests/fuzz/config_fuzz.cpp
//   src/base/arena.cpp src/base/error.cpp src/os/host_facts.cpp
//   src/runtime/{config,options,settings}.cpp -lfmt
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "runtime/config.hpp"
#include "runtime/settings.hpp"

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tiermem;
  if (size == 0) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] != 's') {
    const auto settings = settings_from_toml(text, "fuzz.toml");
    require(settings.ok() || std::strlen(settings.message()) > 10);
    return 0;
  }
  HostFacts facts;
  facts.memory_available = Fact::of("17179869184");
  // DRAM only, unless the input names devices: a fuzzer must not create directories.
  const Environment env = [](const char* name) -> const char* {
    return std::strcmp(name, "TIERMEM_NVME") == 0 ? "off" : nullptr;
  };
  const auto first = load_config(text, nullptr, env, facts);
  require(first.ok() || std::strlen(first.message()) > 10);
  if (first.ok()) {
    require(first->dram.budget > 0 && first->workers > 0);
    require(first->block.empty() == (first->block_budget == 0));
  }
  return 0;
}
