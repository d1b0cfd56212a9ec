// libFuzzer target: any bytes are the tuning file of a device. Either they are refused with a
// message, or their values are ones that the options accept and writing them gives the same values
// again.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/tuning.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tuning = tiermem::parse_tuning(text);
  if (!tuning.ok()) {
    if (tuning.code() != tiermem::Code::invalid_argument || tuning.message()[0] == '\0') {
      std::abort();
    }
    return 0;
  }
  const bool accepted = tuning->depth >= 1 && tuning->depth <= 1024 &&
                        std::has_single_bit(tuning->piece) && tuning->piece >= 4096 &&
                        tuning->piece <= std::uint64_t{64} << 20 && tuning->when > 0;
  const auto again = tiermem::parse_tuning(tiermem::tuning_text(*tuning));
  if (!accepted || !again.ok() || !(*again == *tuning)) {
    std::abort();
  }
  return 0;
}
