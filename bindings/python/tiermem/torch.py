"""PyTorch tensors over tiermem's memory, and training with less memory than the state needs.

    import tiermem, tiermem.torch

    optimizer = tiermem.torch.tier(torch.optim.AdamW(model.parameters(), fused=True), model)
    for batch in batches:
        with tiermem.torch.offload_activations():
            loss = model(batch)
        loss.backward()          # steps each parameter, and drops its gradient
        optimizer.step()         # marks the end of the step

Parameters and moments are in mapped buffers: ordinary CPU tensors with fixed addresses, of which the
recently used part is in memory. The results are those of plain PyTorch, bit for bit.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import torch

try:
    from torch.utils.weak import WeakIdKeyDictionary

    torch.Tensor.register_post_accumulate_grad_hook  # For tier().
except (ImportError, AttributeError):
    raise ImportError(f"tiermem.torch needs PyTorch 2.1 or later, and this is {torch.__version__}") from None

from . import Buffer, Context, default, gpu_tag
from ._native import _cuda_functions
from ._tensors import TYPES, Tensor

__all__ = ["TieredOptimizer", "buffer_of", "cuda_allocator", "cuda_pool", "empty", "from_tensor",
           "gpu_set", "offload_activations", "place", "tier", "zeros"]  # fmt: skip

# The buffers of tensors, for hints. No attribute of the tensor, because that would be pickled with it.
# A tensor may leave its buffer, by to(), share_memory_() and .data: see buffer_of().
_buffers = WeakIdKeyDictionary()
_NAMES = {getattr(torch, name): name for name in TYPES if hasattr(torch, name)}


def _name_of(dtype):
    try:
        return _NAMES[dtype]
    except KeyError:
        accepted = ", ".join(_NAMES.values())
        raise TypeError(f"{dtype} has no type in DLPack; accepted are {accepted}") from None


def from_tensor(tensor: Tensor) -> torch.Tensor:
    """Return the torch tensor over a tiermem.Tensor. It keeps the bytes alive, or pinned for a view.

    PyTorch has no read-only tensors: a store into a tensor over a read-only view of an adopted file
    ends the process with SIGSEGV, and a message that names the buffer.
    """
    return torch.from_dlpack(tensor)


def zeros(
    *shape: int | Iterable[int],
    dtype: torch.dtype | None = None,
    context: Context | None = None,
    label: str | None = None,
    **options: Any,
) -> torch.Tensor:
    """Return a new tensor of zeros in a mapped buffer. It uses no memory until it is touched.

    context: a tiermem.Context; None: the one that all users share. options: those of Context.alloc().
    """
    if len(shape) == 1 and not isinstance(shape[0], int):
        shape = tuple(shape[0])
    dtype = torch.get_default_dtype() if dtype is None else dtype
    name = _name_of(dtype)
    nbytes = math.prod(shape) * (TYPES[name][1] // 8)
    if nbytes == 0:
        return torch.zeros(shape, dtype=dtype)
    context = default() if context is None else context
    buffer = context.alloc(nbytes, mapped=True, label=label, **options)
    tensor = torch.from_dlpack(Tensor(buffer, name, shape))
    _buffers[tensor] = buffer
    return tensor


empty = zeros  # New buffers read as zeros without being written.


def buffer_of(tensor: torch.Tensor) -> Buffer | None:
    """Return the Buffer of a tensor that zeros(), empty(), place() or tier() placed, or None. For hints.

    None also after the tensor has got other memory, as by Module.to(), share_memory_() and .data.
    """
    buffer = _buffers.get(tensor)
    if buffer is not None and not _is_in(tensor, buffer):
        del _buffers[tensor]
        buffer = None
    return buffer


def _is_in(tensor, buffer):
    if buffer.freed or tensor.device.type != "cpu":
        return False
    if buffer.context.closed:
        return True  # It tells no address any more.
    return 0 <= tensor.data_ptr() - buffer.address < buffer.nbytes


def _moved(tensor, context, label):
    """Return a copy of the tensor in a mapped buffer, or the tensor if it cannot be one."""
    dense = tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.is_contiguous()
    if not dense or tensor.numel() == 0 or tensor.dtype not in _NAMES:
        return tensor
    placed = zeros(tensor.shape, dtype=tensor.dtype, context=context, label=label)
    with torch.no_grad():
        placed.copy_(tensor)
    return placed


def place(
    module: torch.nn.Module, *, context: Context | None = None, least: int = 1 << 16
) -> torch.nn.Module:
    """Move the parameters of a Module to mapped buffers. They keep their identity. Return the module.

    Call it for each layer as soon as it exists, and the model is never in plain memory as a whole.
    least: parameters of fewer bytes stay where they are.
    """
    context = default() if context is None else context
    for name, parameter in module.named_parameters():
        _place(parameter, context, name, least)
    _trim()
    return module


def _place(parameter, context, label, least):
    """Move a parameter unless it is in its buffer. Return whether it has moved."""
    if parameter.numel() * parameter.element_size() < least or buffer_of(parameter) is not None:
        return False
    data = parameter.data
    placed = _moved(data, context, label)
    if placed is data:
        return False
    parameter.data = placed
    _buffers[parameter] = buffer_of(placed)
    return True


def _trim():
    """Give freed memory back to the kernel.

    PyTorch aligns each block, so glibc cannot use a freed block for another one of the same size: what
    moved to a buffer would stay in memory a second time.
    """
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class TieredOptimizer(torch.optim.Optimizer):
    """An optimizer with parameters and state in mapped buffers: tier() makes it.

    It is an Optimizer, for schedulers, GradScaler and checkpoints. Its groups, state and defaults are
    those of `optimizer`. state_dict() returns the state itself: torch.save() streams it.

    Hooks of steps run once for each step(), also those that `optimizer` had. Hooks of state_dict() and
    load_state_dict() are hooks of `optimizer`, and get it as their argument. It cannot be copied or
    pickled: save its state_dict().
    """

    # The __init__ of Optimizer is not called, because it would make groups and state of its own.
    def __init__(self, optimizer, names, context, step_in_backward, least):
        self.optimizer = optimizer
        self.context = context
        self._names = names
        self._least = least
        self._step_in_backward = step_in_backward
        self._hooks = WeakIdKeyDictionary()  # By parameter: its hook, or None.
        self._warned_capturable_if_run_uncaptured = True
        # The inner step() is called for each parameter, and these hooks are for a whole step.
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            setattr(self, name, getattr(optimizer, name))
            setattr(optimizer, name, OrderedDict())
        self._patch_step_function()
        self._adopt()

    def _parameters(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _adopt(self):
        """Place parameters that are new or have left their buffers. Step new ones in backward()."""
        moved = False
        for parameter in self._parameters():
            label = self._names.get(parameter, "parameter")
            moved = _place(parameter, self.context, label, self._least) or moved
            if parameter in self._hooks:
                continue
            # A frozen parameter takes no hook. If it gets a gradient later, step() steps it.
            hooked = self._step_in_backward and parameter.requires_grad
            self._hooks[parameter] = (
                parameter.register_post_accumulate_grad_hook(self._step_one) if hooked else None
            )
        if moved:
            _trim()

    # The optimizer makes the state of a parameter at its first step. It moves right then, so that
    # there is never more of it in plain memory than that of one parameter.
    def _step_one(self, parameter):
        everything = self.optimizer.param_groups
        group = next((g for g in everything if any(p is parameter for p in g["params"])), None)
        if group is None:
            return  # It was taken out of the groups.
        self.optimizer.param_groups = [{**group, "params": [parameter]}]
        try:
            self.optimizer.step()
        finally:
            self.optimizer.param_groups = everything
        if self._step_in_backward:
            parameter.grad = None
        self._place_state(parameter)

    def _place_state(self, parameter):
        state = self.optimizer.state.get(parameter, {})
        moved = False
        for key, value in state.items():
            if (
                torch.is_tensor(value)
                and buffer_of(value) is None
                and value.numel() * value.element_size() >= self._least
            ):
                label = f"{key} {self._names.get(parameter, '')}".strip()
                state[key] = _moved(value, self.context, label)
                moved = True
        if moved:
            del value
            _trim()

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Mark the end of a step, and step each parameter that has a gradient.

        With step_in_backward, backward() has stepped the parameters and dropped their gradients. Only
        parameters that were appended to a group, or were frozen before, have a gradient here.
        """
        if closure is not None:
            raise NotImplementedError("closures are not supported; compute the loss before step()")
        self._adopt()
        for parameter in self._parameters():
            if parameter.grad is not None:
                self._step_one(parameter)
        self.context.tick(step=True)

    def zero_grad(self, set_to_none=True):
        """Drop the gradients, as the optimizer does."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group):
        """Add a group, as the optimizer does, and place its parameters."""
        self.optimizer.add_param_group(param_group)
        self._adopt()

    def state_dict(self):
        """Return the state, as the optimizer does."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict):
        """Load a state, and place it in mapped buffers."""
        self.optimizer.load_state_dict(state_dict)
        for parameter in self._parameters():
            self._place_state(parameter)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        return self.optimizer.register_state_dict_pre_hook(hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        return self.optimizer.register_state_dict_post_hook(hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        return self.optimizer.register_load_state_dict_pre_hook(hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        return self.optimizer.register_load_state_dict_post_hook(hook, prepend)

    @property
    def param_groups(self):
        """The groups of the optimizer. Another list is taken over, and its parameters are placed."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups):
        self.optimizer.param_groups = groups
        self._adopt()

    @property
    def state(self):
        """The state of the optimizer."""
        return self.optimizer.state

    @state.setter
    def state(self, state):
        self.optimizer.state = state

    @property
    def defaults(self):
        """The defaults of the optimizer."""
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, defaults):
        self.optimizer.defaults = defaults

    # GradScaler would hand its factors to step(), which fused optimizers use, and not to `optimizer`.
    # With False it divides the gradients itself.
    _step_supports_amp_scaling = False

    def __getattr__(self, name):  # Attributes of one class of optimizers.
        if "optimizer" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self):
        return f"TieredOptimizer of {self.optimizer!r}"

    def __reduce_ex__(self, protocol):
        raise TypeError("a TieredOptimizer cannot be copied or pickled; save its state_dict()")


def tier(
    optimizer: torch.optim.Optimizer,
    model: torch.nn.Module | None = None,
    *,
    context: Context | None = None,
    dram: int | None = None,
    step_in_backward: bool = True,
    least: int = 1 << 16,
) -> TieredOptimizer:
    """Place the parameters and the state of an optimizer in mapped buffers. Return a TieredOptimizer.

    Call it before the first step. Parameters keep their identity, so the model needs no change.

    model: a Module, for the names of the buffers.
    context: a tiermem.Context; None: the one that all users share.
    dram: its budget for DRAM from now on, in bytes.
    step_in_backward: step each parameter as soon as backward() has its gradient, and drop the
        gradient. Gradients then need no memory; they cannot be clipped, accumulated or scaled by a
        GradScaler.
    least: parameters and state of fewer bytes stay in plain memory.

    The optimizer must treat its parameters one by one, as SGD, Adam, AdamW, RMSprop and Adagrad do.
    Raise TypeError for others.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is {optimizer!r}; it must be a torch.optim.Optimizer")
    if isinstance(optimizer, TieredOptimizer):
        raise TypeError("the optimizer is tiered already; use it as it is")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("LBFGS steps all parameters together; use an optimizer that steps each by itself")
    context = default() if context is None else context
    if dram is not None:
        context.set_budget("dram", dram)
    names = {parameter: name for name, parameter in model.named_parameters()} if model is not None else {}
    return TieredOptimizer(optimizer, names, context, step_in_backward, least)


class _Saved:
    """An activation in a buffer."""

    __slots__ = ("buffer", "dtype", "shape")

    def __init__(self, tensor, context):
        self.dtype = _name_of(tensor.dtype)
        self.shape = tuple(tensor.shape)
        self.buffer = context.alloc(tensor.numel() * tensor.element_size(), label="activation")
        with self.buffer.view(mode="w") as view:
            torch.from_dlpack(Tensor(view, self.dtype, self.shape)).copy_(tensor)

    def load(self):
        return torch.from_dlpack(Tensor(self.buffer.view(mode="rw"), self.dtype, self.shape))


@contextlib.contextmanager
def offload_activations(*, context: Context | None = None, least: int = 1 << 20) -> Iterator[None]:
    """Keep what the forward pass saves for the backward pass in buffers, which may exceed memory.

    Tensors of fewer than `least` bytes, parameters, and tensors of other devices stay where they are.
    """
    context = default() if context is None else context

    def pack(tensor):
        owner = tensor._base if tensor._base is not None else tensor
        if (
            isinstance(owner, torch.nn.Parameter)
            or tensor.device.type != "cpu"
            or tensor.layout != torch.strided
            or not tensor.is_contiguous()
            or tensor.dtype not in _NAMES
            or tensor.numel() * tensor.element_size() < max(least, 1)
        ):
            return tensor
        return _Saved(tensor.detach(), context)

    def unpack(packed):
        return packed.load() if isinstance(packed, _Saved) else packed

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


# ---- Memory of GPUs


def cuda_allocator(context: Context | None = None) -> torch.cuda.memory.CUDAPluggableAllocator:
    """Return a torch.cuda.memory.CUDAPluggableAllocator over the GPUs of a context.

    context: a tiermem.Context with the option gpu; None: the one that all users share. There is one
    such context in a process: a later call changes it for later allocations. Each allocation takes
    whole pieces of 2 MiB, so that cuda_pool(), in which PyTorch cuts them, suits most programs.
    """
    path, malloc, free = _cuda_functions(context)
    return torch.cuda.memory.CUDAPluggableAllocator(path, malloc, free)


def cuda_pool(context: Context | None = None, **options: Any) -> torch.cuda.MemPool:
    """Return a torch.cuda.MemPool with memory from cuda_allocator().

    Use it with torch.cuda.use_mem_pool(pool). options: those of MemPool.
    """
    return torch.cuda.MemPool(cuda_allocator(context).allocator(), **options)


@contextlib.contextmanager
def gpu_set(tag: str) -> Iterator[None]:
    """Let memory that this thread takes from cuda_allocator() belong to a set.

    Context.gpu_pause(tag) then moves it off the GPU, and gpu_resume(tag) back to its addresses. Other
    threads, such as those of autograd, take memory of no set.
    """
    gpu_tag(tag)
    try:
        yield
    finally:
        gpu_tag(None)
