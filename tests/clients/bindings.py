"""NVIDIA's own Python bindings of the driver API, on the fake driver with two devices of 64 MiB, which
`run` puts in the place of the real one. The calls use the bindings' own structs and enumerations.

The assertions follow the driver's reference. Exit status: 0, or an AssertionError.
"""
import ctypes

from cuda.bindings import driver as cu

MIB = 1 << 20
CODES = cu.CUresult


def ok(answer):
    """Returns the outputs of a call, after checking that its result is success."""
    assert answer[0] == CODES.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]


def refused(answer, code):
    assert answer[0] == code, answer


def pattern(bytes_, seed):
    return bytes((i * 7 + seed) % 251 for i in range(251)) * (bytes_ // 251 + 1)


def read(at, bytes_):
    back = bytearray(bytes_)
    ok(cu.cuMemcpyDtoH(back, at, bytes_))
    return bytes(back)


def machine():
    refused(cu.cuDeviceGetCount(), CODES.CUDA_ERROR_NOT_INITIALIZED)
    ok(cu.cuInit(0))
    assert ok(cu.cuDriverGetVersion()) == 13050
    assert ok(cu.cuDeviceGetCount()) == 2
    devices = [ok(cu.cuDeviceGet(i)) for i in range(2)]
    assert ok(cu.cuDeviceGetName(64, devices[0])).split(b"\0")[0] == b"tiermem fake GPU"
    assert ok(cu.cuDeviceGetUuid(devices[0])).bytes != ok(cu.cuDeviceGetUuid(devices[1])).bytes
    assert ok(cu.cuDeviceTotalMem(devices[1])) == 64 * MIB
    unified = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
    assert ok(cu.cuDeviceGetAttribute(unified, devices[0])) == 1
    refused(cu.cuDeviceGet(2), CODES.CUDA_ERROR_INVALID_DEVICE)
    assert ok(cu.cuGetErrorName(CODES.CUDA_ERROR_OUT_OF_MEMORY)) == b"CUDA_ERROR_OUT_OF_MEMORY"
    refused(cu.cuMemAlloc(MIB), CODES.CUDA_ERROR_INVALID_CONTEXT)
    contexts = [ok(cu.cuDevicePrimaryCtxRetain(device)) for device in devices]
    ok(cu.cuCtxSetCurrent(contexts[0]))
    assert int(ok(cu.cuCtxGetCurrent())) == int(contexts[0])
    return contexts


def memory():
    free, total = ok(cu.cuMemGetInfo())
    assert (free, total) == (64 * MIB, 64 * MIB)
    a, b = ok(cu.cuMemAlloc(3 * MIB)), ok(cu.cuMemAlloc(3 * MIB))
    assert ok(cu.cuMemGetInfo())[0] == 58 * MIB
    refused(cu.cuMemAlloc(59 * MIB), CODES.CUDA_ERROR_OUT_OF_MEMORY)
    data = pattern(3 * MIB, 1)[:3 * MIB]
    ok(cu.cuMemcpyHtoD(a, data, len(data)))
    ok(cu.cuMemcpyDtoD(b, a, len(data)))
    ok(cu.cuMemsetD8(a, 9, MIB))
    assert read(b, len(data)) == data
    assert read(a, 2 * MIB) == b"\x09" * MIB + data[MIB:2 * MIB]
    base, size = ok(cu.cuMemGetAddressRange(int(b) + 5))
    assert (int(base), size) == (int(b), 3 * MIB)
    kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert ok(cu.cuPointerGetAttribute(kind, b)) == cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    ids = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID
    assert ok(cu.cuPointerGetAttribute(ids, a)) != ok(cu.cuPointerGetAttribute(ids, b))
    for at in (a, b):
        ok(cu.cuMemFree(at))
    refused(cu.cuMemFree(b), CODES.CUDA_ERROR_INVALID_VALUE)
    assert ok(cu.cuMemGetInfo())[0] == 64 * MIB


def streams():
    at, data = ok(cu.cuMemAlloc(4 * MIB)), pattern(4 * MIB, 2)[:4 * MIB]
    host = ok(cu.cuMemHostAlloc(4 * MIB, 0))
    ctypes.memmove(int(host), data, len(data))
    first, second = (ok(cu.cuStreamCreate(1)) for _ in range(2))
    begin, end = (ok(cu.cuEventCreate(0)) for _ in range(2))
    back = ok(cu.cuMemAllocHost(4 * MIB))
    ok(cu.cuEventRecord(begin, first))
    ok(cu.cuMemcpyHtoDAsync(at, host, 4 * MIB, first))
    ok(cu.cuEventRecord(end, first))
    ok(cu.cuStreamWaitEvent(second, end, 0))
    ok(cu.cuMemcpyDtoHAsync(back, at, 4 * MIB, second))
    ok(cu.cuStreamSynchronize(second))
    assert ctypes.string_at(int(back), 4 * MIB) == data
    assert ok(cu.cuEventElapsedTime(begin, end)) >= 0
    ok(cu.cuEventQuery(end))

    attributes = cu.CUmemcpyAttributes()
    attributes.srcAccessOrder = cu.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    halves = [cu.CUdeviceptr(int(at)), cu.CUdeviceptr(int(at) + 2 * MIB)]
    sources = [cu.CUdeviceptr(int(host) + 2 * MIB), cu.CUdeviceptr(int(host))]
    ok(cu.cuMemcpyBatchAsync(halves, sources, [2 * MIB] * 2, 2, [attributes], [0], 1, first))
    ok(cu.cuStreamSynchronize(first))
    assert read(at, 4 * MIB) == data[2 * MIB:] + data[:2 * MIB]

    mode = cu.CUstreamCaptureMode
    ok(cu.cuStreamBeginCapture(first, mode.CU_STREAM_CAPTURE_MODE_RELAXED))
    assert ok(cu.cuStreamIsCapturing(first)) == \
        cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    refused(cu.cuStreamQuery(first), CODES.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    refused(cu.cuStreamEndCapture(first), CODES.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)

    later = ok(cu.cuMemAllocAsync(2 * MIB, second))
    ok(cu.cuMemsetD8Async(later, 3, 2 * MIB, second))
    ok(cu.cuStreamSynchronize(second))
    assert read(later, 16) == b"\x03" * 16
    ok(cu.cuMemFreeAsync(later, second))
    ok(cu.cuStreamSynchronize(second))
    for event in (begin, end):
        ok(cu.cuEventDestroy(event))
    for stream in (first, second):
        ok(cu.cuStreamDestroy(stream))
    for locked in (host, back):
        ok(cu.cuMemFreeHost(locked))
    ok(cu.cuMemFree(at))


def addresses_apart():
    """Uses virtual memory management in the way of tiermem and PyTorch."""
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    least = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granularity = ok(cu.cuMemGetAllocationGranularity(properties, least))
    assert granularity == 2 * MIB
    refused(cu.cuMemCreate(MIB, properties, 0), CODES.CUDA_ERROR_INVALID_VALUE)
    at = ok(cu.cuMemAddressReserve(2 * granularity, 0, 0, 0))
    handles = [ok(cu.cuMemCreate(granularity, properties, 0)) for _ in range(2)]
    access = cu.CUmemAccessDesc()
    access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = 0
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    for i, handle in enumerate(handles):
        ok(cu.cuMemMap(int(at) + i * granularity, granularity, 0, handle, 0))
    ok(cu.cuMemSetAccess(at, 2 * granularity, [access], 1))
    data = pattern(2 * granularity, 3)[:2 * granularity]
    ok(cu.cuMemcpyHtoD(at, data, len(data)))
    # Mapped in reverse order, the halves change places, and the address stays.
    ok(cu.cuMemUnmap(at, 2 * granularity))
    for i, handle in enumerate(reversed(handles)):
        ok(cu.cuMemMap(int(at) + i * granularity, granularity, 0, handle, 0))
    ok(cu.cuMemSetAccess(at, 2 * granularity, [access], 1))
    assert read(at, len(data)) == data[granularity:] + data[:granularity]
    refused(cu.cuMemAddressFree(at, 2 * granularity), CODES.CUDA_ERROR_INVALID_VALUE)
    ok(cu.cuMemUnmap(at, 2 * granularity))
    for handle in handles:
        ok(cu.cuMemRelease(handle))
    ok(cu.cuMemAddressFree(at, 2 * granularity))
    assert ok(cu.cuMemGetInfo())[0] == 64 * MIB


def peers(contexts):
    here, data = ok(cu.cuMemAlloc(MIB)), pattern(MIB, 4)[:MIB]
    ok(cu.cuMemcpyHtoD(here, data, MIB))
    assert ok(cu.cuDeviceCanAccessPeer(0, 1)) == 1
    ok(cu.cuCtxSetCurrent(contexts[1]))
    there = ok(cu.cuMemAlloc(MIB))
    ok(cu.cuMemcpyPeer(there, contexts[1], here, contexts[0], MIB))
    assert read(there, MIB) == data
    ok(cu.cuMemFree(there))
    ok(cu.cuCtxSetCurrent(contexts[0]))
    ok(cu.cuMemFree(here))


def illegal_access():
    """Breaks the context permanently."""
    at = ok(cu.cuMemAlloc(MIB))
    ok(cu.cuMemFree(at))
    refused(cu.cuMemsetD8(at, 0, MIB), CODES.CUDA_ERROR_ILLEGAL_ADDRESS)
    refused(cu.cuMemAlloc(MIB), CODES.CUDA_ERROR_ILLEGAL_ADDRESS)
    refused(cu.cuCtxSynchronize(), CODES.CUDA_ERROR_ILLEGAL_ADDRESS)


def main():
    contexts = machine()
    memory()
    streams()
    addresses_apart()
    peers(contexts)
    illegal_access()
    for device in range(2):
        ok(cu.cuDevicePrimaryCtxRelease(device))
    print("cuda-bindings: 6 parts, all as the reference says")


main()
