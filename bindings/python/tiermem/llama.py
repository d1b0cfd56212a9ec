"""Models of llama.cpp that are larger than memory, in the GGUF files that they came in.

    from tiermem.llama import Llama

    model = Llama("model.gguf", dram=8 << 30)         # a subclass of llama_cpp.Llama
    print(model("The capital of France is", max_tokens=16)["choices"][0]["text"])

The weights are read from the files when they are used, and leave memory when others need the room.
Nothing is copied, converted or written, and the package llama-cpp-python is not changed. Tokens and
logits are those of llama_cpp.Llama without repacked weights, bit for bit.
"""

import ctypes
import os

import llama_cpp

from . import default
from ._errors import make as _make_error

__all__ = ["File", "Llama"]

_STATUS = ["ok", "invalid_argument", "stale_handle", "no_capacity", "busy", "timed_out", "cancelled",
           "unsupported", "unavailable", "io_error", "discarded", "lost", "shut_down", "internal"]  # fmt: skip
_NO_AHEAD, _READ_ONLY = 1, 2


class _Options(ctypes.Structure):
    """tm_ggml_options."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extent_bytes", ctypes.c_uint64),
        ("ahead_bytes", ctypes.c_uint64),
        ("library", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class _Counters(ctypes.Structure):
    """tm_ggml_counters."""

    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64)
        for name in ("bytes", "expert_bytes", "kept_bytes", "tensors", "routed", "ahead_bytes",
                     "ahead_calls", "extent_bytes", "files")
    ]  # fmt: skip


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override."""

    _fields_ = [("pattern", ctypes.c_char_p), ("type", ctypes.c_void_p)]


