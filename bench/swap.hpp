// A swap file for the duration of a benchmark, on the measured disk, with a higher priority than
// the machine's own swap. Also zswap before it: compressed pages in memory. Both are removed
// afterwards, even if the benchmark is killed. One thread; root only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bench/keeper.hpp"
#include "tiermem/status.hpp"

namespace tiermem::bench {

class Swap {
 public:
  /// Creates `bytes` of swap in `directory`. Errors: unavailable, naming the missing requirement.
  /// The destructor waits until it is off: pages of live processes are read back.
  static Result<std::unique_ptr<Swap>> on(const std::string& directory, std::uint64_t bytes);

 private:
  explicit Swap(std::unique_ptr<Keeper> keeper) : keeper_(std::move(keeper)) {}
  const std::unique_ptr<Keeper> keeper_;
};

class Zswap {
 public:
  static constexpr const char* kParameters = "/sys/module/zswap/parameters";

  /// Switches it on, whatever its state, with its current compressor. Errors: unavailable if the
  /// kernel lacks it or refuses.
  static Result<std::unique_ptr<Zswap>> on(const std::string& parameters = kParameters);
  const std::string& compressor() const { return compressor_; }

 private:
  Zswap(std::unique_ptr<Keeper> keeper, std::string compressor)
      : keeper_(std::move(keeper)), compressor_(std::move(compressor)) {}
  const std::unique_ptr<Keeper> keeper_;  ///< Restores the setting.
  const std::string compressor_;
};

}  // namespace tiermem::bench
