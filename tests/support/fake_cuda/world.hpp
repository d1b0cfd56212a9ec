// All state of the fake driver. There is one instance, created at the first use and never freed:
// the streams' threads are detached and may be working while the process ends.
//
// Threads: any thread that holds `mutex`. No callback, copy or sleep happens under it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/cuda_types.hpp"
#include "support/fake_cuda/device_memory.hpp"
#include "support/fake_cuda/faults.hpp"
#include "support/fake_cuda/host_memory.hpp"
#include "support/fake_cuda/work.hpp"

namespace tiermem::test {

/// Values that a test sets and reset() restores, except those in DeviceMemory and HostMemory.
struct Settings {
  int devices = 1;
  int driver_version = 12080;
  double copy_ns_per_byte = 0;
  std::chrono::microseconds copy_least{0};
  bool held = false;
  bool peers = true;
  std::set<std::string, std::less<>> hidden;
  std::map<int, int> attributes;
};

struct DeviceState {
  int retained = 0;
  ContextState* primary = nullptr;  ///< Null if it is not retained.
  bool lost = false;
};

struct World {
  /// Guards everything that calls and streams' threads share: all of the following.
  std::mutex mutex;
  std::condition_variable changed;  ///< A mark is done, a context failed, or work is released.

  // Read without the lock, in a forked child.
  std::atomic<bool> initialized{false};
  std::atomic<bool> forked{false};    ///< This is a child of a process that had called cuInit.
  std::atomic<std::uint64_t> age{0};  ///< Number of reset() calls.

  Settings settings;
  Faults faults;
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<HostMemory> host;
  std::array<DeviceState, kMostDevices> devices;
  std::map<cuda::Context, ContextState*> contexts;  ///< Including those destroyed since reset().
  std::map<cuda::Stream, StreamPointer> streams;    ///< Without the legacy streams.
  /// Threads' own streams.
  std::map<std::pair<ContextState*, std::thread::id>, cuda::Stream> own_streams;
  std::map<cuda::Event, EventState> events;
  std::set<std::uintptr_t> graphs;
  std::map<cuda::Module, std::map<std::string, cuda::Function>> modules;
  std::map<cuda::Function, std::string> functions;  ///< From modules: the kernel's name.
  /// The size of each; the bytes are the host's.
  std::map<cuda::DevicePointer, std::size_t> managed;
  std::uint64_t copied_bytes = 0, pageable_bytes = 0, peer_bytes = 0;

  std::vector<std::unique_ptr<ContextState>> all_contexts;
  /// A handle is a number that is never reused, so a stale one is always detected.
  std::uintptr_t next_handle = 0x1000;

  World();
  void reset();

  bool has_device(int device) const { return device >= 0 && device < settings.devices; }
  DeviceState& device(int index) { return devices[static_cast<std::size_t>(index)]; }
  DeviceBooks& books(int index) { return memory->books[static_cast<std::size_t>(index)]; }

  template <typename Handle>
  Handle new_handle() {
    return reinterpret_cast<Handle>(next_handle += 16);
  }
  /// Managed memory that contains the whole range; null: there is none.
  std::byte* managed_at(cuda::DevicePointer at, std::uint64_t bytes) const;
  bool free_managed(cuda::DevicePointer at);

  ContextState& make_context(int device);
  void destroy_context(ContextState& context);
  /// The calling thread's default stream.
  cuda::Stream own_stream(ContextState& context);

 private:
  void set_defaults();
};

World& world();

}  // namespace tiermem::test
