"""NumPy arrays over tiermem's memory.

    import tiermem.numpy
    table = tiermem.numpy.zeros((10_000_000, 256), "float32", label="table")

The arrays are plain ndarray objects over mapped buffers. An array keeps its buffer, and the buffer its
context, until the last array over it is gone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np

from . import Buffer, Context, default
from ._paths import printable

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["buffer_of", "empty", "load", "zeros"]


def zeros(
    shape: SupportsIndex | Iterable[SupportsIndex],
    dtype: DTypeLike = float,
    *,
    context: Context | None = None,
    label: str | None = None,
    **options: Any,
) -> NDArray[Any]:
    """Return a new array of zeros. It uses no memory until it is touched.

    context: a tiermem.Context; None: the one that all users share. options: those of Context.alloc().
    """
    dtype = _tierable(dtype)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return np.zeros(shape, dtype)
    context = default() if context is None else context
    buffer = context.alloc(nbytes, mapped=True, label=label, **options)
    # A type with a shape of its own, such as ("f4", 2), adds its dimensions.
    return np.frombuffer(buffer, dtype.base).reshape(shape + dtype.shape)


def _tierable(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the dtype. TypeError if its values cannot be in tiered memory."""
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"dtype {dtype} has references to Python objects, which cannot be tiered")
    return dtype


empty = zeros  # New buffers read as zeros without being written.


def load(
    path: str | bytes | os.PathLike[Any],
    mmap_mode: Literal["r", "c"] | None = None,
    *,
    context: Context | None = None,
    label: str | None = None,
    **options: Any,
) -> NDArray[Any]:
    """Return the array in a .npy file, which may be larger than memory.

    mmap_mode: as for numpy.load(). None: a copy in a mapped buffer, read piece by piece. "r": the file
    itself, read when it is touched; stores are refused. "c": the same, and stores are kept in the
    buffer, never in the file. The file must not change then.

    options: those of Context.alloc(), or with mmap_mode of Context.adopt_file(). The unit of movement
    of a file is 64 KiB, which is read by the page where touches are far from each other.
    extent_bytes=2 << 20 suits arrays that are always read from end to end.

    Errors: ValueError if the file has no array or ends early, and for another mmap_mode; TypeError for
    arrays of Python objects; the errors of the call that makes the buffer.
    """
    if mmap_mode not in (None, "r", "c"):
        raise ValueError(f'mmap_mode {mmap_mode!r}; accepted are None, "r" and "c" (files are never written)')
    name = printable(path)
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{name}: version {version} of the .npy format; accepted are 1.0 and 2.0")
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read_header(file)
        shape = shape[::-1] if fortran else shape
        if mmap_mode is None:
            array = _copy_of(file, name, shape, dtype, context, label, options)
        else:
            array = _adopted(file, name, shape, dtype, mmap_mode, context, label, options)
    return array.T if fortran else array


def _copy_of(file, name, shape, dtype, context, label, options):
    """Return a new array with the bytes that follow in the file."""
    array = zeros(shape, dtype, context=context, label=label, **options)
    memory = memoryview(array.reshape(-1).view(np.uint8))
    done = 0
    while done < len(memory):
        count = file.readinto(memory[done : done + (16 << 20)])
        if count == 0:
            raise ValueError(f"{name}: it ends after {done} of {len(memory)} bytes of data")
        done += count
    return array


def _adopted(file, name, shape, dtype, mmap_mode, context, label, options):
    """Return an array over the bytes that follow in the file, which stay there."""
    dtype = _tierable(dtype)
    offset = file.tell()
    nbytes = math.prod(shape) * dtype.itemsize
    there = os.fstat(file.fileno()).st_size - offset
    if there < nbytes:
        raise ValueError(f"{name}: it ends after {there} of {nbytes} bytes of data")
    if nbytes == 0:
        return np.zeros(shape, dtype)
    context = default() if context is None else context
    options = {"extent_bytes": 64 << 10, **options}
    # By its descriptor: the path may name another file by now.
    buffer = context.adopt_file(
        f"/proc/self/fd/{file.fileno()}",
        offset,
        nbytes,
        mapped=True,
        private=mmap_mode == "c",
        label=name if label is None else label,
        **options,
    )
    return np.frombuffer(buffer, dtype).reshape(shape)


def buffer_of(array: Any) -> Buffer | None:
    """Return the Buffer of an array that zeros(), empty() or load() made, or None.

    For hints: tiermem.numpy.buffer_of(table).prefetch(0, 1 << 20).
    """
    base = array
    while base is not None:
        if isinstance(base, memoryview):
            base = getattr(base.obj, "owner", base.obj)  # The exporter names the Buffer.
        if isinstance(base, Buffer):
            return base
        base = getattr(base, "base", None)
    return None
