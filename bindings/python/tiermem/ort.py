"""ONNX Runtime over weights that are larger than memory.

    import tiermem.ort

    session = tiermem.ort.session("model.onnx", dram=8 << 30)
    outputs = session.run(None, {"input": batch})

The model has its weights in files of external data. Each file is mapped once, and ONNX Runtime computes
on the mapped bytes: it copies none of them. Weights are read ahead in the order in which the nodes use
them, a part of them stays in memory between runs, and the others give way. Nothing is written.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import random
import threading
from typing import Any

from . import Buffer, Context, Error, ShutDown, default
from ._onnx import TYPES, Initializer, Table, bytes_of, read_table
from ._paths import printable

try:
    import numpy as np
    import onnxruntime
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tiermem.ort: {error.name} is not installed; pip install 'tiermem[ort]'", name=error.name
    ) from None

__all__ = ["Session", "session"]

_EXTENT = 2 << 20
_POLL_SECONDS = 0.001
_MOST_AHEAD = 64 << 20
_MOST_SCAN = 32 << 20  # The most that a context reads ahead of a scan by itself.
_LONG_RUN = 32  # Extents. For runs of this length, the read-ahead of the context suffices.


def session(
    path: str | os.PathLike[str],
    options: onnxruntime.SessionOptions | None = None,
    *,
    context: Context | None = None,
    dram: int | None = None,
    keep: int | None = None,
    ahead: int | None = None,
    least: int = 1 << 16,
    providers: list[Any] | None = None,
    **arguments: Any,
) -> Session:
    """Return an onnxruntime.InferenceSession that computes on external weights in memory of tiermem.

    path: an .onnx file with external data beside it.
    options: SessionOptions for this session alone; weights and options are added to them. None: no
        graph optimizations, because some of them copy weights.
    context: a tiermem.Context; None: the one that all users share.
    dram: its budget for DRAM from now on, in bytes. It must hold the largest weight twice.
    keep: bytes of the weights that stay in memory between runs, at most the budget without the room
        through which the other weights pass. None: as many as are free now.
    ahead: bytes that are read ahead in the order of the nodes. None: 0 if the files have this order, too,
        because the context reads ahead of a scan by itself; else an eighth of the budget, at most 64 MiB.
    least: weights of fewer bytes stay with ONNX Runtime, as do weights inside the model file.
    providers, arguments: those of InferenceSession. None: the CPU.

    Raise ValueError if the model has no external data, or its table does not fit the files;
    FileNotFoundError if a file is missing; the errors of Context.adopt_file().
    """
    path = os.fsdecode(path)
    table = read_table(path)
    weights = _checked(path, table, least)
    context = default() if context is None else context
    if dram is not None:
        context.set_budget("dram", dram)
    options = _plain_options() if options is None else options
    _leave_unpacked(options)
    free = _free_dram(context)
    buffers = _adopt(weights, context)
    values = [_add(options, each, buffers[file]) for each, file in weights]
    made = Session(path, options, ["CPUExecutionProvider"] if providers is None else providers, **arguments)
    ranges = {each.name: (buffers[file], each.offset, each.length) for each, file in weights}
    order = [name for name in table.order if name in ranges and name not in table.by_rows]
    made._attach(context, buffers, values, ranges)
    made._reader = _Reader(context, [ranges[name] for name in order], free, keep, ahead)
    made._reader.begin()
    return made


class Session(onnxruntime.InferenceSession):
    """An InferenceSession over mapped weights: session() makes it. The weights live as long as it does.

    context  the tiermem.Context of the weights
    buffers  the buffer of each file of external data, by path
    ranges   (buffer, offset, length) of each weight, by name: for prefetch() and advise()

    After the end of the context a run raises ShutDown. While a run is under way, Context.close() raises
    Busy; with force=True it takes the memory away, and the run ends with SIGSEGV.
    """

    context: Context
    buffers: dict[str, Buffer]
    ranges: dict[str, tuple[Buffer, int, int]]

    # After the constructor: what is attached last is freed last, so the weights outlive the engine.
    def _attach(self, context, buffers, values, ranges):
        self.context = context
        self.buffers = buffers
        self.ranges = ranges
        self._values = values
        self._guard = context.alloc(1, label="a run of " + os.path.basename(printable(self._model_path)))

    @contextlib.contextmanager
    def _running(self):
        if self.context.closed:
            raise ShutDown(
                f"run: the context with the weights of {self._model_path} was closed; make a context and "
                "a session again"
            )
        with self._guard.view(), self._reader.reading():
            yield

    def run(self, *arguments, **named):
        """Do InferenceSession.run(), and read the weights ahead."""
        with self._running():
            return super().run(*arguments, **named)

    def run_with_ort_values(self, *arguments, **named):
        """Do InferenceSession.run_with_ort_values(), and read the weights ahead."""
        with self._running():
            return super().run_with_ort_values(*arguments, **named)

    def run_with_iobinding(self, *arguments, **named):
        """Do InferenceSession.run_with_iobinding(), and read the weights ahead."""
        with self._running():
            return super().run_with_iobinding(*arguments, **named)

    def run_async(self, *arguments, **named):
        """Raise NotImplementedError: nothing would tell when the run ends. Call run() in a thread."""
        raise NotImplementedError("run_async: the weights need to know the end of a run; call run() in a thread")


class _Reader:
    """Reads weights ahead of the computation, one run at a time.

    ONNX Runtime tells nothing about its progress, so the weights do. The extents in the order of their
    use are cut into groups. One absent extent of each group is not read ahead: the wire. A touch reads it,
    and shows that the computation has come to its group; then the next group is read ahead.

    In the order of the files there are no groups: the context sees a scan and reads ahead of it. Only the
    beginning is read here, at the end of each run for the next one.

    All runs use the extents in the same order, so the recently used ones are needed last. `keep` bytes,
    spread over the order, stay in memory; the others are evicted first, in the order in which they came.
    """

    GROUPS_AHEAD = 2
    WIRES_AHEAD = 4  # Beyond these groups: a run may skip groups, as branches do.

    def __init__(self, context, ranges, free, keep, ahead):
        self._context = context
        self._groups = []
        self._first = []  # The extents at the beginning of the order.
        self._pending = collections.deque(maxlen=self.GROUPS_AHEAD + 2)  # An Op that is dropped is cancelled.
        self._lock = threading.Lock()
        extents = _extents_of(ranges)
        if not extents:
            return
        unit = max(length for _, _, length in extents)
        budget = context.tiers[0]["budget"]
        if ahead is None:
            ahead = 0 if _is_scan(extents) else min(budget // 8, _MOST_AHEAD)
        group = max(ahead // self.GROUPS_AHEAD, 2 * unit) if ahead > 0 else 0
        # The weight in use, the groups ahead, the scan of the context, and room on its way pass through.
        largest = max(length for _, _, length in ranges)
        scan = min(budget // 4, _MOST_SCAN)
        passing = largest + (self.GROUPS_AHEAD + 1) * group + scan + budget // 16
        if group:
            self._groups = _cut(extents, group)
        self._first = self._groups[0] if group else _cut(extents, scan)[0]
        most = free if keep is None else min(keep + passing, budget)
        _advise(context, extents, max(most - passing, 0))

    def begin(self):
        """Read the beginning."""
        with contextlib.suppress(Error):
            self._read(self._first, None)

    @contextlib.contextmanager
    def reading(self):
        """Read ahead until the end of the block, if no other run does so."""
        if not self._lock.acquire(blocking=False):
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._follow, args=(ended,), name="tiermem-ort", daemon=True)
        try:
            if self._groups:
                thread.start()
            yield
        finally:
            ended.set()
            if self._groups:
                thread.join()
            self.begin()
            self._lock.release()

    def _follow(self, ended):
        wires = {}
        seen = watched = -1  # Groups: the last one in use, and the last one with a wire.
        begun = -1  # The last one that is read ahead.
        last = len(self._groups) - 1
        with contextlib.suppress(Error):  # The context was closed, or the file has changed: a touch tells.
            while True:
                while begun < min(seen + self.GROUPS_AHEAD, last):
                    begun += 1
                    for group in range(watched + 1, min(begun + self.WIRES_AHEAD, last) + 1):
                        # At any place: wires at equal distances would look like steps over rows, which
                        # the context reads ahead by itself.
                        absent = [each for each in self._groups[group] if _is_absent(each)]
                        wires[group] = random.choice(absent) if absent else None
                        watched = group
                    self._read(self._groups[begun], wires[begun])
                    if wires[begun] is None and begun == seen + 1:
                        seen = begun  # All of it is in memory, and nothing will show its use.
                if begun == last or ended.wait(_POLL_SECONDS):
                    return
                for group in range(watched, seen, -1):
                    if wires[group] is not None and not _is_absent(wires[group]):
                        seen = group
                        break

    def _read(self, group, wire):
        ranges = [each for each in group if each is not wire]
        if ranges:
            self._pending.append(self._context.prefetch(ranges))


def _is_absent(extent):
    buffer, offset, _ = extent
    return buffer.why(offset).startswith("in file")


def _extents_of(ranges):
    """Return the extents of the ranges as (buffer, offset, length), each once, in the order of the ranges."""
    extents = {}
    for buffer, offset, length in ranges:
        unit = buffer.info()["extent_bytes"]
        for begin in range(offset // unit * unit, offset + length, unit):
            extents[id(buffer), begin] = (buffer, begin, min(unit, buffer.nbytes - begin))
    return list(extents.values())


def _is_scan(extents):
    """Return whether the order is that of the files, up to a few jumps."""
    jumps = sum(
        buffer is not before or offset != last + length
        for (before, last, length), (buffer, offset, _) in zip(extents, extents[1:])
    )
    return jumps * _LONG_RUN <= len(extents)


def _cut(extents, nbytes):
    """Cut a list of extents into groups of about nbytes."""
    groups, size = [[]], 0
    for each in extents:
        if size >= nbytes:
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += each[2]
    return groups


def _advise(context, extents, keep):
    """Keep a share of the extents in memory, spread evenly, and let the others leave after their use."""
    unit = max(length for _, _, length in extents)
    kept = min(keep // unit, len(extents))
    if kept == len(extents):
        return  # All of them fit.
    context.advise(extents, "streamed")
    if kept:
        chosen = [extents[i * len(extents) // kept] for i in range(kept)]
        context.advise(chosen, "keep", 1)


def _checked(path: str, table: Table, least: int) -> list[tuple[Initializer, str]]:
    """Return the weights that tiermem takes, each with the path of its file. Check all of them."""
    folder = os.path.dirname(path)
    sizes: dict[str, int] = {}
    weights = []
    for each in table.external.values():
        what = f"tiermem.ort: weight {each.name!r} of {path}"
        if each.data_type not in TYPES:
            accepted = ", ".join(name for name, _, _ in TYPES.values())
            raise ValueError(
                f"{what} has the element type {each.data_type} of ONNX; accepted are {accepted}: convert "
                "it, or use onnxruntime.InferenceSession"
            )
        inside = os.path.normpath(each.location)
        if os.path.isabs(inside) or inside.split(os.sep)[0] == "..":
            raise ValueError(
                f"{what} is at {each.location!r}, which is not in the folder of the model; move the file there"
            )
        file = os.path.join(folder, inside)
        if file not in sizes:
            try:
                sizes[file] = os.stat(file).st_size
            except FileNotFoundError:
                raise FileNotFoundError(
                    f"{what} is in {file}, which does not exist; download it, too, or name it as the model does"
                ) from None
        needed = bytes_of(each.data_type, each.shape)
        if each.length != needed:
            raise ValueError(
                f"{what} has {each.length} bytes in {file}, but its shape {list(each.shape)} of "
                f"{TYPES[each.data_type][0]} needs {needed}; export the model again"
            )
        if each.offset < 0 or each.offset + each.length > sizes[file]:
            raise ValueError(
                f"{what} ends at byte {each.offset + each.length} of {file}, which has {sizes[file]} bytes; "
                "check that the download is complete"
            )
        if each.length >= max(least, 1):
            weights.append((each, file))
    if not weights:
        raise ValueError(
            f"tiermem.ort: {path} has no external data of at least {least} bytes for one weight, and "
            f"{table.embedded_bytes} bytes of weights inside; use onnxruntime.InferenceSession, or save it "
            "with onnx.save(model, path, save_as_external_data=True)"
        )
    return weights


def _plain_options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Threads that spin take the processor from those that bring the bytes.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _leave_unpacked(options: onnxruntime.SessionOptions) -> None:
    """Switch prepacking off: packed weights would be a copy of each in plain memory."""
    key = "session.disable_prepacking"
    with contextlib.suppress(RuntimeError):  # It is not set.
        if options.get_session_config_entry(key) == "1":
            return  # To set it again is a warning of ONNX Runtime.
    options.add_session_config_entry(key, "1")


def _free_dram(context: Context) -> int:
    dram = context.tiers[0]
    return max(dram["budget"] - dram["used"], 0)


def _adopt(weights: list[tuple[Initializer, str]], context: Context) -> dict[str, Buffer]:
    # A private mapping: its pages move instead of being copied, and may be huge. Eviction finds by their
    # checksums that they are unchanged.
    budget = context.tiers[0]["budget"]
    extent = 0  # The context's own.
    if budget < 64 * _EXTENT:
        extent = max(1 << (budget // 64).bit_length() - 1, 64 << 10)
    buffers = {}
    for _, file in weights:
        if file not in buffers:
            buffers[file] = context.adopt_file(
                file, mapped=True, private=True, extent_bytes=extent, label=os.path.basename(printable(file))
            )
    return buffers


def _add(options: onnxruntime.SessionOptions, weight: Initializer, buffer: Buffer) -> Any:
    """Give a weight to the options. Return the OrtValue, which must live as long as the session."""
    _, bits, dtype = TYPES[weight.data_type]
    count = weight.length // np.dtype(dtype).itemsize
    # By its address, because an array over the buffer would keep the context from being closed while
    # the session lives. A run checks that the context is open, and then keeps it so: _running().
    memory = type("_Memory", (ctypes.c_uint8 * buffer.nbytes,), {}).from_address(buffer.address)
    memory.buffer = buffer  # The array keeps the buffer.
    array = np.frombuffer(memory, dtype, count, weight.offset)
    if bits < 8:
        # ONNX Runtime counts elements, and NumPy bytes. Nothing beyond weight.length is touched.
        strides = [1] * len(weight.shape)
        for at in range(len(strides) - 2, -1, -1):
            strides[at] = strides[at + 1] * weight.shape[at + 1]
        array = np.lib.stride_tricks.as_strided(array, weight.shape, strides)
    else:
        array = array.reshape(weight.shape)
    value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, weight.data_type)
    options.add_initializer(weight.name, value)
    return value
