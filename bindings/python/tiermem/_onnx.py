"""The table of external data in an .onnx file: which initializer is where in which file.

An .onnx file is a protobuf message. This module walks over the few fields that it needs, in a mapping
of the file, and skips all others: tensors inside the file are not read. The package onnx is not used.
It would load these tensors into memory, and it is larger than tiermem.

The field numbers are those of onnx.proto, which never change.
"""

import mmap
import os
from dataclasses import dataclass

# The element types of TensorProto: name, bits, and the NumPy type of the same size.
TYPES = {
    1: ("float32", 32, "f4"), 2: ("uint8", 8, "u1"), 3: ("int8", 8, "i1"), 4: ("uint16", 16, "u2"),
    5: ("int16", 16, "i2"), 6: ("int32", 32, "i4"), 7: ("int64", 64, "i8"), 9: ("bool", 8, "?"),
    10: ("float16", 16, "f2"), 11: ("float64", 64, "f8"), 12: ("uint32", 32, "u4"),
    13: ("uint64", 64, "u8"), 16: ("bfloat16", 16, "u2"), 17: ("float8e4m3fn", 8, "u1"),
    18: ("float8e4m3fnuz", 8, "u1"), 19: ("float8e5m2", 8, "u1"), 20: ("float8e5m2fnuz", 8, "u1"),
    21: ("uint4", 4, "u1"), 22: ("int4", 4, "u1"),
}  # fmt: skip

# These nodes read a few rows of their first input, not all of it.
_ROW_READERS = {"Gather", "GatherElements", "GatherND", "GatherBlockQuantized", "EmbedLayerNormalization"}

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # Wire types.


@dataclass(slots=True)
class Initializer:
    """An initializer with external data. Its bytes are [offset, offset + length) of the file."""

    name: str
    data_type: int
    shape: tuple[int, ...]
    location: str  # The path of the file, relative to the folder of the model.
    offset: int
    length: int


@dataclass(slots=True)
class Table:
    """The initializers of the main graph with external data, and how its nodes use them.

    order: their names in the order of the first use. Unused ones are not in it.
    by_rows: the names of those of which nodes read only some rows, such as embeddings.
    embedded_bytes: the size of the initializers in the model file itself.
    """

    external: dict[str, Initializer]
    order: list[str]
    by_rows: set[str]
    embedded_bytes: int


def read_table(path):
    """Return the Table of an .onnx file. Raise ValueError if it is not one, or does not fit."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise ValueError(f"{path} is not an ONNX model: it is empty; check that the download is complete")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                graph = next((span for field, span in _fields(data, 0, len(data)) if field == 7), None)
                if graph is None:
                    raise ValueError("it has no graph")
                return _table_of(data, *graph)
            except (ValueError, IndexError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path} is not an ONNX model that tiermem can read ({error}); check that the download "
                    "is complete"
                ) from None


def _table_of(data, begin, end):
    external, used, embedded = {}, {}, 0
    nodes = []
    for field, value in _fields(data, begin, end):
        if field == 1:
            nodes.append(value)
        elif field == 5:
            initializer, inside = _initializer(data, *value)
            embedded += inside
            if initializer is not None:
                external[initializer.name] = initializer
    for node in nodes:
        _note_uses(data, node, external, used)
    by_rows = {name for name, whole in used.items() if not whole}
    return Table(external, list(used), by_rows, embedded)


def _note_uses(data, node, external, used):
    """Add the initializers that a node uses to `used`: whether a node reads all of it, by name."""
    inputs, operator, graphs = [], "", []
    for field, value in _fields(data, *node):
        if field == 1:
            inputs.append(_text(data, value))
        elif field == 4:
            operator = _text(data, value)
        elif field == 5:  # Attributes; those of If, Loop and Scan are graphs.
            graphs += [span for number, span in _fields(data, *value) if number in (6, 11)]
    for place, name in enumerate(inputs):
        if name in external:
            used[name] = used.get(name, False) or operator not in _ROW_READERS or place != 0
    for graph in graphs:
        for field, value in _fields(data, *graph):
            if field == 1:
                _note_uses(data, value, external, used)


def _initializer(data, begin, end):
    """Return (Initializer, 0) for external data, and (None, its bytes in the model) otherwise."""
    name, data_type, shape, entries, is_external = "", 0, [], {}, False
    for field, value in _fields(data, begin, end):
        if field == 1:
            shape += [value] if isinstance(value, int) else _varints(data, *value)
        elif field == 2:
            data_type = value
        elif field == 8:
            name = _text(data, value)
        elif field == 13:
            pair = {number: _text(data, span) for number, span in _fields(data, *value)}
            entries[pair[1]] = pair.get(2, "")
        elif field == 14:
            is_external = value == 1
    if not is_external:
        return None, end - begin
    offset = int(entries.get("offset") or 0)
    length = int(entries["length"]) if entries.get("length") else None
    if "location" not in entries:
        raise ValueError(f"initializer {name!r} has external data without a location")
    if length is None:
        length = bytes_of(data_type, shape)
    return Initializer(name, data_type, tuple(shape), entries["location"], offset, length), 0


def bytes_of(data_type, shape):
    """Return the bytes of a tensor; None for a type that is not in TYPES."""
    if data_type not in TYPES:
        return None
    bits = TYPES[data_type][1]
    for size in shape:
        bits *= size
    return (bits + 7) // 8


def _fields(data, at, end):
    """Yield (field number, value): an int, or the span (begin, end) of bytes. Others are skipped."""
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind == _BYTES:
            length, at = _varint(data, at)
            value = (at, at + length)
            at += length
        elif kind in (_FIXED32, _FIXED64):
            value = None
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"byte {at} has the wire type {kind}")
        if at > end:
            raise ValueError(f"a field ends at byte {at} of {end}")
        if value is not None:
            yield key >> 3, value


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(f"the number at byte {at} is too long")


def _varints(data, at, end):
    values = []
    while at < end:
        value, at = _varint(data, at)
        values.append(value)
    return values


def _text(data, span):
    return data[span[0] : span[1]].decode()
