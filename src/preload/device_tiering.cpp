// unknown -> off, or -> asked -> starting -> on, or -> stopped; in a child, starting or on ->
// child. The context is never destroyed, because the program's last destructor may still free
// blocks of it.
#include "preload/device_tiering.hpp"

#include <stdlib.h>

#include <array>
#include <atomic>
#include <bitset>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "base/arena.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "preload/tiering.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/device_memory.hpp"
#include "runtime/settings.hpp"

namespace tiermem::preload {
namespace {

enum class Stage : std::uint8_t { unknown, off, asked, starting, on, stopped, child };

constexpr std::size_t kMostDevices = 64;
/// Share of the memory that is free when the first block is made. A paused set needs DRAM, and the
/// program's own memory grows as well.
constexpr const char* kUsualDram = "50%";

struct DeviceSettings {
  std::bitset<kMostDevices> devices;
  std::size_t threshold = std::size_t{2} << 20;  // The smallest unit that a device maps.
};

constinit std::atomic<Stage> g_stage{Stage::unknown};
constinit std::optional<DeviceTier> g_tier;  // Written before the stage becomes on.
constinit char g_why[256] = {};              // Written before the stage becomes stopped.
// Any thread may write an element. All threads write the same value.
constinit std::array<std::atomic<cuda::Context>, kMostDevices> g_primary{};

const char* variable(const char* name, const char* fallback) {
  const char* const text = ::secure_getenv(name);
  return text != nullptr && *text != '\0' ? text : fallback;
}

// Ignores items that are not numbers; creating the context reports them.
std::bitset<kMostDevices> named_devices(std::string_view list) {
  std::bitset<kMostDevices> devices;
  const Option* const option = find_option("gpu");
  for (const std::string& item : make_setting(*option, list, option->env).items) {
    std::size_t index = kMostDevices;
    std::from_chars(item.data(), item.data() + item.size(), index);
    if (index < kMostDevices) {
      devices.set(index);
    }
  }
  return devices;
}

const DeviceSettings& device_settings() {
  static const DeviceSettings read = [] {
    const ArenaScope inside;
    DeviceSettings settings;
    settings.devices = named_devices(variable("TIERMEM_GPU", ""));
    read_size("TIERMEM_GPU_THRESHOLD", settings.threshold);
    return settings;
  }();
  return read;
}

void stop(const char* why) {
  tell(LogLevel::error, fmt::format("no device memory of this process is tiered: {}", why));
  set_text(g_why, why);
  g_stage.store(Stage::stopped, std::memory_order_release);
}

// The wait is bounded: the starting thread needs the loader, and a waiting thread may hold its
// lock.
void await_start() {
  constexpr int kMostMs = 5000;
  for (int ms = 0; ms < kMostMs && g_stage.load(std::memory_order_acquire) == Stage::starting;
       ++ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The other context manages the host's memory. This one needs neither faults nor the threads that
// serve them.
void start() {
  const ArenaScope inside;
  Stage asked = Stage::asked;
  if (!g_stage.compare_exchange_strong(asked, Stage::starting)) {
    await_start();
    return;
  }
  const std::string spec =
      fmt::format("gpu={}; dram={}; pmem=off; fork=end; userfault=off; mechanism=auto",
                  variable("TIERMEM_GPU", "off"), variable("TIERMEM_GPU_DRAM", kUsualDram));
  auto made = Context::create(spec, {.name = "devices"});
  if (!made.ok()) {
    stop(made.message());
    return;
  }
  Context& context = *made->release();
  g_tier.emplace(DeviceTier{context, context.impl().device_memory});
  g_stage.store(Stage::on, std::memory_order_release);
}

// Asks for the primary context without creating it: an unused one would cost half a gigabyte.
bool is_primary(const cuda::Symbols& driver, cuda::Context context, cuda::Device device) {
  std::atomic<cuda::Context>& known = g_primary[static_cast<std::size_t>(device)];
  cuda::Context primary = known.load(std::memory_order_relaxed);
  if (primary == nullptr) {
    unsigned flags = 0;
    int active = 0;
    if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != cuda::kSuccess ||
        active == 0 || driver.cuDevicePrimaryCtxRetain(&primary, device) != cuda::kSuccess) {
      return false;
    }
    known.store(primary, std::memory_order_relaxed);
  }
  return context == primary;
}

// Runs in the calling thread and restores its current context.
cuda::Result synchronize(const cuda::Symbols& driver, cuda::Context context) {
  cuda::Context current = nullptr;
  (void)driver.cuCtxGetCurrent(&current);
  if (current == context) {
    return driver.cuCtxSynchronize();
  }
  cuda::Result result = driver.cuCtxPushCurrent_v2(context);
  if (result == cuda::kSuccess) {
    result = driver.cuCtxSynchronize();
    (void)driver.cuCtxPopCurrent_v2(&current);
  }
  return result;
}

bool has_all(const cuda::Symbols& driver) {
  bool all = true;
#define TIERMEM_CUDA_THERE(abi_name, parameters) all = all && driver.abi_name != nullptr;
  TIERMEM_CUDA_ASKED(TIERMEM_CUDA_THERE)
#undef TIERMEM_CUDA_THERE
  return all;
}

}  // namespace

bool device_tiering_asked() {
  Stage stage = g_stage.load(std::memory_order_relaxed);
  if (stage == Stage::unknown) {
    // All threads compute the same value, also before any of our constructors has run.
    const std::string_view named = variable("TIERMEM_GPU", "off");
    const Stage first = named == "off" ? Stage::off : Stage::asked;
    stage = g_stage.compare_exchange_strong(stage, first) ? first : stage;
  }
  return stage != Stage::off;
}

const DeviceTier* device_tier() {
  return g_stage.load(std::memory_order_acquire) == Stage::on ? &*g_tier : nullptr;
}

const DeviceTier* tier_for(const cuda::Symbols& driver, std::uint64_t bytes, Place& gpu) {
  if (!device_tiering_asked() || inside_tiermem() || bytes < device_settings().threshold) {
    return nullptr;
  }
  if (why_no_device_tier() != nullptr || !has_all(driver)) {
    return nullptr;
  }
  const cuda::Device device = current_device(driver);
  cuda::Context context = nullptr;
  if (!is_tiered(device) || driver.cuCtxGetCurrent(&context) != cuda::kSuccess ||
      !is_primary(driver, context, device)) {
    return nullptr;
  }
  if (g_stage.load(std::memory_order_acquire) != Stage::on) {
    start();
  }
  gpu = {Kind::gpu, static_cast<std::uint16_t>(device)};
  return device_tier();
}

bool is_tiered(cuda::Device device) {
  return why_no_device_tier() == nullptr && device >= 0 &&
         static_cast<std::size_t>(device) < kMostDevices &&
         device_settings().devices[static_cast<std::size_t>(device)];
}

bool has_one_device() {
  return device_settings().devices.count() == 1;
}

cuda::Device current_device(const cuda::Symbols& driver) {
  cuda::Device device = -1;
  const bool has_one =
      driver.cuCtxGetDevice != nullptr && driver.cuCtxGetDevice(&device) == cuda::kSuccess;
  return has_one ? device : -1;
}

cuda::Result synchronize_devices(const cuda::Symbols& driver) {
  cuda::Result first = cuda::kSuccess;
  for (const std::atomic<cuda::Context>& each : g_primary) {
    const cuda::Context context = each.load(std::memory_order_relaxed);
    if (context != nullptr) {
      const cuda::Result result = synchronize(driver, context);
      first = first == cuda::kSuccess ? result : first;
    }
  }
  return first;
}

const char* why_no_device_tier() {
  (void)device_tiering_asked();  // Decides the stage if no call has asked before.
  switch (g_stage.load(std::memory_order_acquire)) {
    case Stage::asked:
    case Stage::starting:
    case Stage::on:
      return nullptr;
    case Stage::stopped:
      return g_why;
    case Stage::child:
      return "this is a child of fork, in which CUDA does not work";
    default:
      return "no GPU was named; start the program with tiermem run --gpu 0";
  }
}

// If the parent has not started, the child may start: a process that starts workers often does not
// use CUDA itself.
void follow_fork_with_devices() {
  const Stage stage = g_stage.load(std::memory_order_relaxed);
  if (stage == Stage::starting || stage == Stage::on) {
    g_stage.store(Stage::child, std::memory_order_relaxed);
  }
}

}  // namespace tiermem::preload
