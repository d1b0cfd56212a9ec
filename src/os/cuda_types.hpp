// The types and numbers of the CUDA driver API that tiermem uses. These are our own declarations,
// so the build needs no toolkit. The layouts are those of the x86-64 and AArch64 ABI since CUDA
// 12.0. tests/unit/cuda_header_test.cpp compares them with cuda.h where one is installed.
//
// Source: NVIDIA CUDA Driver API reference, 12.0 to 13.0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiermem::cuda {

using Result = int;
using Device = int;
using DevicePointer = unsigned long long;  // NOLINT(google-runtime-int): the ABI's own.
using MemoryHandle = unsigned long long;   // NOLINT(google-runtime-int)
using Context = struct ContextRecord*;
using Stream = struct StreamRecord*;
using Event = struct EventRecord*;
using Module = struct ModuleRecord*;
using Function = struct FunctionRecord*;

/// Results that tiermem tests for; messages name all others.
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kStubLibrary = 34;
inline constexpr Result kDeviceUnavailable = 46;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kEccUncorrectable = 214;
inline constexpr Result kPeerAccessUnsupported = 217;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kLaunchTimeout = 702;
inline constexpr Result kContextIsDestroyed = 709;
inline constexpr Result kAlreadyRegistered = 712;
inline constexpr Result kNotRegistered = 713;
inline constexpr Result kHardwareStackError = 714;
inline constexpr Result kIllegalInstruction = 715;
inline constexpr Result kMisalignedAddress = 716;
inline constexpr Result kInvalidAddressSpace = 717;
inline constexpr Result kInvalidPc = 718;
inline constexpr Result kLaunchFailed = 719;
inline constexpr Result kNotPermitted = 800;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kSystemDriverMismatch = 803;
inline constexpr Result kCaptureUnsupported = 900;
inline constexpr Result kUnknown = 999;
/// Returns true for 900 to 908: errors that a stream capture causes.
inline bool is_of_capture(Result result) {
  return result >= kCaptureUnsupported && result <= 908;
}

/// Attributes of a device.
inline constexpr int kIntegrated = 18;
inline constexpr int kAsyncEngines = 40;
inline constexpr int kUnifiedAddressing = 41;
inline constexpr int kCapabilityMajor = 75;
inline constexpr int kCapabilityMinor = 76;
inline constexpr int kHostRegister = 99;
inline constexpr int kVirtualMemory = 102;

/// Attributes of an address.
inline constexpr int kMemoryType = 2;
inline constexpr int kDeviceOrdinal = 9;
inline constexpr unsigned kMemoryOfDevice = 2;

inline constexpr int kAllocationPinned = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kCaptureRelaxed = 2;
inline constexpr int kSourceInStreamOrder = 1;
inline constexpr unsigned kAttachGlobal = 1;
inline constexpr int kSetPreferredLocation = 3;
inline constexpr int kSetAccessedBy = 5;
inline constexpr Device kProcessor = -1;  ///< For advice and prefetches of managed memory.
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
/// Returns the explicit handle of the stream that NULL names.
inline Stream legacy_stream() {
  return reinterpret_cast<Stream>(std::uintptr_t{1});
}
/// Returns the explicit handle of the calling thread's default stream; every thread uses the same
/// handle.
inline Stream per_thread_stream() {
  return reinterpret_cast<Stream>(std::uintptr_t{2});
}
/// Returns true for a default stream of the current context: NULL, 1 (legacy), and 2 (the calling
/// thread's).
inline bool is_default(Stream stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= 2;
}

struct Location {
  int type = kLocationDevice;
  int id = 0;
};

struct AllocationProperties {
  int type = kAllocationPinned;
  int handle_types = 0;
  Location location;
  void* win32_metadata = nullptr;
  struct {
    unsigned char compression = 0;
    unsigned char gpu_direct_rdma = 0;
    unsigned short usage = 0;  // NOLINT(google-runtime-int)
    unsigned char reserved[4] = {};
  } flags;
};
static_assert(sizeof(AllocationProperties) == 32);

