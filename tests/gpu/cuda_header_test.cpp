// Compares tiermem's declarations of the driver API with the toolkit's headers, where these are
// installed (TIERMEM_CUDA_INCLUDE names another folder). It compares numbers, layouts and, for each
// call, the requested version and the shape of its parameters.
#include <gtest/gtest.h>

#include "os/cuda_types.hpp"
#include "preload/cuda_calls.hpp"

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstddef>
#include <type_traits>

namespace tiermem {
namespace {

template <typename Ours, typename Theirs>
constexpr bool kSameShape =
    sizeof(Ours) == sizeof(Theirs) &&
    alignof(Ours) == alignof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename... Ours, typename... Theirs>
struct SameCall<cuda::Result (*)(Ours...), CUresult (*)(Theirs...)>
    : std::bool_constant<(sizeof...(Ours) == sizeof...(Theirs))> {};
// Compares each parameter, after their numbers are known to be equal.
template <typename Ours, typename Theirs>
struct SameParameters;
template <typename... Ours, typename... Theirs>
struct SameParameters<cuda::Result (*)(Ours...), CUresult (*)(Theirs...)>
    : std::bool_constant<(kSameShape<Ours, Theirs> && ...)> {};

#if CUDA_VERSION >= 12080
static_assert(kSameShape<cuda::BatchAttributes, CUmemcpyAttributes>);
static_assert(offsetof(cuda::BatchAttributes, from) == offsetof(CUmemcpyAttributes, srcLocHint));
static_assert(offsetof(cuda::BatchAttributes, to) == offsetof(CUmemcpyAttributes, dstLocHint));
static_assert(offsetof(cuda::BatchAttributes, flags) == offsetof(CUmemcpyAttributes, flags));
static_assert(cuda::kSourceInStreamOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
#else  // Nothing to compare with.
using PFN_cuMemcpyBatchAsync_v12080 = CUresult (*)(CUdeviceptr*, CUdeviceptr*, size_t*, size_t,
                                                   void*, size_t*, size_t, size_t*, CUstream);
#endif

#define TIERMEM_CHECK_CALL(required, since, name, parameters)                          \
  static_assert(SameCall<cuda::Result(*) parameters, PFN_##name##_v##since>(), #name); \
  static_assert(SameParameters<cuda::Result(*) parameters, PFN_##name##_v##since>(), #name);
TIERMEM_CUDA_CALLS(TIERMEM_CHECK_CALL)
#undef TIERMEM_CHECK_CALL

// The preload library's calls. Their list uses the names of that namespace.
using namespace cuda;  // NOLINT
using cuda::Context;
using cuda::Result;
using cuda::Stream;
#define TIERMEM_CHECK_CALL(abi_name, name, since, flags, parameters)             \
  static_assert(SameCall<Result(*) parameters, PFN_##name##_v##since>(), #name); \
  static_assert(SameParameters<Result(*) parameters, PFN_##name##_v##since>(), #name);
TIERMEM_CUDA_REPLACED(TIERMEM_CHECK_CALL)
#undef TIERMEM_CHECK_CALL

static_assert(kSameShape<cuda::AllocationProperties, CUmemAllocationProp>);
static_assert(offsetof(cuda::AllocationProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(offsetof(cuda::AllocationProperties, win32_metadata) ==
              offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(cuda::AllocationProperties, flags) ==
              offsetof(CUmemAllocationProp, allocFlags));
static_assert(kSameShape<cuda::AccessDescription, CUmemAccessDesc>);
static_assert(offsetof(cuda::AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(kSameShape<cuda::Location, CUmemLocation> && kSameShape<cuda::Uuid, CUuuid>);

static_assert(cuda::kSuccess == CUDA_SUCCESS && cuda::kInvalidValue == CUDA_ERROR_INVALID_VALUE &&
              cuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY &&
              cuda::kNotInitialized == CUDA_ERROR_NOT_INITIALIZED &&
              cuda::kDeinitialized == CUDA_ERROR_DEINITIALIZED &&
              cuda::kStubLibrary == CUDA_ERROR_STUB_LIBRARY &&
              cuda::kDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE &&
              cuda::kNoDevice == CUDA_ERROR_NO_DEVICE &&
              cuda::kInvalidDevice == CUDA_ERROR_INVALID_DEVICE &&
              cuda::kInvalidContext == CUDA_ERROR_INVALID_CONTEXT &&
              cuda::kEccUncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE &&
              cuda::kPeerAccessUnsupported == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED &&
              cuda::kInvalidHandle == CUDA_ERROR_INVALID_HANDLE &&
              cuda::kNotFound == CUDA_ERROR_NOT_FOUND && cuda::kNotReady == CUDA_ERROR_NOT_READY &&
              cuda::kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS &&
              cuda::kLaunchTimeout == CUDA_ERROR_LAUNCH_TIMEOUT &&
              cuda::kContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED &&
              cuda::kAlreadyRegistered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
              cuda::kNotRegistered == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED &&
              cuda::kHardwareStackError == CUDA_ERROR_HARDWARE_STACK_ERROR &&
              cuda::kIllegalInstruction == CUDA_ERROR_ILLEGAL_INSTRUCTION &&
              cuda::kMisalignedAddress == CUDA_ERROR_MISALIGNED_ADDRESS &&
              cuda::kInvalidAddressSpace == CUDA_ERROR_INVALID_ADDRESS_SPACE &&
              cuda::kInvalidPc == CUDA_ERROR_INVALID_PC &&
              cuda::kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED &&
              cuda::kNotPermitted == CUDA_ERROR_NOT_PERMITTED &&
              cuda::kNotSupported == CUDA_ERROR_NOT_SUPPORTED &&
              cuda::kSystemDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH &&
              cuda::kCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
              cuda::kUnknown == CUDA_ERROR_UNKNOWN);
static_assert(cuda::kIntegrated == CU_DEVICE_ATTRIBUTE_INTEGRATED &&
              cuda::kAsyncEngines == CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT &&
              cuda::kUnifiedAddressing == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING &&
              cuda::kCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              cuda::kCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR &&
              cuda::kHostRegister == CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED &&
              cuda::kVirtualMemory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(cuda::kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED &&
              cuda::kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE &&
              cuda::kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
              cuda::kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
              cuda::kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED &&
              cuda::kStreamNonBlocking == CU_STREAM_NON_BLOCKING &&
              cuda::kEventDisableTiming == CU_EVENT_DISABLE_TIMING &&
              cuda::kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(cuda::kMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
              cuda::kDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
              cuda::kMemoryOfDevice == CU_MEMORYTYPE_DEVICE &&
              cuda::kAttachGlobal == CU_MEM_ATTACH_GLOBAL &&
              cuda::kSetPreferredLocation == CU_MEM_ADVISE_SET_PREFERRED_LOCATION &&
              cuda::kSetAccessedBy == CU_MEM_ADVISE_SET_ACCESSED_BY &&
              cuda::kProcessor == CU_DEVICE_CPU);

TEST(CudaHeader, our_declarations_are_those_of_the_toolkit) {
  EXPECT_EQ(cuda::legacy_stream(), reinterpret_cast<cuda::Stream>(CU_STREAM_LEGACY));
  EXPECT_EQ(cuda::per_thread_stream(), reinterpret_cast<cuda::Stream>(CU_STREAM_PER_THREAD));
}

}  // namespace
}  // namespace tiermem

#else

TEST(CudaHeader, our_declarations_are_those_of_the_toolkit) {
  GTEST_SKIP() << "no cuda.h and cudaTypedefs.h; -DTIERMEM_CUDA_INCLUDE=<folder> names them";
}

#endif
