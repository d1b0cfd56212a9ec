// The CUDA driver, found at run time: a table of its functions, and the one place that says what
// its results mean. Building and running need no CUDA; an absent, old or broken driver is a Status
// that says so. Never unloaded: the driver has threads of its own.
//
// Threads: a table is constant once loaded, and any thread may call what is in it; which thread may
// call what when is the caller's business (cuda_lane.hpp).
#pragma once

#include <string>

#include "base/arena.hpp"
#include "os/cuda_types.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

/// What cuDriverGetVersion says: 12080 is 12.8.
struct CudaVersion {
  int number = 0;
  int major() const { return number / 1000; }
  int minor() const { return number % 1000 / 10; }
};

class CudaDriver {
 public:
  static constexpr const char* kUsualLibrary = "libcuda.so.1";
  static constexpr CudaVersion kOldest{12000};

  /// Loads `library` and looks all functions up; does not initialise the driver. unavailable: there
  /// is none, it is older than kOldest, or lacks a function; the message names which.
  static Result<CudaDriver> load(const char* library);
  /// cuInit and the number of devices: 0.1 s and more on a real one. unavailable with the driver's
  /// reason, also when there is no device.
  Result<unsigned> start() const;

  CudaVersion version() const { return version_; }

#define TIERMEM_CUDA_MEMBER(required, since, name, parameters) \
  cuda::Result(*name) parameters = nullptr;
  TIERMEM_CUDA_CALLS(TIERMEM_CUDA_MEMBER)
#undef TIERMEM_CUDA_MEMBER

  /// "CUDA_ERROR_OUT_OF_MEMORY (2)".
  String name_of(cuda::Result result) const;
  /// ok for kSuccess; else a Status with the driver's number: no_capacity for memory, unavailable
  /// where there is no device to talk to (any more), io_error for what a kernel or the hardware
  /// broke. `doing`: "gpu 0: cuMemCreate of 2 MiB".
  Status check(cuda::Result result, std::string_view doing) const;

 private:
  CudaVersion version_;
};

/// What can be asked of a device without making a context on it.
struct CudaDeviceFacts {
  unsigned index = 0;
  std::string name;
  std::string bus_id;
  int capability_major = 0, capability_minor = 0;
  bool virtual_memory = false;
  std::uint64_t total = 0;        ///< Bytes of memory.
  std::uint64_t granularity = 0;  ///< Of cuMemCreate; 0 without virtual memory management.
};

/// [any thread] After CudaDriver::start().
Result<CudaDeviceFacts> probe_device(const CudaDriver& driver, unsigned index);

/// After such a result nothing can be done with the device's context any more.
bool ends_context(cuda::Result result);

}  // namespace tiermem
