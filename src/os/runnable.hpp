// How many threads of the machine want a processor now. Allocates nothing.
#pragma once

namespace tiermem {

/// The number of threads that run or wait for a processor, and the number of processors.
struct Runnable {
  unsigned threads = 0;
  unsigned processors = 0;
  /// Whether some thread waits for a processor. True without /proc.
  bool is_crowded() const { return threads == 0 || threads > processors; }
};

/// Reads /proc/loadavg (proc_loadavg(5)); the number of processors is that of the first call. All
/// zeros where /proc is not there.
Runnable runnable_now();

}  // namespace tiermem
