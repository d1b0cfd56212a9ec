// Touches of 4 KiB pages in chance order, by several threads, each page uniformly or by Zipf's law,
// or in steps of equal width; read only, or each second touch writing. Each page tells by itself
// whether it is right, and all writes are found again at the end. One side's own (workload.hpp).
#pragma once

#include <cstdint>
#include <memory>

#include "bench/workload.hpp"

namespace tiermem::bench {

struct PageTouches {
  std::uint64_t pages = 0;    ///< A power of two.
  std::uint64_t touches = 0;  ///< In one run, all threads together.
  unsigned threads = 1;       ///< More than one: read only.
  double zipf = 0;            ///< The exponent, below 1; 0: all pages alike.
  bool writes = false;
  bool compressible = false;  ///< Its bytes: fill_compressible().
  /// Pages from one touch to the next, round and round where the last run ended; 0: by chance. One
  /// thread.
  std::uint64_t step = 0;
};

/// Touches a second.
std::unique_ptr<Workload> make_page_workload(const PageTouches& touches);

}  // namespace tiermem::bench
