// The clocks of the benchmarks. Any thread.
#pragma once

#include <sys/resource.h>
#include <time.h>

namespace tiermem::bench {

/// CLOCK_MONOTONIC in seconds.
inline double now_seconds() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// User and system time of the process, in seconds, without the kernel's threads.
inline double cpu_seconds() {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace tiermem::bench
