// Loads the driver's library, and interprets its results.
#include "os/cuda_driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace tiermem {
namespace {

// From CUDA 12.0: the name without a suffix, the version of the prototype, and the reason if there
// is no function.
using GetProcAddress = cuda::Result (*)(const char* name, void** function, int version,
                                        std::uint64_t flags, int* why);
using GetVersion = cuda::Result (*)(int* version);

template <typename F>
F symbol(void* library, const char* name) {
  return reinterpret_cast<F>(dlsym(library, name));
}

// Returns the loader's message without the library name, which our message adds itself.
std::string why_not_loaded(const char* library) {
  const char* const error = dlerror();
  std::string text = error != nullptr ? error : "unknown";
  const std::string prefix = std::string(library) + ": ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

constexpr std::array kNoDeviceToTalkTo = {cuda::kNotInitialized,     cuda::kDeinitialized,
                                          cuda::kStubLibrary,        cuda::kDeviceUnavailable,
                                          cuda::kNoDevice,           cuda::kInvalidDevice,
                                          cuda::kContextIsDestroyed, cuda::kSystemDriverMismatch,
                                          cuda::kNotPermitted};

constexpr std::array kContextIsGone = {
    cuda::kDeinitialized,       cuda::kDeviceUnavailable,  cuda::kEccUncorrectable,
    cuda::kIllegalAddress,      cuda::kLaunchTimeout,      cuda::kContextIsDestroyed,
    cuda::kHardwareStackError,  cuda::kIllegalInstruction, cuda::kMisalignedAddress,
    cuda::kInvalidAddressSpace, cuda::kInvalidPc,          cuda::kLaunchFailed};

}  // namespace

bool ends_context(cuda::Result result) {
  return std::find(kContextIsGone.begin(), kContextIsGone.end(), result) != kContextIsGone.end();
}

Result<CudaDriver> CudaDriver::load(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return fail(Code::unavailable, "{:.80}: {:.120}; install the NVIDIA driver, or set gpu_driver",
                library, why_not_loaded(library));
  }
  CudaDriver driver;
  const auto get_version = symbol<GetVersion>(handle, "cuDriverGetVersion");
  if (get_version == nullptr || get_version(&driver.version_.number) != cuda::kSuccess) {
    return fail(Code::unavailable,
                "{}: its version is unknown; set gpu_driver to the NVIDIA driver's libcuda.so.1",
                library);
  }
  const auto get = symbol<GetProcAddress>(handle, "cuGetProcAddress_v2");
  if (driver.version_.number < kOldest.number || get == nullptr) {
    return fail(Code::unavailable, "{} is a driver for CUDA {}.{}; {}.0 and later are accepted",
                library, driver.version_.major(), driver.version_.minor(), kOldest.major());
  }
  const char* missing = nullptr;
  const auto look_up = [&](const char* name, int since, bool required) {
    void* function = nullptr;
    int why = 0;
    if (get(name, &function, since, 0, &why) != cuda::kSuccess) {
      function = nullptr;
    }
    missing = function == nullptr && required && missing == nullptr ? name : missing;
    return function;
  };
#define TIERMEM_CUDA_LOOK_UP(required, since, name, parameters) \
  driver.name = reinterpret_cast<decltype(driver.name)>(look_up(#name, since, required));
  TIERMEM_CUDA_CALLS(TIERMEM_CUDA_LOOK_UP)
#undef TIERMEM_CUDA_LOOK_UP
  if (missing != nullptr) {
    return fail(Code::unavailable,
                "{}, a driver for CUDA {}.{}, has no {}; upgrade the NVIDIA driver", library,
                driver.version_.major(), driver.version_.minor(), missing);
  }
  return driver;
}

Result<unsigned> CudaDriver::start() const {
  if (Status started = check(cuInit(0), "cuInit"); !started.ok()) {
    return started;
  }
  int count = 0;
  if (Status counted = check(cuDeviceGetCount(&count), "cuDeviceGetCount"); !counted.ok()) {
    return counted;
  }
  if (count <= 0) {
    return check(cuda::kNoDevice, "cuDeviceGetCount");
  }
  return static_cast<unsigned>(count);
}

String CudaDriver::name_of(cuda::Result result) const {
  const char* name = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(result, &name) != cuda::kSuccess ||
      name == nullptr) {
    name = "an error without a name";
  }
  return text("{} ({})", name, result);
}

Result<CudaDeviceFacts> probe_device(const CudaDriver& driver, unsigned index) {
  CudaDeviceFacts facts;
  facts.index = index;
  cuda::Device device = 0;
  char text[128] = {};
  std::size_t bytes = 0;
  Status status;
  const auto ask = [&](cuda::Result result, const char* what) {
    if (status.ok()) {
      status = driver.check(result, fmt::format("gpu {}: {}", index, what));
    }
    return status.ok();
  };
  const auto attribute = [&](int which) {
    int value = 0;
    (void)ask(driver.cuDeviceGetAttribute(&value, which, device), "an attribute");
    return value;
  };
  if (!ask(driver.cuDeviceGet(&device, static_cast<int>(index)), "cuDeviceGet") ||
      !ask(driver.cuDeviceGetName(text, sizeof(text), device), "its name")) {
    return status;
  }
  facts.name = text;
  if (driver.cuDeviceGetPCIBusId(text, sizeof(text), device) == cuda::kSuccess) {
    facts.bus_id = text;
  }
  (void)ask(driver.cuDeviceTotalMem(&bytes, device), "the size of its memory");
  facts.total = bytes;
  facts.capability_major = attribute(cuda::kCapabilityMajor);
  facts.capability_minor = attribute(cuda::kCapabilityMinor);
  facts.virtual_memory = attribute(cuda::kVirtualMemory) != 0;
  if (status.ok() && facts.virtual_memory) {
    cuda::AllocationProperties properties;
    properties.location.id = device;
    (void)ask(driver.cuMemGetAllocationGranularity(&bytes, &properties, cuda::kGranularityMinimum),
              "cuMemGetAllocationGranularity");
    facts.granularity = bytes;
  }
  if (!status.ok()) {
    return status;
  }
  return facts;
}

Status CudaDriver::check(cuda::Result result, std::string_view doing) const {
  if (result == cuda::kSuccess) {
    return {};
  }
  const bool nobody = std::find(kNoDeviceToTalkTo.begin(), kNoDeviceToTalkTo.end(), result) !=
                      kNoDeviceToTalkTo.end();
  const Code code = result == cuda::kOutOfMemory ? Code::no_capacity
                    : nobody                     ? Code::unavailable
                                                 : Code::io_error;
  return fail_native(code, result, "{}: {}", doing, name_of(result));
}

}  // namespace tiermem
