"""Buffers larger than any one memory.

    import tiermem

    context = tiermem.Context("dram=4G; nvme=/data:100G")   # or tiermem.default()
    moments = context.alloc(64 << 30, mapped=True, label="moments")
    memory = memoryview(moments)             # fixed addresses; absent bytes come when they are touched

    weights = context.adopt_file("model.bin")
    with weights.view(0, 2 << 20) as view:   # pinned until the end of the block
        total = sum(view[:100])

tiermem.numpy and tiermem.torch make arrays and tensors; tiermem.safetensors, tiermem.hf,
tiermem.ort and tiermem.llama read models. None of them is imported before it is asked for.
"""

from __future__ import annotations

import json as _json

from . import _native
from ._errors import (
    Busy,
    Cancelled,
    DeviceError,
    Discarded,
    Error,
    Internal,
    InvalidArgument,
    Lost,
    NoCapacity,
    NotFound,
    ShutDown,
    StaleHandle,
    TimedOut,
    Unavailable,
    Unsupported,
    make as _make_error,
)
from ._native import Buffer, Context, Op, Queue, Store, View, gpu_tag
from ._ops import wait_for as _wait_for
from ._tensors import Tensor, to_dlpack as _to_dlpack

__all__ = [
    "Buffer", "Busy", "Cancelled", "Context", "DeviceError", "Discarded", "Error", "Internal",
    "InvalidArgument", "Lost", "NoCapacity", "NotFound", "Op", "Queue", "ShutDown", "StaleHandle", "Store", "Tensor", "TimedOut",
    "Unavailable", "Unsupported", "View", "default", "gpu_tag", "run_path", "topology",
]  # fmt: skip

TYPE_CHECKING = False  # As typing.TYPE_CHECKING, without its import.
if TYPE_CHECKING:
    from typing import Any

__version__: str = _native.library_version()

_native._connect(_make_error, _wait_for)


def _stats(self):
    """Return the counters of the context by name. They count bytes, unless docs/receipts.md says else."""
    return _json.loads(self._stats_json(0))["counters"]


def _receipts(self, last=100):
    """Return what transfers did: totals by channel, and the newest receipts, as docs/receipts.md says."""
    told = _json.loads(self._stats_json(last))
    return {"channels": told["channels"], "last": told["last"]}


# These methods are easier to write in Python.
Context.stats = _stats
Context.receipts = _receipts
Buffer.__dlpack__ = _to_dlpack
View.__dlpack__ = _to_dlpack


def default() -> Context:
    """Return the context that all users in this process share: adapters use it if none is given.

    Its tiers are those of the environment variable TIERMEM_TIERS, else what the machine offers. It
    lives until the process ends. A child of fork gets one of its own.
    """
    return Context(_shared=True)


def run_path() -> str:
    """Return the path of the program `tiermem`, which is in the wheel."""
    from .__main__ import program_path

    return program_path()


def topology() -> dict[str, Any]:
    """Return what `tiermem topo --json` says about this machine, as a dictionary.

    Raise InvalidArgument for options in the environment that are not accepted, such as TIERMEM_TIERS.
    """
    import subprocess

    done = subprocess.run([run_path(), "topo", "--json"], capture_output=True)
    if done.returncode != 0:
        reason = done.stderr.decode(errors="backslashreplace").strip()
        status = "invalid_argument" if done.returncode == 2 else "internal"
        text = f"topology: {reason or f'the program ended with the status {done.returncode}'}"
        raise _make_error(status, text, 0, "", 0, 0, 0, 0, 0, None, None, -1)
    return _json.loads(done.stdout)
