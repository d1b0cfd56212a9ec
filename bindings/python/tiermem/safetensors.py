"""Tensors of a .safetensors file that may be larger than memory.

    with tiermem.safetensors.safe_open("model.safetensors", framework="pt") as file:
        weight = file.get_tensor("model.embed.weight")

The names are those of the library safetensors. A tensor is memory of tiermem: it is read when it is
asked for, stays in place while it lives, and makes room afterwards. Nothing is written. Checksums:
bytes that are read again must be those of the first time.

With mapped=True a tensor pins nothing: its bytes come when they are touched, and may leave while it
lives. All tensors together may then be larger than memory.
"""

from __future__ import annotations

import json
import math
import os
import struct
from typing import Any, Literal, Self

from . import Buffer, Context, NoCapacity, TimedOut, default
from ._paths import printable
from ._tensors import Tensor, bytes_of

__all__ = ["safe_open"]

_TYPES = {
    "BOOL": "bool",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
}  # fmt: skip
_LARGEST_HEADER = 100_000_000  # The limit of the format.


class safe_open:
    """A .safetensors file. Use it as a context manager, or close() it.

    framework: "pt" or "torch", "np" or "numpy".
    writable: tensors may be changed; the changes are in memory only, and end with close().
    mapped: tensors are memory that is not pinned. A mapped file that is changed raises SIGBUS.
    context: a tiermem.Context; None: the one that all users share.
    timeout: the longest wait in seconds for a tensor; None has no limit. After it get_tensor() raises
        NoCapacity, with the buffer that holds the room, or TimedOut. Mapped tensors do not wait.
    """

    buffer: Buffer | None  # None once it was closed.

    def __init__(
        self,
        filename: str | bytes | os.PathLike[Any],
        framework: Literal["pt", "torch", "np", "numpy"] = "pt",
        device: Any = "cpu",
        *,
        writable: bool = False,
        mapped: bool = False,
        context: Context | None = None,
        timeout: float | None = 60.0,
    ) -> None:
        if framework not in ("pt", "torch", "np", "numpy"):
            raise ValueError(f"framework is {framework!r}; accepted are 'pt' and 'np'")
        if str(device) != "cpu":
            raise ValueError(f"device is {device!r}; accepted is 'cpu': move the tensor afterwards")
        self._from_dlpack = _torch_tensor if framework in ("pt", "torch") else _numpy_array
        self._path = printable(filename)
        self._mode = "rw" if writable else "r"
        self._mapped = mapped
        self._timeout = timeout
        self._entries, self._metadata, self._begin = _read_header(filename, self._path)
        context = default() if context is None else context
        label = os.path.basename(self._path)
        self.buffer = context.adopt_file(filename, private=writable, mapped=mapped, label=label)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the file. Tensors that are still there stay valid."""
        self.buffer = None

    def keys(self) -> list[str]:
        """Return the names of the tensors, in the order of the file."""
        return list(self._entries)

    offset_keys = keys

    def metadata(self) -> dict[str, str] | None:
        """Return the metadata of the file, or None."""
        return self._metadata

    def get_tensor(self, name: str) -> Any:
        """Return the tensor. Its bytes are pinned while it lives, unless the file is mapped."""
        dtype, shape, begin = self._entry(name)
        return self._tensor(dtype, shape, begin)

    def get_slice(self, name: str) -> _Slice:
        """Return a slice: an object that reads only the rows that its index selects."""
        dtype, shape, begin = self._entry(name)
        return _Slice(self, dtype, shape, begin)

    def range_of(self, name: str) -> tuple[Buffer, int, int]:
        """Return (buffer, offset, length) of a tensor, for prefetch() and advise()."""
        dtype, shape, begin = self._entry(name)
        return (self.buffer, begin, bytes_of(dtype, shape))

    def _entry(self, name):
        self._check_open()
        try:
            return self._entries[name]
        except KeyError:
            raise KeyError(f"{self._path} has no tensor {name!r}") from None

    def _check_open(self):
        if self.buffer is None:
            raise ValueError(f"{self._path} is closed; open it again")

    def _tensor(self, dtype, shape, begin):
        self._check_open()
        length = bytes_of(dtype, shape)
        if length == 0:
            return self._from_dlpack(Tensor(_Nothing(), dtype, shape), dtype)
        if self._mapped:
            return self._from_dlpack(Tensor(self.buffer, dtype, shape, begin), dtype)
        view = self._view(begin, length)
        return self._from_dlpack(Tensor(view, dtype, shape), dtype)

    def _view(self, begin, length):
        try:
            return self.buffer.view(begin, length, self._mode, self._timeout)
        except (NoCapacity, TimedOut) as error:
            error.args = (
                f"get_tensor: {length} bytes of {self._path} were not in memory after {self._timeout} s: "
                f"{error}; delete tensors that are not used any more, run the model under "
                "torch.no_grad(), or pass a longer timeout",
            )
            raise


class _Slice:
    def __init__(self, file, dtype, shape, begin):
        self._file, self._dtype, self._shape, self._begin = file, dtype, shape, begin

    def get_shape(self) -> list[int]:
        """Return the shape of the whole tensor."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """Return the name of the type in the file."""
        return next(name for name, ours in _TYPES.items() if ours == self._dtype)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple) and not index:
            index = ...  # NumPy would make a number of a scalar.
        first, *rest = index if isinstance(index, tuple) else (index,)
        if not self._shape and index is not ...:
            raise IndexError("the tensor has no dimension to slice")
        whole = self._file
        if isinstance(first, slice) and first.step in (None, 1):
            start, stop, _ = first.indices(self._shape[0])
            row = bytes_of(self._dtype, self._shape[1:])
            rows = (max(stop - start, 0), *self._shape[1:])
            part = whole._tensor(self._dtype, rows, self._begin + start * row)
            return part[(slice(None), *rest)] if rest else part
        return whole._tensor(self._dtype, self._shape, self._begin)[index]


class _Nothing:
    """The owner of a tensor without elements."""

    def _dlpack(self, code, bits, shape, offset, versioned):
        raise BufferError("a tensor without elements has no memory")


def _read_header(filename, path):
    """Return the entries by name, as (type, shape, offset in the file), the metadata, and where data begin.

    Raise ValueError with the file, as `path`, and the entry if the header is damaged.
    """
    size = os.stat(filename).st_size
    with open(filename, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else None
        if length is None or length > min(_LARGEST_HEADER, size - 8):
            raise ValueError(
                f"{path} is not a safetensors file: its header would have {length} bytes, and the file "
                f"has {size}; check that the download is complete"
            )
        header = _parse_header(path, file.read(length))
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    ):
        raise ValueError(f"{path}: its metadata are not texts by name; check that the download is complete")
    begin = 8 + length
    found = [(name, *_parse_entry(path, name, entry, size - begin)) for name, entry in header.items()]
    found.sort(key=lambda each: each[3:])
    end, before = 0, None
    for name, _, _, first, last in found:
        if first < end and first < last:
            raise ValueError(f"{path}: tensors {before!r} and {name!r} overlap; check that the download is "
                             "complete")  # fmt: skip
        if last > end:
            end, before = last, name
    return {name: (dtype, shape, begin + first) for name, dtype, shape, first, _ in found}, metadata, begin


def _parse_header(path, text):
    def no_number(name):
        raise ValueError(f"{name} is not a number of JSON")

    def no_repeats(pairs):
        made = dict(pairs)
        if len(made) != len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} occurs twice")
        return made

    try:
        header = json.loads(text, parse_constant=no_number, object_pairs_hook=no_repeats)
    except RecursionError:
        raise ValueError(f"{path} is not a safetensors file: its header is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a safetensors file: its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} is not a safetensors file: its header is not a JSON object")
    return header


def _is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _is_size(value):
    return _is_whole(value) and 0 <= value < 1 << 63


def _parse_entry(path, name, entry, there):
    """Return (type, shape, first, last) of an entry in a file with `there` bytes of data."""

    def damaged(why):
        return ValueError(f"{path}: tensor {name!r} {why}; check that the download is complete")

    if not isinstance(entry, dict):
        raise damaged("has no JSON object as its entry")
    missing = [key for key in ("dtype", "shape", "data_offsets") if key not in entry]
    if missing:
        raise damaged(f"has no {missing[0]!r} in its entry")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise ValueError(f"{path}: tensor {name!r} has the type {dtype}; accepted are {', '.join(_TYPES)}")
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        raise damaged(f"has the shape {shape!r}, which is not a list of whole numbers from 0 to 2**63 - 1")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_whole, offsets)):
        raise damaged(f"has the offsets {offsets!r}, which are not two whole numbers")
    first, last = offsets
    if last - first != bytes_of(_TYPES[dtype], shape) or not 0 <= first <= last <= there:
        raise damaged(
            f"is at {first} to {last} of {there} bytes of data, which does not fit its shape {shape}"
        )
    return _TYPES[dtype], tuple(shape), first, last


def _torch_tensor(tensor, dtype):
    import torch

    if tensor.nbytes == 0:
        return torch.empty(tensor.shape, dtype=getattr(torch, dtype))
    from .torch import from_tensor

    return from_tensor(tensor)


def _numpy_array(tensor, dtype):
    import numpy as np

    if dtype not in np.sctypeDict:
        raise TypeError(f"NumPy has no type {dtype}; use framework='pt'")
    if tensor.nbytes == 0:
        return np.empty(tensor.shape, dtype)
    # Not by DLPack: NumPy before 2.1 knows no read-only tensors there.
    count = math.prod(tensor.shape)
    return np.frombuffer(tensor.owner, dtype, count, tensor.offset).reshape(tensor.shape)
