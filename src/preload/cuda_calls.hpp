// Two lists of CUDA driver calls: those that are replaced, and those that the replacements call.
// tests/gpu/cuda_header_test.cpp compares them with the toolkit's headers. os/cuda_types.hpp names
// the types.
#pragma once

//  X(name in the ABI; name, version and flags for cuGetProcAddress; parameters)
#define TIERMEM_CUDA_REPLACED(X)                                                                   \
  X(cuGetProcAddress, cuGetProcAddress, 11030, 0,                                                  \
    (const char* name, void** function, int version, std::uint64_t flags))                         \
  X(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0,                                               \
    (const char* name, void** function, int version, std::uint64_t flags, int* status))            \
  X(cuMemAlloc_v2, cuMemAlloc, 3020, 0, (DevicePointer * at, std::size_t bytes))                   \
  X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0,                                                  \
    (DevicePointer * at, std::size_t * pitch, std::size_t width, std::size_t height,               \
     unsigned element))                                                                            \
  X(cuMemFree_v2, cuMemFree, 3020, 0, (DevicePointer at))                                          \
  X(cuMemAllocAsync, cuMemAllocAsync, 11020, 0,                                                    \
    (DevicePointer * at, std::size_t bytes, Stream stream))                                        \
  X(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, 2,                                               \
    (DevicePointer * at, std::size_t bytes, Stream stream))                                        \
  X(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, (DevicePointer at, Stream stream))                   \
  X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, 2, (DevicePointer at, Stream stream))              \
  X(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0, (std::size_t * free, std::size_t * total))             \
  X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, 0,                                        \
    (DevicePointer * begin, std::size_t * bytes, DevicePointer at))                                \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, 0,                                         \
    (void* value, int attribute, DevicePointer at))                                                \
  X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, 0,                                       \
    (unsigned count, int* attributes, void** values, DevicePointer at))                            \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, 0, (void* handle, DevicePointer at))               \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, 0, (int* can, Device device, Device peer)) \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, 0, (Context peer, unsigned flags))

// Other driver calls that the replacements need. X(name in the ABI, parameters)
#define TIERMEM_CUDA_ASKED(X)                                                  \
  X(cuCtxGetCurrent, (Context * context))                                      \
  X(cuCtxGetDevice, (Device * device))                                         \
  X(cuCtxPushCurrent_v2, (Context context))                                    \
  X(cuCtxPopCurrent_v2, (Context * context))                                   \
  X(cuCtxSynchronize, ())                                                      \
  X(cuDevicePrimaryCtxGetState, (Device device, unsigned* flags, int* active)) \
  X(cuDevicePrimaryCtxRetain, (Context * context, Device device))              \
  X(cuStreamIsCapturing, (Stream stream, int* status))
