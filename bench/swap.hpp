// A swap file for as long as a benchmark needs one, on the disk that is measured, before whatever
// swap the machine has; and zswap before it, compressed pages in memory. Both are taken away again,
// also when the benchmark is killed. One thread; root only.
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
  /// `bytes` of swap in `directory`. Errors: unavailable, naming what is missing. The destructor
  /// waits until it is off: pages of processes that have not ended are read back.
  static Result<std::unique_ptr<Swap>> on(const std::string& directory, std::uint64_t bytes);

 private:
  explicit Swap(std::unique_ptr<Keeper> keeper) : keeper_(std::move(keeper)) {}
  const std::unique_ptr<Keeper> keeper_;
};

class Zswap {
 public:
  static constexpr const char* kParameters = "/sys/module/zswap/parameters";

  /// Switched on, whatever it was before, with the compressor that it has. Errors: unavailable,
  /// where the kernel has none or does not let us.
  static Result<std::unique_ptr<Zswap>> on(const std::string& parameters = kParameters);
  const std::string& compressor() const { return compressor_; }

 private:
  Zswap(std::unique_ptr<Keeper> keeper, std::string compressor)
      : keeper_(std::move(keeper)), compressor_(std::move(compressor)) {}
  const std::unique_ptr<Keeper> keeper_;  ///< Puts back what it was.
  const std::string compressor_;
};

}  // namespace tiermem::bench
