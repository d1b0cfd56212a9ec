// A mix of malloc and free of small blocks, as programs make it; run in a process of its own by
// `tiermem bench-malloc`, so that a malloc can be put under it by LD_PRELOAD.
#pragma once

namespace tiermem::bench {

/// Millions of malloc and free pairs a second, all threads together; 0 when a block was not as it
/// was left.
double malloc_mix(unsigned threads);

}  // namespace tiermem::bench
