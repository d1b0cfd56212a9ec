// All functions that the fake driver exports: the name for cuGetProcAddress, the first CUDA version
// with this prototype, and the name in the ABI. One list makes the declarations and the table of
// cuGetProcAddress (symbols.cpp). Each function is defined in the *_calls.cpp of its noun.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/cuda_types.hpp"

namespace tiermem::test {

using HostFunction = void (*)(void* data);
using Graph = void*;

}  // namespace tiermem::test

//  X(since, name, name in the ABI, parameters)
#define TIERMEM_FAKE_CUDA_DEVICE_CALLS(X)                                                 \
  X(2000, cuInit, cuInit, (unsigned flags))                                               \
  X(2020, cuDriverGetVersion, cuDriverGetVersion, (int* version))                         \
  X(11030, cuGetProcAddress, cuGetProcAddress,                                            \
    (const char* symbol, void** function, int version, std::uint64_t flags))              \
  X(12000, cuGetProcAddress, cuGetProcAddress_v2,                                         \
    (const char* symbol, void** function, int version, std::uint64_t flags, int* status)) \
  X(6000, cuGetErrorName, cuGetErrorName, (Result error, const char** name))              \
  X(6000, cuGetErrorString, cuGetErrorString, (Result error, const char** text))          \
  X(2000, cuDeviceGetCount, cuDeviceGetCount, (int* count))                               \
  X(2000, cuDeviceGet, cuDeviceGet, (Device * device, int ordinal))                       \
  X(2000, cuDeviceGetName, cuDeviceGetName, (char* name, int bytes, Device device))       \
  X(11040, cuDeviceGetUuid, cuDeviceGetUuid_v2, (Uuid * uuid, Device device))             \
  X(4010, cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char* id, int bytes, Device device)) \
  X(3020, cuDeviceTotalMem, cuDeviceTotalMem_v2, (std::size_t * bytes, Device device))    \
  X(2000, cuDeviceGetAttribute, cuDeviceGetAttribute, (int* value, int attribute, Device device))

#define TIERMEM_FAKE_CUDA_CONTEXT_CALLS(X)                                                        \
  X(7000, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (Context * context, Device device)) \
  X(11000, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (Device device))              \
  X(7000, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState,                                 \
    (Device device, unsigned* flags, int* active))                                                \
  X(4000, cuCtxSetCurrent, cuCtxSetCurrent, (Context context))                                    \
  X(4000, cuCtxGetCurrent, cuCtxGetCurrent, (Context * context))                                  \
  X(4000, cuCtxPushCurrent, cuCtxPushCurrent_v2, (Context context))                               \
  X(4000, cuCtxPopCurrent, cuCtxPopCurrent_v2, (Context * context))                               \
  X(3020, cuCtxCreate, cuCtxCreate_v2, (Context * context, unsigned flags, Device device))        \
  X(4000, cuCtxDestroy, cuCtxDestroy_v2, (Context context))                                       \
  X(4000, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int* can, Device device, Device peer))   \
  X(4000, cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, (Context peer, unsigned flags))           \
  X(2000, cuCtxGetDevice, cuCtxGetDevice, (Device * device))                                      \
  X(5050, cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int* least, int* greatest))  \
  X(2000, cuCtxSynchronize, cuCtxSynchronize, ())

