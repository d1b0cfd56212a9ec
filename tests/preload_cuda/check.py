#!/usr/bin/env python3
"""A Python program that has its sets of device memory moved, by ctypes and nothing else, as docs/gpu.md
shows it. Run under the preload library with the fake driver; exit code 0 when all is as it should be."""
import ctypes

MIB = 1 << 20
driver = ctypes.CDLL("libcuda.so.1")
tier = ctypes.CDLL(None)
tier.tiermem_gpu_error.restype = ctypes.c_char_p


def done(result, doing):
    assert result == 0, f"{doing}: {result} {tier.tiermem_gpu_error().decode()}"


def allocated(size):
    at = ctypes.c_uint64()
    done(driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)), "cuMemAlloc")
    return at


def moved(call, tag):
    done(call(tag, ctypes.c_uint64(0), ctypes.c_uint32(0)), call.__name__)


context = ctypes.c_void_p()
done(driver.cuInit(0), "cuInit")
done(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
done(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")

done(tier.tiermem_gpu_tag(b"weights"), "tiermem_gpu_tag")
weights = allocated(40 * MIB)
done(tier.tiermem_gpu_tag(None), "tiermem_gpu_tag")
written = bytes(range(256)) * (40 * MIB // 256)
done(driver.cuMemcpyHtoD_v2(weights, written, ctypes.c_size_t(len(written))), "cuMemcpyHtoD")

moved(tier.tiermem_gpu_pause, b"weights")
other = allocated(60 * MIB)  # With the weights there, there is no room for it.
done(driver.cuMemFree_v2(other), "cuMemFree")
moved(tier.tiermem_gpu_resume, b"weights")

read = ctypes.create_string_buffer(len(written))
done(driver.cuMemcpyDtoH_v2(read, weights, ctypes.c_size_t(len(written))), "cuMemcpyDtoH")
assert read.raw == written, "other bytes came back"
assert tier.tiermem_gpu_pause(b"no such set", ctypes.c_uint64(0), ctypes.c_uint32(0)) == 1
assert b"weights" in tier.tiermem_gpu_error()
