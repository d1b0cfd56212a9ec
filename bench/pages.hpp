// Touches of 4 KiB pages in random order, by several threads. The pages are uniform, by Zipf's law,
// or in steps of equal width; read-only, or with a write at each second touch. Each page can be
// checked by itself, and all writes are verified at the end. Private to one side (workload.hpp).
#pragma once

#include <cstdint>
#include <memory>

#include "bench/workload.hpp"

namespace tiermem::bench {

struct PageTouches {
  std::uint64_t pages = 0;    ///< A power of two.
  std::uint64_t touches = 0;  ///< Touches of one run, over all threads.
  std::uint64_t settle = 0;   ///< Touches of the first run, which is not measured; 0: as others.
  unsigned threads = 1;       ///< More than one: read-only.
  double zipf = 0;            ///< The exponent, below 1; 0: uniform.
  bool writes = false;
  bool compressible = false;  ///< Uses the bytes of fill_compressible().
  /// Pages from one touch to the next, starting where the last run ended; 0: random. One thread.
  std::uint64_t step = 0;
};

/// Touches per second.
std::unique_ptr<Workload> make_page_workload(const PageTouches& touches);

}  // namespace tiermem::bench