#define TIERMEM_FAKE_CUDA_MEMORY_CALLS(X)                                                         \
  X(3020, cuMemGetInfo, cuMemGetInfo_v2, (std::size_t * free, std::size_t * total))               \
  X(3020, cuMemAlloc, cuMemAlloc_v2, (DevicePointer * at, std::size_t bytes))                     \
  X(3020, cuMemAllocPitch, cuMemAllocPitch_v2,                                                    \
    (DevicePointer * at, std::size_t * pitch, std::size_t width, std::size_t height,              \
     unsigned element))                                                                           \
  X(3020, cuMemFree, cuMemFree_v2, (DevicePointer at))                                            \
  X(11020, cuMemAllocAsync, cuMemAllocAsync,                                                      \
    (DevicePointer * at, std::size_t bytes, Stream stream))                                       \
  X(11020, cuMemFreeAsync, cuMemFreeAsync, (DevicePointer at, Stream stream))                     \
  X(3020, cuMemGetAddressRange, cuMemGetAddressRange_v2,                                          \
    (DevicePointer * base, std::size_t * bytes, DevicePointer at))                                \
  X(4000, cuPointerGetAttribute, cuPointerGetAttribute,                                           \
    (void* value, int attribute, DevicePointer at))                                               \
  X(7000, cuPointerGetAttributes, cuPointerGetAttributes,                                         \
    (unsigned count, int* attributes, void** values, DevicePointer at))                           \
  X(6000, cuPointerSetAttribute, cuPointerSetAttribute,                                           \
    (const void* value, int attribute, DevicePointer at))                                         \
  X(4010, cuIpcGetMemHandle, cuIpcGetMemHandle, (void* handle, DevicePointer at))                 \
  X(10020, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity,                          \
    (std::size_t * bytes, const AllocationProperties* properties, int option))                    \
  X(10020, cuMemAddressReserve, cuMemAddressReserve,                                              \
    (DevicePointer * at, std::size_t bytes, std::size_t alignment, DevicePointer wanted,          \
     unsigned long long flags))                                                                   \
  X(10020, cuMemAddressFree, cuMemAddressFree, (DevicePointer at, std::size_t bytes))             \
  X(10020, cuMemCreate, cuMemCreate,                                                              \
    (MemoryHandle * handle, std::size_t bytes, const AllocationProperties* properties,            \
     unsigned long long flags))                                                                   \
  X(10020, cuMemRelease, cuMemRelease, (MemoryHandle handle))                                     \
  X(10020, cuMemMap, cuMemMap,                                                                    \
    (DevicePointer at, std::size_t bytes, std::size_t offset, MemoryHandle handle,                \
     unsigned long long flags))                                                                   \
  X(10020, cuMemUnmap, cuMemUnmap, (DevicePointer at, std::size_t bytes))                         \
  X(10020, cuMemSetAccess, cuMemSetAccess,                                                        \
    (DevicePointer at, std::size_t bytes, const AccessDescription* access, std::size_t count))    \
  X(2020, cuMemHostAlloc, cuMemHostAlloc, (void** at, std::size_t bytes, unsigned flags))         \
  X(3020, cuMemAllocHost, cuMemAllocHost_v2, (void** at, std::size_t bytes))                      \
  X(2000, cuMemFreeHost, cuMemFreeHost, (void* at))                                               \
  X(3020, cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                                \
    (DevicePointer * at, void* host, unsigned flags))                                             \
  X(6050, cuMemHostRegister, cuMemHostRegister_v2, (void* at, std::size_t bytes, unsigned flags)) \
  X(4000, cuMemHostUnregister, cuMemHostUnregister, (void* at))