def _library():
    """Return libggml-tiermem, from this package."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libggml-tiermem.so")
    if not os.path.exists(path):
        raise FileNotFoundError(f"tiermem.llama: this package has no {path}; install the wheel, or build "
                                "the target tiermem_ggml")
    library = ctypes.CDLL(path)
    library.tm_ggml_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(_Options),
                                     ctypes.POINTER(ctypes.c_void_p)]  # fmt: skip
    library.tm_ggml_buffer_type.argtypes = [ctypes.c_void_p]
    library.tm_ggml_buffer_type.restype = ctypes.c_void_p
    library.tm_ggml_check.argtypes = [ctypes.c_void_p]
    library.tm_ggml_stats.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Counters)]
    library.tm_ggml_close.argtypes = [ctypes.c_void_p]
    library.tm_ggml_close.restype = None
    library.tm_ggml_error.restype = ctypes.c_char_p
    return library


class File:
    """The weights of a model, for programs that use llama_cpp's low-level functions.

    path: the file that llama.cpp will load: the model, or the first of its files. The others are
        found by their names (MODEL-00002-of-00005.gguf). None may change while this object exists.
    context: a tiermem.Context; None: the one that all users share.
    dram: its budget for DRAM from now on, in bytes.
    extent_bytes: unit of movement; 0: 2 MiB, or less for small experts.
    ahead_bytes: the most that is read ahead; 0: a sixth of the budget, up to 64 MiB.
    ahead: whether anything is read ahead, and hints are given.
    read_only: a store to a weight is SIGSEGV. Pages are copied instead of moved, which takes twice
        the processor time.
    tensors: a regular expression of names; the others stay in llama.cpp's own memory.

    Raise Unsupported if this version of llama.cpp has other records, and ValueError if a file is no
    GGUF file, is cut, or is another part than its name says.
    """

    def __init__(self, path, *, context=None, dram=None, extent_bytes=0, ahead_bytes=0, ahead=True,
                 read_only=False, tensors=".*"):  # fmt: skip
        self.path = os.fspath(path)
        os.stat(self.path)
        self._weights = ctypes.c_void_p()
        for name in ("tensor_buft_overrides", "use_extra_bufts", "load_mode"):
            if not hasattr(llama_cpp.llama_model_params, name):
                raise _failure("unsupported", f"tiermem.llama: llama-cpp-python {llama_cpp.__version__} has no "
                               f"llama_model_params.{name}; install 0.3.36 or later")  # fmt: skip
        self._library = _library()
        self.context = default() if context is None else context
        if dram is not None:
            self.context.set_budget("dram", dram)
        address = ctypes.cast(llama_cpp.llama_model_default_params, ctypes.c_void_p).value
        options = _Options(ctypes.sizeof(_Options), extent_bytes, ahead_bytes, address,
                           (0 if ahead else _NO_AHEAD) | (_READ_ONLY if read_only else 0))  # fmt: skip
        self._must(self._library.tm_ggml_open(self.context._pointer, os.fsencode(self.path),
                                              ctypes.byref(options), ctypes.byref(self._weights)))  # fmt: skip
        self._overrides = (_Override * 2)(
            _Override(tensors.encode(), self._library.tm_ggml_buffer_type(self._weights))
        )

    def place_weights(self, params):
        """Set the fields of a llama_model_params that place the weights in the file."""
        params.tensor_buft_overrides = ctypes.addressof(self._overrides)
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
        params.use_extra_bufts = False  # They would hold copies of the weights.
        if hasattr(llama_cpp, "LLAMA_LAZY_MODE_OFF"):
            params.lazy_mode = llama_cpp.LLAMA_LAZY_MODE_OFF  # Lazy tensors stay in llama.cpp's mapping.

    def read_ahead(self, params):
        """Set the fields of a llama_context_params with which weights are read ahead."""
        callback = llama_cpp.ggml_backend_sched_eval_callback
        params.cb_eval = ctypes.cast(self._library.tm_ggml_eval, callback)
        params.cb_eval_user_data = self._weights.value

    def check(self):
        """Raise ValueError if llama.cpp has loaded another file. Call it after each load."""
        self._must(self._library.tm_ggml_check(self._weights))

    def stats(self):
        """Return the counters of tm_ggml_stats(), which tiermem_ggml.h describes."""
        counters = _Counters(ctypes.sizeof(_Counters))
        self._must(self._library.tm_ggml_stats(self._weights, ctypes.byref(counters)))
        return {name: getattr(counters, name) for name, _ in _Counters._fields_[1:]}

    def close(self):
        """Give up the file. Models and contexts over it must have ended."""
        if self._weights:
            self._library.tm_ggml_close(self._weights)
            self._weights = ctypes.c_void_p()

    def __del__(self):
        if getattr(self, "_weights", None):
            self.close()

    def _must(self, status):
        if status != 0:
            text = self._library.tm_ggml_error().decode(errors="replace")
            raise _failure(_STATUS[status] if status < len(_STATUS) else "internal", text)


class Llama(llama_cpp.Llama):
    """A llama_cpp.Llama with its weights in tiermem's memory.

    context, dram, extent_bytes, ahead_bytes, ahead, read_only, tensors: as for File.
    options: those of llama_cpp.Llama. use_mmap=False, use_mlock and lora_path are refused.
    """

    def __init__(self, model_path, *, context=None, dram=None, extent_bytes=0, ahead_bytes=0, ahead=True,
                 read_only=False, tensors=".*", **options):  # fmt: skip
        self._file = None
        for name, accepted in (("use_mmap", True), ("use_mlock", False), ("lora_path", None)):
            if options.get(name, accepted) != accepted:
                raise ValueError(f"Llama: {name} is {options[name]!r}, and weights in tiermem's memory accept "
                                 f"{accepted!r} only; leave it out, or use llama_cpp.Llama")  # fmt: skip
        self._file = File(model_path, context=context, dram=dram, extent_bytes=extent_bytes,
                          ahead_bytes=ahead_bytes, ahead=ahead, read_only=read_only, tensors=tensors)  # fmt: skip
        try:
            super().__init__(os.fspath(model_path), **options)
        except ValueError:
            self._file.check()  # Its reason is better than "Failed to load model".
            raise
        if not options.get("vocab_only", False):
            self._file.check()

    # The constructor of llama_cpp.Llama assigns both records before it uses them, and takes no
    # argument for the fields that are set here.
    @property
    def model_params(self):
        return self._model_params

    @model_params.setter
    def model_params(self, params):
        self._file.place_weights(params)
        self._model_params = params

    @property
    def context_params(self):
        return self._context_params

    @context_params.setter
    def context_params(self, params):
        self._file.read_ahead(params)
        self._context_params = params

    @property
    def file(self):
        """The File with the weights."""
        return self._file

    def close(self):
        """Free the model, then give up the file."""
        if hasattr(self, "_stack"):  # The constructor may have failed at any place.
            super().close()
        if getattr(self, "_file", None) is not None:
            self._file.close()

    def __getstate__(self):
        raise TypeError("a Llama over tiermem's memory cannot be pickled; open the model again")


def _failure(status, text):
    return _make_error(status, text, 0, "", 0, 0, 0, 0, 0, None, None, -1)
