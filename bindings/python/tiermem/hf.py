"""Models of Hugging Face that are larger than memory, without a copy in an offload folder.

    from accelerate import cpu_offload, init_empty_weights
    import tiermem.hf

    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(config)
    weights = tiermem.hf.open("path/of/the/model")       # a folder, an index, or a .safetensors file
    cpu_offload(model, execution_device="cpu", state_dict=weights)
    with torch.no_grad():
        model.generate(...)

Weights are read from the files when a module needs them, and those of the next modules are read
ahead, in the order of the last pass. Nothing is written. With gradients PyTorch keeps every weight for
the backward pass, so that none of them makes room: use torch.no_grad().
"""

from __future__ import annotations

import io
import json
import os
import weakref
from collections.abc import Mapping
from typing import Any

from . import Context, default
from ._paths import printable
from .safetensors import safe_open

__all__ = ["Weights", "open"]


def open(
    path: str | bytes | os.PathLike[Any],
    *,
    context: Context | None = None,
    dram: int | None = None,
    ahead: int = 2,
    timeout: float | None = 60.0,
) -> Weights:
    """Return the tensors of a model as a mapping by name.

    path: a .safetensors file, a .index.json file, or a folder with one of them.
    context: a tiermem.Context; None: the one that all users share.
    dram: its budget for DRAM from now on, in bytes. It must hold the largest module twice.
    ahead: how many of the next tensors are read ahead; 0: none.
    timeout: the longest wait in seconds for a tensor; None has no limit. After it the mapping raises
        NoCapacity, with the file that holds the room, or TimedOut.
    """
    context = default() if context is None else context
    if dram is not None:
        context.set_budget("dram", dram)
    return Weights(_files_of(os.fsdecode(path)), context, ahead, timeout)


class Weights(Mapping[str, Any]):
    """Tensors by name, over adopted files. A tensor is pinned in memory while it lives."""

    def __init__(self, paths, context, ahead=2, timeout=60.0):
        self.context = context
        self._ahead = ahead
        self._file_of = {}
        for path in paths:
            file = safe_open(path, framework="pt", context=context, timeout=timeout)
            for name in file.keys():
                if name in self._file_of:
                    raise ValueError(
                        f"tensor {name!r} is in {printable(path)} and in another file; keep one of them"
                    )
                self._file_of[name] = file
        self._live = weakref.WeakValueDictionary()
        self._next = {}  # By name: the tensor that was asked for after it.
        self._last = None

    def __getitem__(self, name):
        file = self._file_of[name]
        # Tied weights are recognised by their address: the same tensor while it lives.
        tensor = self._live.get(name)
        if tensor is None:
            tensor = file.get_tensor(name)
            self._live[name] = tensor
        self._note(name)
        return tensor

    def __iter__(self):
        return iter(self._file_of)

    def __len__(self):
        return len(self._file_of)

    def __contains__(self, name):
        return name in self._file_of

    def prefetch(self, names):
        """Read tensors ahead. Does nothing for those that have no room."""
        ranges = [self._file_of[name].range_of(name) for name in names]
        ranges = [each for each in ranges if each[2] != 0]
        return self.context.prefetch(ranges) if ranges else None

    def _note(self, name):
        if self._last is not None:
            self._next[self._last] = name
        self._last = name
        ahead, at = [], name
        while len(ahead) < self._ahead and (at := self._next.get(at)) not in (None, name):
            ahead.append(at)
        missing = [each for each in ahead if each not in self._live]
        if missing:
            self.prefetch(missing)


def _files_of(path):
    if os.path.isdir(path):
        for name in ("model.safetensors.index.json", "model.safetensors"):
            if os.path.exists(os.path.join(path, name)):
                return _files_of(os.path.join(path, name))
        raise FileNotFoundError(
            f"{printable(path)} has neither model.safetensors nor model.safetensors.index.json; give the path of a "
            "file"
        )
    if not path.endswith(".json"):
        return [path]
    return _files_of_index(path)


def _files_of_index(path):
    """Return the paths of the files that an index names. ValueError if it is damaged."""
    told = printable(path)
    with io.open(path, "rb") as file:
        try:
            index = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{told} is not an index of safetensors files: it is not JSON ({error})") from None
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not names:
        raise ValueError(f"{told} is not an index of safetensors files: it has no weight_map of tensors; "
                         "check that the download is complete")  # fmt: skip
    folder = os.path.dirname(path)
    for tensor, name in names.items():
        if not isinstance(name, str) or not name or os.path.isabs(name) or ".." in name.split("/"):
            raise ValueError(f"{told}: tensor {tensor!r} is in {name!r}, which is not the name of a file in "
                             "the folder of the index")  # fmt: skip
    return [os.path.join(folder, name) for name in sorted(set(names.values()))]
