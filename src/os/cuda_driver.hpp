// The CUDA driver, loaded at run time: a table of its functions, and the single translation of its
// results. Neither the build nor the start of a program needs CUDA; an absent, old or broken driver
// results in a Status that says so. The driver is never unloaded, because it has threads of its
// own.
//
// Threads: a table is constant once loaded, and any thread may call its functions. The caller
// decides which thread makes which call (cuda_lane.hpp).
#pragma once

#include <string>

#include "base/arena.hpp"
#include "os/cuda_types.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

/// A version as cuDriverGetVersion encodes it: 12080 is 12.8.
struct CudaVersion {
  int number = 0;
  int major() const { return number / 1000; }
  int minor() const { return number % 1000 / 10; }
};

class CudaDriver {
 public:
  static constexpr const char* kUsualLibrary = "libcuda.so.1";
  static constexpr CudaVersion kOldest{12000};

  /// Loads `library` and looks up all functions; does not initialise the driver. unavailable: there
  /// is no driver, it is older than kOldest, or it lacks a function; the message names which.
  static Result<CudaDriver> load(const char* library);
  /// Calls cuInit and returns the number of devices. Takes at least 0.1 s with a real driver.
  /// unavailable, with the driver's reason, also if there is no device.
  Result<unsigned> start() const;

  CudaVersion version() const { return version_; }

#define TIERMEM_CUDA_MEMBER(required, since, name, parameters) \
  cuda::Result(*name) parameters = nullptr;
  TIERMEM_CUDA_CALLS(TIERMEM_CUDA_MEMBER)
#undef TIERMEM_CUDA_MEMBER

  /// Returns the name of a result: "CUDA_ERROR_OUT_OF_MEMORY (2)".
  String name_of(cuda::Result result) const;
  /// Converts a result: ok for kSuccess, else a Status with the driver's number. no_capacity:
  /// memory. unavailable: there is no device to talk to, or not any more. io_error: a kernel or the
  /// hardware failed.
  ///
  /// - `doing`: the operation, such as "gpu 0: cuMemCreate of 2 MiB".
  Status check(cuda::Result result, std::string_view doing) const;

 private:
  CudaVersion version_;
};

/// Facts about a device that need no context on it.
struct CudaDeviceFacts {
  unsigned index = 0;
  std::string name;
  std::string bus_id;
  int capability_major = 0, capability_minor = 0;
  bool virtual_memory = false;
  std::uint64_t total = 0;  ///< Device memory in bytes.
  /// Granularity of cuMemCreate; 0 without virtual memory management.
  std::uint64_t granularity = 0;
};

/// [any thread] Call after CudaDriver::start().
Result<CudaDeviceFacts> probe_device(const CudaDriver& driver, unsigned index);

/// Returns whether this result means that the device's context is unusable from now on.
bool ends_context(cuda::Result result);

}  // namespace tiermem
