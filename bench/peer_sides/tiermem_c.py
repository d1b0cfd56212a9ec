"""tiermem's C interface (bindings/c/tiermem.h) through ctypes: the part that bench/peers uses."""
import ctypes

READ, WRITE, DISCARD = 1, 2, 4


class Place(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint16), ("index", ctypes.c_uint16)]


class Stream(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("handle", ctypes.c_void_p)]


class Access(ctypes.Structure):
    _fields_ = [("buffer", ctypes.c_uint64), ("offset", ctypes.c_uint64), ("length", ctypes.c_uint64),
                ("mode", ctypes.c_uint32), ("where", Place), ("reserved", ctypes.c_uint64)]


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_uint64),
                ("token", ctypes.c_uint64 * 2), ("place", Place), ("flags", ctypes.c_uint32)]


class ErrorInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("status", ctypes.c_int32), ("native", ctypes.c_int32),
                ("tier", Place), ("buffer", ctypes.c_uint64), ("offset", ctypes.c_uint64),
                ("needed", ctypes.c_uint64), ("budget", ctypes.c_uint64), ("used", ctypes.c_uint64),
                ("pinned", ctypes.c_uint64), ("holder", ctypes.c_char_p),
                ("setting", ctypes.c_char_p), ("text", ctypes.c_char * 256)]


FOR_EVER = ctypes.c_int64(-1)
ONE = ctypes.c_size_t(1)


class Context:
    """A context with the tiers of a spec string; destroyed at the end of a `with`."""

    def __init__(self, library: str, tiers: str):
        self._lib = ctypes.CDLL(library)
        self._handle = ctypes.c_void_p()
        self._call("tm_context_create", tiers.encode(), None, ctypes.byref(self._handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._call("tm_context_destroy", self._handle, ctypes.c_uint32(1), FOR_EVER)

    def _call(self, name: str, *arguments) -> None:
        if getattr(self._lib, name)(*arguments) != 0:
            error = ErrorInfo(ctypes.sizeof(ErrorInfo))
            self._lib.tm_error(None, ctypes.c_uint64(0), ctypes.byref(error))
            raise RuntimeError(f"{name}: {error.text.decode()}")

    def alloc(self, size: int) -> int:
        buffer = ctypes.c_uint64()
        self._call("tm_alloc", self._handle, ctypes.c_uint64(size), None, ctypes.byref(buffer))
        return buffer.value

    def adopt(self, path: str) -> int:
        buffer = ctypes.c_uint64()
        self._call("tm_adopt_file", self._handle, path.encode(), ctypes.c_uint64(0),
                   ctypes.c_uint64(0), None, ctypes.byref(buffer))
        return buffer.value

    def acquire(self, buffer: int, mode: int) -> View:
        view = View()
        self._call("tm_acquire", self._handle, ctypes.byref(Access(buffer, 0, 0, mode)), ONE,
                   Stream(), FOR_EVER, ctypes.byref(view))
        return view

    def release(self, view: View) -> None:
        self._call("tm_release", self._handle, ctypes.byref(view), ONE, Stream())

    def evict(self, buffer: int) -> None:
        """Returns when all bytes are on disk only."""
        self._call("tm_evict", self._handle, ctypes.byref(Access(buffer, 0, 0, READ)), ONE, FOR_EVER)
