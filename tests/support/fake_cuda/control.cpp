// The test's side of the fake driver.
#include "support/fake_cuda/control.hpp"

#include <algorithm>
#include <string>

#include "support/fake_cuda/environment.hpp"
#include "support/fake_cuda/world.hpp"

namespace tiermem::test {
namespace {

class Control final : public FakeCuda {
 public:
  void reset() override { world().reset(); }

  void set_devices(int count) override {
    const std::lock_guard lock(all_.mutex);
    all_.settings.devices = std::clamp(count, 0, kMostDevices);
  }
  void set_driver_version(int version) override {
    const std::lock_guard lock(all_.mutex);
    all_.settings.driver_version = version;
  }
  void set_capacity(std::uint64_t bytes) override {
    const std::lock_guard lock(all_.mutex);
    for (DeviceBooks& each : all_.memory->books) {
      each.capacity = bytes;
    }
  }
  void set_taken(int device, std::uint64_t bytes) override {
    const std::lock_guard lock(all_.mutex);
    all_.books(device).taken = bytes;
  }
  void set_granularity(std::uint64_t bytes) override {
    const std::lock_guard lock(all_.mutex);
    all_.memory->granularity = bytes;
  }
  void set_lockable(std::uint64_t bytes) override {
    const std::lock_guard lock(all_.mutex);
    all_.host->lockable = bytes;
  }
  void set_attribute(int attribute, int value) override {
    const std::lock_guard lock(all_.mutex);
    all_.settings.attributes[attribute] = value;
  }
  void set_peers(bool access) override {
    const std::lock_guard lock(all_.mutex);
    all_.settings.peers = access;
  }
  void hide(std::string_view symbol) override {
    const std::lock_guard lock(all_.mutex);
    all_.settings.hidden.emplace(symbol);
  }

  void slow_call(std::string_view call, std::chrono::microseconds each) override {
    const std::lock_guard lock(all_.mutex);
    all_.faults.slow(call, each);
  }
  void slow_copies(double ns_per_byte, std::chrono::microseconds least) override {
    const std::lock_guard lock(all_.mutex);
    all_.settings.copy_ns_per_byte = ns_per_byte;
    all_.settings.copy_least = least;
  }
  void hold_work(bool held) override {
    const std::lock_guard lock(all_.mutex);
    all_.settings.held = held;
    all_.changed.notify_all();
  }

  void fail_nth(std::string_view call, std::uint64_t nth, cuda::Result result,
                std::uint64_t times) override {
    const std::lock_guard lock(all_.mutex);
    all_.faults.fail_nth(call, nth, result, times);
  }
  void forgive() override {
    const std::lock_guard lock(all_.mutex);
    all_.faults.forgive();
  }
  void lose_device(int device) override {
    const std::lock_guard lock(all_.mutex);
    all_.device(device).lost = true;
    if (ContextState* const context = all_.device(device).primary; context != nullptr) {
      // Also a context that an illegal access has broken.
      context->failure = cuda::kSuccess;
      fail_context(all_, *context, cuda::kDeviceUnavailable);
    }
  }

  std::uint64_t calls(std::string_view call) const override {
    const std::lock_guard lock(all_.mutex);
    return all_.faults.calls(call);
  }
  FakeCudaLive live() const override {
    const std::lock_guard lock(all_.mutex);
    FakeCudaLive live;
    for (std::size_t i = 0; i < all_.devices.size(); ++i) {
      live.contexts += static_cast<std::uint64_t>(all_.devices[i].retained);
      live.device_bytes += *all_.memory->books[i].used;
    }
    live.streams = all_.streams.size();
    live.events = all_.events.size();
    live.handles = all_.memory->handles();
    live.reservations = all_.memory->reservations();
    live.mappings = all_.memory->mappings();
    live.allocations = all_.memory->allocations() + all_.managed.size();
    live.modules = all_.modules.size();
    live.host_allocations = all_.host->allocations();
    live.registrations = all_.host->registrations();
    live.locked_bytes = all_.host->locked_bytes();
    return live;
  }
  std::uint64_t copied_bytes() const override {
    const std::lock_guard lock(all_.mutex);
    return all_.copied_bytes;
  }
  std::uint64_t pageable_bytes() const override {
    const std::lock_guard lock(all_.mutex);
    return all_.pageable_bytes;
  }
  std::uint64_t peer_bytes() const override {
    const std::lock_guard lock(all_.mutex);
    return all_.peer_bytes;
  }

 private:
  World& all_ = world();
};

FakeCuda& control() {
  static Control only;  // It only refers to the world, so it needs no destructor.
  return only;
}

// The environment applies from the start; reset() is for tests that configure the driver
// themselves.
[[gnu::constructor]] void at_load() {
  follow_environment(control());
}

}  // namespace

}  // namespace tiermem::test

extern "C" __attribute__((visibility("default"))) tiermem::test::FakeCuda* tiermem_fake_cuda();
extern "C" __attribute__((visibility("default"))) std::uint64_t tiermem_fake_cuda_calls();

extern "C" tiermem::test::FakeCuda* tiermem_fake_cuda() {
  return &tiermem::test::control();
}

// The number of all calls, for code without access to control.hpp: `tiermem bench gpu` recognises
// the fake by it.
extern "C" std::uint64_t tiermem_fake_cuda_calls() {
  tiermem::test::World& all = tiermem::test::world();
  const std::lock_guard lock(all.mutex);
  return all.faults.all_calls();
}
