// The calls on the driver and its devices.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::cuda {

using test::Call;
using test::Needs;

namespace {

constexpr struct Error {
  Result result;
  const char* name;
  const char* text;
} kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kStubLibrary, "CUDA_ERROR_STUB_LIBRARY", "a stub of the driver"},
    {kDeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is unavailable"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable memory error"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "the named symbol is not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access"},
    {kLaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context is destroyed"},
    {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "registered already"},
    {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "not registered"},
    {kHardwareStackError, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {kIllegalInstruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction"},
    {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kInvalidAddressSpace, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "not in that address space"},
    {kInvalidPc, "CUDA_ERROR_INVALID_PC", "invalid program counter"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "the launch failed"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "not permitted"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
    {kSystemDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "not the kernel's driver"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not while capturing"},
    {test::kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "a broken capture"},
    {test::kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "waits for a capture"},
    {test::kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT", "the event is of a capture"},
    {test::kCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "not its thread"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

Result describe(Result error, const char* Error::*what, const char** to) {
  const auto* const known = std::find_if(std::begin(kErrors), std::end(kErrors),
                                         [&](const Error& each) { return each.result == error; });
  const bool found = known != std::end(kErrors);
  *to = found ? known->*what : nullptr;
  return found ? kSuccess : kInvalidValue;
}

Result copy_text(const std::string& text, char* to, int bytes) {
  if (to == nullptr || bytes <= 0) {
    return kInvalidValue;
  }
  std::snprintf(to, static_cast<std::size_t>(bytes), "%s", text.c_str());
  return kSuccess;
}

// A call on a device that needs no context: runs `body(call)` if the device exists and `result` is
// not null.
template <typename Body>
Result about(const char* name, Device device, const void* result, const Body& body) {
  return test::call(name, Needs::driver, [&](Call& here) -> Result {
    if (result == nullptr) {
      return kInvalidValue;
    }
    return here.world.has_device(device) ? body(here) : kInvalidDevice;
  });
}

int attribute_of(int attribute) {
  switch (attribute) {
    case kAsyncEngines:
      return 2;
    case kCapabilityMajor:
      return 9;
    case kUnifiedAddressing:
    case kHostRegister:
    case kVirtualMemory:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

Result cuInit(unsigned flags) {
  return test::call("cuInit", Needs::nothing, [&](Call& here) -> Result {
    if (here.world.forked) {
      return kNotInitialized;
    }
    if (flags != 0) {
      return kInvalidValue;
    }
    if (here.world.settings.devices == 0) {
      return kNoDevice;
    }
    here.world.initialized = true;
    return kSuccess;
  });
}

Result cuDriverGetVersion(int* version) {
  return test::call("cuDriverGetVersion", Needs::nothing, [&](Call& here) -> Result {
    if (version == nullptr) {
      return kInvalidValue;
    }
    *version = here.world.settings.driver_version;
    return kSuccess;
  });
}

Result cuGetErrorName(Result error, const char** name) {
  return test::call("cuGetErrorName", Needs::nothing,
                    [&](Call&) { return describe(error, &Error::name, name); });
}

Result cuGetErrorString(Result error, const char** text) {
  return test::call("cuGetErrorString", Needs::nothing,
                    [&](Call&) { return describe(error, &Error::text, text); });
}

Result cuDeviceGetCount(int* count) {
  return about("cuDeviceGetCount", 0, count, [&](Call& here) {
    *count = here.world.settings.devices;
    return kSuccess;
  });
}

Result cuDeviceGet(Device* device, int ordinal) {
  return about("cuDeviceGet", ordinal, device, [&](Call&) {
    *device = ordinal;
    return kSuccess;
  });
}

Result cuDeviceGetName(char* name, int bytes, Device device) {
  return about("cuDeviceGetName", device, name,
               [&](Call&) { return copy_text("tiermem fake GPU", name, bytes); });
}

Result cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
  return about("cuDeviceGetUuid", device, uuid, [&](Call&) {
    std::memcpy(uuid->bytes, "tiermem fake GPU", sizeof(uuid->bytes));
    uuid->bytes[15] = static_cast<unsigned char>(device);
    return kSuccess;
  });
}

Result cuDeviceGetPCIBusId(char* id, int bytes, Device device) {
  return about("cuDeviceGetPCIBusId", device, id, [&](Call&) {
    char text[32];
    std::snprintf(text, sizeof(text), "0000:%02X:00.0", static_cast<unsigned>(device) + 1);
    return copy_text(text, id, bytes);
  });
}

Result cuDeviceTotalMem_v2(std::size_t* bytes, Device device) {
  return about("cuDeviceTotalMem", device, bytes, [&](Call& here) {
    *bytes = here.world.books(device).capacity;
    return kSuccess;
  });
}

Result cuDeviceGetAttribute(int* value, int attribute, Device device) {
  return about("cuDeviceGetAttribute", device, value, [&](Call& here) {
    const auto& set = here.world.settings.attributes;
    const auto own = set.find(attribute);
    *value = own != set.end() ? own->second : attribute_of(attribute);
    return kSuccess;
  });
}

}  // namespace tiermem::cuda
