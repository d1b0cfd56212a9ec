// The test's control of the fake CUDA driver: a libcuda.so.1 without a GPU. The host cannot touch
// its device memory, its streams are threads, and it fails on command. A test loads the library,
// looks up kFakeCudaSymbol and calls the result. For a whole program, the environment variable
// TIERMEM_FAKE_CUDA has commands joined with ';' (environment.cpp).
//
// It follows docs/decisions/gpu-facts.md and the driver API's reference. It lacks kernels other
// than those in kernels.hpp, managed memory beyond what these need, graphs that run, and peer
// access rules. It has the calls for per-thread default streams on memory only. It does not hold
// registered pages.
//
// Threads: any, at any time, except reset(). Names of calls have no suffix.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string_view>

#include "os/cuda_types.hpp"

namespace tiermem::test {

inline constexpr const char* kFakeCudaSymbol = "tiermem_fake_cuda";

/// Objects that exist now and that the program should release.
struct FakeCudaLive {
  std::uint64_t contexts = 0;  ///< Retains of primary contexts that are not yet released.
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t handles = 0;  ///< From cuMemCreate.
  std::uint64_t reservations = 0;
  std::uint64_t mappings = 0;
  std::uint64_t allocations = 0;  ///< From cuMemAlloc and cuMemAllocManaged.
  /// Bytes of handles, of allocations, and of memory that is only mapped.
  std::uint64_t device_bytes = 0;
  std::uint64_t host_allocations = 0;
  std::uint64_t modules = 0;
  std::uint64_t registrations = 0;
  std::uint64_t locked_bytes = 0;  ///< Whole pages of registrations and host allocations.

  bool operator==(const FakeCudaLive&) const = default;
};

class FakeCuda {
 public:
  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();
  /// Replaces a call's name: a copy or a set, when its stream executes it.
  static constexpr const char* kWork = "work";

  /// Restores the state after loading: default machine, not initialised, no faults, counters 0, no
  /// live objects. Work that has not begun never runs; running work is waited for. No other thread
  /// may be in a call that it cannot lose.
  virtual void reset() = 0;

  // The machine. Set it before cuInit to look like a real one.
  virtual void set_devices(int count) = 0;                      ///< Default 1, at most 16.
  virtual void set_driver_version(int version) = 0;             ///< Default 12080.
  virtual void set_capacity(std::uint64_t bytes) = 0;           ///< Per device; default 256 MiB.
  virtual void set_taken(int device, std::uint64_t bytes) = 0;  ///< By other processes.
  virtual void set_granularity(std::uint64_t bytes) = 0;        ///< Default 2 MiB.
  virtual void set_lockable(std::uint64_t bytes) = 0;           ///< Host memory; default no limit.
  virtual void set_attribute(int attribute, int value) = 0;     ///< For each device.
  virtual void set_peers(bool access) = 0;  ///< Devices address each other's memory; default yes.
  virtual void hide(std::string_view symbol) = 0;  ///< From cuGetProcAddress.

  // Time.
  virtual void slow_call(std::string_view call, std::chrono::microseconds each) = 0;
  /// Sets the time that copies and sets take in their stream.
  virtual void slow_copies(double ns_per_byte, std::chrono::microseconds least) = 0;
  /// While held, streams begin no work.
  virtual void hold_work(bool held) = 0;

  // Faults.
  /// The `nth` next call (from 1) of `call`, and the `times - 1` after it, do nothing and return
  /// `result`. kWork fails in the stream and breaks the context, as a bad kernel does.
  virtual void fail_nth(std::string_view call, std::uint64_t nth, cuda::Result result,
                        std::uint64_t times = 1) = 0;
  virtual void forgive() = 0;  ///< Cancels the orders of fail_nth().
  /// Until reset(), all calls with a context of the device return kDeviceUnavailable; work under
  /// way ends.
  virtual void lose_device(int device) = 0;

  // Records.
  virtual std::uint64_t calls(std::string_view call) const = 0;  ///< Including failed ones.
  virtual FakeCudaLive live() const = 0;
  /// Bytes of completed copies, and how many of these were from or to memory that is not
  /// page-locked.
  virtual std::uint64_t copied_bytes() const = 0;
  virtual std::uint64_t pageable_bytes() const = 0;
  virtual std::uint64_t peer_bytes() const = 0;  ///< From one device to another.

 protected:
  FakeCuda() = default;
  ~FakeCuda() = default;  // It is never deleted.
};

using FakeCudaFunction = FakeCuda* (*)();

}  // namespace tiermem::test
