// A mix of malloc and free of small blocks, as in programs. `tiermem bench-malloc` runs it in a
// separate process, so that LD_PRELOAD can replace malloc.
#pragma once

namespace tiermem::bench {

/// Millions of malloc and free pairs per second, over all threads; 0 if a block has changed.
double malloc_mix(unsigned threads);

}  // namespace tiermem::bench
