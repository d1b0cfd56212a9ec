"""NumPy arrays over tiermem's memory.

    import tiermem.numpy
    table = tiermem.numpy.zeros((10_000_000, 256), "float32", label="table")

The arrays are plain ndarray objects over mapped buffers. An array keeps its buffer, and the buffer its
context, until the last array over it is gone.
"""

import math

import numpy as np

from . import Buffer, default

__all__ = ["buffer_of", "empty", "load", "zeros"]


def zeros(shape, dtype=float, *, context=None, label=None, **options):
    """Return a new array of zeros. It uses no memory until it is touched.

    context: a tiermem.Context; None: the one that all users share. options: those of Context.alloc().
    """
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"dtype {dtype} has references to Python objects, which cannot be tiered")
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return np.zeros(shape, dtype)
    context = default() if context is None else context
    buffer = context.alloc(nbytes, mapped=True, label=label, **options)
    return np.frombuffer(buffer, dtype).reshape(shape)


empty = zeros  # New buffers read as zeros without being written.


def load(path, *, context=None, label=None, **options):
    """Return a copy of the array in a .npy file, in a mapped buffer.

    The file is read piece by piece, so it may be larger than memory.
    """
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{path}: version {version} of the .npy format; accepted are 1.0 and 2.0")
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read_header(file)
        array = zeros(shape[::-1] if fortran else shape, dtype, context=context, label=label, **options)
        memory = memoryview(array.reshape(-1).view(np.uint8))
        done = 0
        while done < len(memory):
            count = file.readinto(memory[done : done + (16 << 20)])
            if count == 0:
                raise ValueError(f"{path}: it ends after {done} of {len(memory)} bytes of data")
            done += count
    return array.T if fortran else array


def buffer_of(array):
    """Return the Buffer of an array that zeros(), empty() or load() made, or None.

    For hints: tiermem.numpy.buffer_of(table).prefetch(0, 1 << 20).
    """
    base = array
    while base is not None:
        if isinstance(base, memoryview):
            base = base.obj
        if isinstance(base, Buffer):
            return base
        base = getattr(base, "base", None)
    return None
