"""NVIDIA's libcufile on the fake driver: cufile.py LIBRARY FILE. It opens, registers the file and device
memory, and moves bytes both ways. Without nvidia-fs it must report compatibility mode.

cuda-bindings creates and reads the device memory. Exit status: 0, or an AssertionError.
"""
import ctypes
import os
import sys

from cuda.bindings import driver as cu

BYTES = 4 << 20
O_DIRECT_FD = 1  # CU_FILE_HANDLE_TYPE_OPAQUE_FD


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("driver", ctypes.c_int)]


class Descriptor(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("fd", ctypes.c_void_p), ("operations", ctypes.c_void_p)]


class Properties(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint), ("minor", ctypes.c_uint), ("poll", ctypes.c_size_t),
                ("most_direct", ctypes.c_size_t), ("status", ctypes.c_uint),
                ("control", ctypes.c_uint), ("rest", ctypes.c_uint * 32)]


def open_library(path):
    library = ctypes.CDLL(path)
    for name in ("DriverOpen", "DriverGetProperties", "HandleRegister", "BufRegister",
                 "BufDeregister", "DriverClose_v2"):
        getattr(library, "cuFile" + name).restype = Error
    for name in ("cuFileRead", "cuFileWrite"):
        function = getattr(library, name)
        function.restype = ctypes.c_ssize_t
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64,
                             ctypes.c_int64]
    return library


def done(error):
    assert (error.code, error.driver) == (0, 0), (error.code, error.driver)


def of_driver(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]


def move(library, file, handle, at, data):
    """Writes and reads back; both the file and the device must then hold `data`."""
    of_driver(cu.cuMemcpyHtoD(at, data, BYTES))
    assert library.cuFileWrite(handle, int(at), BYTES, 0, 0) == BYTES
    with open(file, "rb") as plain:
        assert plain.read() == data
    of_driver(cu.cuMemsetD8(at, 0, BYTES))
    assert library.cuFileRead(handle, int(at), BYTES, 0, 0) == BYTES
    back = bytearray(BYTES)
    of_driver(cu.cuMemcpyDtoH(back, at, BYTES))
    assert bytes(back) == data


def main():
    path, file = sys.argv[1:]
    library = open_library(path)
    of_driver(cu.cuInit(0))
    of_driver(cu.cuCtxSetCurrent(of_driver(cu.cuDevicePrimaryCtxRetain(0))))
    done(library.cuFileDriverOpen())
    properties = Properties()
    done(library.cuFileDriverGetProperties(ctypes.byref(properties)))
    assert properties.status == 0, "without nvidia-fs nothing is direct"
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    handle = ctypes.c_void_p()
    descriptor = Descriptor(O_DIRECT_FD, fd, None)
    done(library.cuFileHandleRegister(ctypes.byref(handle), ctypes.byref(descriptor)))
    at = of_driver(cu.cuMemAlloc(BYTES))
    move(library, file, handle, at, os.urandom(BYTES))
    address = ctypes.c_void_p(int(at))
    done(library.cuFileBufRegister(address, ctypes.c_size_t(BYTES), 0))
    move(library, file, handle, at, os.urandom(BYTES))
    done(library.cuFileBufDeregister(address))
    of_driver(cu.cuMemFree(at))
    library.cuFileHandleDeregister(handle)
    os.close(fd)
    done(library.cuFileDriverClose_v2())
    version = ctypes.c_int()
    library.cuFileGetVersion(ctypes.byref(version))
    print(f"libcufile {version.value / 1000:.2f}: {4 * BYTES >> 20} MiB by it, as they were")


main()
