"""Buffers and views as tensors of other libraries, by the DLPack protocol."""

from __future__ import annotations

import operator

TYPE_CHECKING = False  # As typing.TYPE_CHECKING, without its import.
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, SupportsIndex

    from ._native import Buffer, View

# Codes of DLDataTypeCode in dlpack.h, and bits.
TYPES = {
    "bool": (6, 8),
    "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16),
    "complex64": (5, 64), "complex128": (5, 128),
    "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8),
}  # fmt: skip

HOST = (1, 0)  # kDLCPU


def _is_versioned(max_version, dl_device, copy):
    if dl_device is not None and tuple(dl_device) != HOST:
        raise BufferError(f"device {dl_device}: the bytes are in host memory; ask for it, and copy")
    if copy:
        raise BufferError("copy=True: tiermem exports memory without a copy; copy the tensor")
    return max_version is not None and max_version[0] >= 1


def to_dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """Return a capsule over all bytes, as uint8. The tensor keeps them alive, or pinned for a view.

    Read-only bytes need a consumer that knows DLPack 1. A Tensor has another type and shape.
    """
    versioned = _is_versioned(max_version, dl_device, copy)
    return self._dlpack(*TYPES["uint8"], (self.nbytes,), 0, versioned)


class Tensor:
    """A part of a mapped buffer or of a view, with a type and a shape: for any from_dlpack().

    owner   a Buffer that is mapped, or a View. The new tensor keeps it alive.
    dtype   name of the element's type, such as "bfloat16"
    shape   numbers of elements; row-major
    offset  of the first element, in bytes
    """

    __slots__ = ("owner", "dtype", "shape", "offset")

    owner: Buffer | View
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def __init__(
        self, owner: Buffer | View, dtype: str, shape: Iterable[SupportsIndex], offset: SupportsIndex = 0
    ) -> None:
        if dtype not in TYPES:
            raise ValueError(f"dtype is {dtype!r}; accepted are {', '.join(sorted(TYPES))}")
        self.owner = owner
        self.dtype = dtype
        self.shape = tuple(map(operator.index, shape))
        self.offset = operator.index(offset)

    def __repr__(self) -> str:
        return f"<tiermem.Tensor {self.dtype}{list(self.shape)} at {self.offset} of {self.owner!r}>"

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return bytes_of(self.dtype, self.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        versioned = _is_versioned(max_version, dl_device, copy)
        return self.owner._dlpack(*TYPES[self.dtype], self.shape, self.offset, versioned)


def bytes_of(dtype, shape):
    """Return the bytes of a tensor of this type and shape."""
    elements = 1
    for size in shape:
        elements *= size
    return elements * (TYPES[dtype][1] // 8)