struct AccessDescription {
  Location location;
  int flags = kAccessReadWrite;
};
static_assert(sizeof(AccessDescription) == 12);

/// Attributes of a run of copies in a batch: in the order of the stream, from and to any memory.
struct BatchAttributes {
  int source_order = kSourceInStreamOrder;
  Location from{0, 0}, to{0, 0};
  unsigned flags = 0;
};
static_assert(sizeof(BatchAttributes) == 24);

struct Uuid {
  unsigned char bytes[16] = {};
};

/// The functions that are looked up with cuGetProcAddress. The name has no suffix; `version` is the
/// version of the prototype. A function that is not required may be null in an older driver.
//  X(required, version, name, parameters)
#define TIERMEM_CUDA_CALLS(X)                                                                      \
  X(true, 2000, cuInit, (unsigned flags))                                                          \
  X(true, 6000, cuGetErrorName, (cuda::Result error, const char** name))                           \
  X(true, 6000, cuGetErrorString, (cuda::Result error, const char** text))                         \
  X(true, 2000, cuDeviceGetCount, (int* count))                                                    \
  X(true, 2000, cuDeviceGet, (cuda::Device * device, int ordinal))                                 \
  X(true, 2000, cuDeviceGetName, (char* name, int bytes, cuda::Device device))                     \
  X(true, 11040, cuDeviceGetUuid, (cuda::Uuid * uuid, cuda::Device device))                        \
  X(true, 4010, cuDeviceGetPCIBusId, (char* id, int bytes, cuda::Device device))                   \
  X(true, 3020, cuDeviceTotalMem, (std::size_t * bytes, cuda::Device device))                      \
  X(true, 2000, cuDeviceGetAttribute, (int* value, int attribute, cuda::Device device))            \
  X(true, 7000, cuDevicePrimaryCtxRetain, (cuda::Context * context, cuda::Device device))          \
  X(true, 11000, cuDevicePrimaryCtxRelease, (cuda::Device device))                                 \
  X(true, 4000, cuCtxSetCurrent, (cuda::Context context))                                          \
  X(true, 4000, cuCtxGetCurrent, (cuda::Context * context))                                        \
  X(true, 3020, cuMemGetInfo, (std::size_t * free, std::size_t * total))                           \
  X(true, 10020, cuMemGetAllocationGranularity,                                                    \
    (std::size_t * bytes, const cuda::AllocationProperties* properties, int option))               \
  X(true, 10020, cuMemAddressReserve,                                                              \
    (cuda::DevicePointer * at, std::size_t bytes, std::size_t alignment,                           \
     cuda::DevicePointer wanted, unsigned long long flags))                                        \
  X(true, 10020, cuMemAddressFree, (cuda::DevicePointer at, std::size_t bytes))                    \
  X(true, 10020, cuMemCreate,                                                                      \
    (cuda::MemoryHandle * handle, std::size_t bytes, const cuda::AllocationProperties* properties, \
     unsigned long long flags))                                                                    \
  X(true, 10020, cuMemRelease, (cuda::MemoryHandle handle))                                        \
  X(true, 10020, cuMemMap,                                                                         \
    (cuda::DevicePointer at, std::size_t bytes, std::size_t offset, cuda::MemoryHandle handle,     \
     unsigned long long flags))                                                                    \
  X(true, 10020, cuMemUnmap, (cuda::DevicePointer at, std::size_t bytes))                          \
  X(true, 10020, cuMemSetAccess,                                                                   \
    (cuda::DevicePointer at, std::size_t bytes, const cuda::AccessDescription* access,             \
     std::size_t count))                                                                           \
  X(true, 6050, cuMemHostRegister, (void* at, std::size_t bytes, unsigned flags))                  \
  X(true, 4000, cuMemHostUnregister, (void* at))                                                   \
  X(true, 3020, cuMemcpyHtoDAsync,                                                                 \
    (cuda::DevicePointer to, const void* from, std::size_t bytes, cuda::Stream stream))            \
  X(true, 3020, cuMemcpyDtoHAsync,                                                                 \
    (void* to, cuda::DevicePointer from, std::size_t bytes, cuda::Stream stream))                  \
  X(true, 3020, cuMemcpyDtoDAsync,                                                                 \
    (cuda::DevicePointer to, cuda::DevicePointer from, std::size_t bytes, cuda::Stream stream))    \
  X(true, 4000, cuPointerGetAttribute, (void* value, int attribute, cuda::DevicePointer at))       \
  X(true, 4000, cuDeviceCanAccessPeer, (int* can, cuda::Device device, cuda::Device peer))         \
  X(true, 4000, cuMemcpyPeerAsync,                                                                 \
    (cuda::DevicePointer to, cuda::Context to_context, cuda::DevicePointer from,                   \
     cuda::Context from_context, std::size_t bytes, cuda::Stream stream))                          \
  X(true, 3020, cuMemsetD8Async,                                                                   \
    (cuda::DevicePointer at, unsigned char value, std::size_t bytes, cuda::Stream stream))         \
  X(true, 2000, cuStreamCreate, (cuda::Stream * stream, unsigned flags))                           \
  X(true, 4000, cuStreamDestroy, (cuda::Stream stream))                                            \
  X(true, 2000, cuStreamSynchronize, (cuda::Stream stream))                                        \
  X(true, 3020, cuStreamWaitEvent, (cuda::Stream stream, cuda::Event event, unsigned flags))       \
  X(true, 9020, cuStreamGetCtx, (cuda::Stream stream, cuda::Context * context))                    \
  X(true, 10000, cuStreamIsCapturing, (cuda::Stream stream, int* status))                          \
  X(true, 10010, cuThreadExchangeStreamCaptureMode, (int* mode))                                   \
  X(true, 2000, cuEventCreate, (cuda::Event * event, unsigned flags))                              \
  X(true, 4000, cuEventDestroy, (cuda::Event event))                                               \
  X(true, 2000, cuEventRecord, (cuda::Event event, cuda::Stream stream))                           \
  X(true, 2000, cuEventQuery, (cuda::Event event))                                                 \
  X(true, 2000, cuEventSynchronize, (cuda::Event event))                                           \
  X(false, 12080, cuMemcpyBatchAsync,                                                              \
    (cuda::DevicePointer * to, cuda::DevicePointer * from, std::size_t * bytes, std::size_t count, \
     cuda::BatchAttributes * attributes, std::size_t * first, std::size_t kinds,                   \
     std::size_t * failed, cuda::Stream stream))                                                   \
  /* For the benchmarks: kernels, and memory of the other kinds. */                                \
  X(false, 2000, cuModuleLoadData, (cuda::Module * module, const void* image))                     \
  X(false, 2000, cuModuleUnload, (cuda::Module module))                                            \
  X(false, 2000, cuModuleGetFunction,                                                              \
    (cuda::Function * function, cuda::Module module, const char* name))                            \
  X(false, 4000, cuLaunchKernel,                                                                   \
    (cuda::Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,             \
     unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,            \
     cuda::Stream stream, void** parameters, void** extra))                                        \
  X(false, 3020, cuMemAlloc, (cuda::DevicePointer * at, std::size_t bytes))                        \
  X(false, 3020, cuMemFree, (cuda::DevicePointer at))                                              \
  X(false, 6000, cuMemAllocManaged, (cuda::DevicePointer * at, std::size_t bytes, unsigned flags)) \
  X(false, 8000, cuMemAdvise,                                                                      \
    (cuda::DevicePointer at, std::size_t bytes, int advice, cuda::Device device))                  \
  X(false, 8000, cuMemPrefetchAsync,                                                               \
    (cuda::DevicePointer at, std::size_t bytes, cuda::Device to, cuda::Stream stream))

}  // namespace tiermem::cuda
