// A substitute for the preload library in the tests of `tiermem run`: every process under it joins
// the run, wants memory, and publishes the figures in FAKE_WAITED_NS and FAKE_TEXT.
#include <errno.h>

#include <cstdlib>

#include "preload/run_page.hpp"

namespace {

__attribute__((constructor)) void join_the_run() {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  static tiermem::RunSeat seat = tiermem::RunSeat::take(std::getenv("TIERMEM_RUN"));
  if (!seat.ok() || !seat.join(program_invocation_short_name)) {
    return;
  }
  seat.want(16 * kMiB);
  const char* waited = std::getenv("FAKE_WAITED_NS");
  seat.publish({.promoted = 3 * kMiB,
                .demoted = 2 * kMiB,
                .faults = 1,
                .waited_ns = waited != nullptr ? std::strtoull(waited, nullptr, 10) : 0,
                .resident = 8 * kMiB,
                .tiered = 12 * kMiB});
  if (const char* text = std::getenv("FAKE_TEXT"); text != nullptr) {
    seat.say(text);
  }
}

}  // namespace