#define TIERMEM_FAKE_CUDA_COPY_CALLS(X)                                                           \
  X(3020, cuMemcpyHtoD, cuMemcpyHtoD_v2, (DevicePointer to, const void* from, std::size_t bytes)) \
  X(3020, cuMemcpyDtoH, cuMemcpyDtoH_v2, (void* to, DevicePointer from, std::size_t bytes))       \
  X(3020, cuMemcpyDtoD, cuMemcpyDtoD_v2,                                                          \
    (DevicePointer to, DevicePointer from, std::size_t bytes))                                    \
  X(4000, cuMemcpy, cuMemcpy, (DevicePointer to, DevicePointer from, std::size_t bytes))          \
  X(4000, cuMemcpyPeer, cuMemcpyPeer,                                                             \
    (DevicePointer to, Context to_context, DevicePointer from, Context from_context,              \
     std::size_t bytes))                                                                          \
  X(4000, cuMemcpyPeerAsync, cuMemcpyPeerAsync,                                                   \
    (DevicePointer to, Context to_context, DevicePointer from, Context from_context,              \
     std::size_t bytes, Stream stream))                                                           \
  X(4000, cuMemcpyAsync, cuMemcpyAsync,                                                           \
    (DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream))                     \
  X(3020, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                                \
    (DevicePointer to, const void* from, std::size_t bytes, Stream stream))                       \
  X(3020, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                                \
    (void* to, DevicePointer from, std::size_t bytes, Stream stream))                             \
  X(3020, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                                \
    (DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream))                     \
  X(12080, cuMemcpyBatchAsync, cuMemcpyBatchAsync,                                                \
    (DevicePointer * to, DevicePointer * from, std::size_t * bytes, std::size_t count,            \
     BatchAttributes * attributes, std::size_t * first, std::size_t kinds, std::size_t * failed,  \
     Stream stream))                                                                              \
  X(13000, cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2,                                             \
    (DevicePointer * to, DevicePointer * from, std::size_t * bytes, std::size_t count,            \
     BatchAttributes * attributes, std::size_t * first, std::size_t kinds, Stream stream))        \
  X(3020, cuMemsetD8, cuMemsetD8_v2, (DevicePointer at, unsigned char value, std::size_t bytes))  \
  X(3020, cuMemsetD8Async, cuMemsetD8Async,                                                       \
    (DevicePointer at, unsigned char value, std::size_t bytes, Stream stream))

#define TIERMEM_FAKE_CUDA_STREAM_CALLS(X)                                                         \
  X(2000, cuStreamCreate, cuStreamCreate, (Stream * stream, unsigned flags))                      \
  X(5050, cuStreamCreateWithPriority, cuStreamCreateWithPriority,                                 \
    (Stream * stream, unsigned flags, int priority))                                              \
  X(4000, cuStreamDestroy, cuStreamDestroy_v2, (Stream stream))                                   \
  X(2000, cuStreamQuery, cuStreamQuery, (Stream stream))                                          \
  X(2000, cuStreamSynchronize, cuStreamSynchronize, (Stream stream))                              \
  X(3020, cuStreamWaitEvent, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))     \
  X(10000, cuLaunchHostFunc, cuLaunchHostFunc,                                                    \
    (Stream stream, tiermem::test::HostFunction function, void* data))                            \
  X(10010, cuStreamBeginCapture, cuStreamBeginCapture_v2, (Stream stream, int mode))              \
  X(10000, cuStreamEndCapture, cuStreamEndCapture, (Stream stream, tiermem::test::Graph * graph)) \
  X(9020, cuStreamGetCtx, cuStreamGetCtx, (Stream stream, Context * context))                     \
  X(10000, cuStreamIsCapturing, cuStreamIsCapturing, (Stream stream, int* status))                \
  X(10010, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int* mode))     \
  X(10000, cuGraphDestroy, cuGraphDestroy, (tiermem::test::Graph graph))                          \
  X(2000, cuEventCreate, cuEventCreate, (Event * event, unsigned flags))                          \
  X(4000, cuEventDestroy, cuEventDestroy_v2, (Event event))                                       \
  X(2000, cuEventRecord, cuEventRecord, (Event event, Stream stream))                             \
  X(2000, cuEventElapsedTime, cuEventElapsedTime, (float* ms, Event first, Event last))           \
  X(2000, cuEventQuery, cuEventQuery, (Event event))                                              \
  X(2000, cuEventSynchronize, cuEventSynchronize, (Event event))

#define TIERMEM_FAKE_CUDA_MODULE_CALLS(X)                                               \
  X(2000, cuModuleLoadData, cuModuleLoadData, (Module * module, const void* image))     \
  X(2000, cuModuleUnload, cuModuleUnload, (Module module))                              \
  X(2000, cuModuleGetFunction, cuModuleGetFunction,                                     \
    (Function * function, Module module, const char* name))                             \
  X(4000, cuLaunchKernel, cuLaunchKernel,                                               \
    (Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,        \
     unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes, \
     Stream stream, void** parameters, void** extra))

