// How a test steers the fake CUDA driver: a libcuda.so.1 without a GPU, whose device memory the
// host cannot touch, whose streams are threads, and which fails when it is told to. A test loads
// the library, looks up kFakeCudaSymbol and calls what it gets; a whole program is steered by the
// environment variable TIERMEM_FAKE_CUDA, words joined with ';' (environment.cpp).
//
// What it follows is said in docs/decisions/gpu-facts.md and in the driver API's reference. It has
// no kernels but those of ours that kernels.hpp names, of managed memory what kernels.hpp works on,
// no graphs that run, no peer access rules, of the calls for per-thread default streams those on
// memory only, and does not hold the pages that are registered with it.
//
// Threads: any, at any time, except reset(). Names of calls are those without a suffix.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string_view>

#include "os/cuda_types.hpp"

namespace tiermem::test {

inline constexpr const char* kFakeCudaSymbol = "tiermem_fake_cuda";

/// What exists now, and the program would have to give back.
struct FakeCudaLive {
  std::uint64_t contexts = 0;  ///< Primary contexts retained and not yet released, counted so.
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t handles = 0;  ///< Of cuMemCreate.
  std::uint64_t reservations = 0;
  std::uint64_t mappings = 0;
  std::uint64_t allocations = 0;   ///< Of cuMemAlloc and cuMemAllocManaged.
  std::uint64_t device_bytes = 0;  ///< Of handles, of allocations, and of what is only mapped.
  std::uint64_t host_allocations = 0;
  std::uint64_t modules = 0;
  std::uint64_t registrations = 0;
  std::uint64_t locked_bytes = 0;  ///< Whole pages of registrations and host allocations.

  bool operator==(const FakeCudaLive&) const = default;
};

class FakeCuda {
 public:
  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();
  /// In place of a call's name: a copy or a set, when its stream comes to it.
  static constexpr const char* kWork = "work";

  /// As just loaded: default machine, not initialised, no faults, counters 0, and nothing live.
  /// Work that has not begun never runs; what runs is waited for. No other thread may be in a call
  /// that it cannot lose.
  virtual void reset() = 0;

  // The machine. Before cuInit, where it should look as on a real one.
  virtual void set_devices(int count) = 0;                      ///< Default 1, at most 16.
  virtual void set_driver_version(int version) = 0;             ///< Default 12080.
  virtual void set_capacity(std::uint64_t bytes) = 0;           ///< Of each; default 256 MiB.
  virtual void set_taken(int device, std::uint64_t bytes) = 0;  ///< By other processes.
  virtual void set_granularity(std::uint64_t bytes) = 0;        ///< Default 2 MiB.
  virtual void set_lockable(std::uint64_t bytes) = 0;           ///< Host memory; default no limit.
  virtual void set_attribute(int attribute, int value) = 0;     ///< Of each device.
  virtual void set_peers(bool access) = 0;  ///< Devices address each other's memory; default yes.
  virtual void hide(std::string_view symbol) = 0;  ///< From cuGetProcAddress.

  // Time.
  virtual void slow_call(std::string_view call, std::chrono::microseconds each) = 0;
  /// Copies and sets take so long in their stream.
  virtual void slow_copies(double ns_per_byte, std::chrono::microseconds least) = 0;
  /// While held, no stream begins anything.
  virtual void hold_work(bool held) = 0;

  // Faults.
  /// The `nth` next call (from 1) of `call`, and the `times - 1` after it, do nothing and return
  /// `result`. kWork fails in the stream and breaks the context, as a bad kernel does.
  virtual void fail_nth(std::string_view call, std::uint64_t nth, cuda::Result result,
                        std::uint64_t times = 1) = 0;
  virtual void forgive() = 0;  ///< Forgets what fail_nth() ordered.
  /// All calls with a context of it give kDeviceUnavailable, work under way ends, until reset().
  virtual void lose_device(int device) = 0;

  // What happened.
  virtual std::uint64_t calls(std::string_view call) const = 0;  ///< Also those made to fail.
  virtual FakeCudaLive live() const = 0;
  /// Of copies that were done: bytes, and how many of these from or to memory not page-locked.
  virtual std::uint64_t copied_bytes() const = 0;
  virtual std::uint64_t pageable_bytes() const = 0;
  virtual std::uint64_t peer_bytes() const = 0;  ///< From one device to another.

 protected:
  FakeCuda() = default;
  ~FakeCuda() = default;  // Nobody owns it.
};

using FakeCudaFunction = FakeCuda* (*)();

}  // namespace tiermem::test