#define TIERMEM_FAKE_CUDA_MANAGED_CALLS(X)                            \
  X(6000, cuMemAllocManaged, cuMemAllocManaged,                       \
    (DevicePointer * at, std::size_t bytes, unsigned flags))          \
  X(8000, cuMemAdvise, cuMemAdvise,                                   \
    (DevicePointer at, std::size_t bytes, int advice, Device device)) \
  X(8000, cuMemPrefetchAsync, cuMemPrefetchAsync,                     \
    (DevicePointer at, std::size_t bytes, Device to, Stream stream))

#define TIERMEM_FAKE_CUDA_CALLS(X)   \
  TIERMEM_FAKE_CUDA_DEVICE_CALLS(X)  \
  TIERMEM_FAKE_CUDA_CONTEXT_CALLS(X) \
  TIERMEM_FAKE_CUDA_MEMORY_CALLS(X)  \
  TIERMEM_FAKE_CUDA_COPY_CALLS(X)    \
  TIERMEM_FAKE_CUDA_STREAM_CALLS(X)  \
  TIERMEM_FAKE_CUDA_MODULE_CALLS(X)  \
  TIERMEM_FAKE_CUDA_MANAGED_CALLS(X)

// Functions for a program compiled with per-thread default streams: another name in the ABI, and
// another flag for cuGetProcAddress. The fake has those that the preload library replaces.
#define TIERMEM_FAKE_CUDA_PER_THREAD_CALLS(X)               \
  X(11020, cuMemAllocAsync, cuMemAllocAsync_ptsz,           \
    (DevicePointer * at, std::size_t bytes, Stream stream)) \
  X(11020, cuMemFreeAsync, cuMemFreeAsync_ptsz, (DevicePointer at, Stream stream))

// Functions that clients, such as libcufile, require at their start, and functions that the fake
// does not model. Every call is refused with kNotSupported. Their parameters are ignored.
//  X(since, name, name in the ABI)
#define TIERMEM_FAKE_CUDA_REFUSED_CALLS(X)                               \
  X(3000, cuGetExportTable, cuGetExportTable)                            \
  X(4010, cuIpcCloseMemHandle, cuIpcCloseMemHandle)                      \
  X(4010, cuIpcGetEventHandle, cuIpcGetEventHandle)                      \
  X(4010, cuIpcOpenEventHandle, cuIpcOpenEventHandle)                    \
  X(11000, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2)                    \
  X(11070, cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange) \
  X(8000, cuStreamWaitValue32, cuStreamWaitValue32)                      \
  X(8000, cuStreamWriteValue32, cuStreamWriteValue32)                    \
  X(11070, cuStreamWaitValue32, cuStreamWaitValue32_v2)                  \
  X(11070, cuStreamWriteValue32, cuStreamWriteValue32_v2)

namespace tiermem::cuda {

// Functions of one name with C linkage are one function, whatever their namespace.
extern "C" {
#define TIERMEM_FAKE_CUDA_DECLARE(since, name, abi_name, parameters) \
  __attribute__((visibility("default"))) Result abi_name parameters;
TIERMEM_FAKE_CUDA_CALLS(TIERMEM_FAKE_CUDA_DECLARE)
TIERMEM_FAKE_CUDA_PER_THREAD_CALLS(TIERMEM_FAKE_CUDA_DECLARE)
#undef TIERMEM_FAKE_CUDA_DECLARE
#define TIERMEM_FAKE_CUDA_DECLARE(since, name, abi_name) \
  __attribute__((visibility("default"))) Result abi_name();
TIERMEM_FAKE_CUDA_REFUSED_CALLS(TIERMEM_FAKE_CUDA_DECLARE)
#undef TIERMEM_FAKE_CUDA_DECLARE
}

}  // namespace tiermem::cuda
