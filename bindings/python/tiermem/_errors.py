"""The exceptions. Each is also the exception of Python that callers expect for the case."""

import errno


class Error(Exception):
    """An error of tiermem. str(error) is one sentence with operation, object, limit and remedy.

    status   name of the code, such as "no_capacity"
    native   errno, or the driver's code; 0: none
    tier     the tier of the error, such as "dram:0"; "": none
    device   number of the device of the tier, as in the option nvme; -1: none
    offset   offset in the buffer; on the device if tier is a block tier
    needed, budget, used, pinned   bytes: asked for; of the tier
    holder   label of the buffer with the most pinned bytes, or None
    setting  the option to change, as it is spelled, or None
    """

    status = "internal"
    native = 0
    tier = ""
    device = -1
    offset = needed = budget = used = pinned = 0
    holder = setting = None


class InvalidArgument(Error, ValueError):
    """The call is wrong."""


class NotFound(InvalidArgument, FileNotFoundError):
    """There is no such file."""


class StaleHandle(Error, ValueError):
    """The buffer was freed."""


class NoCapacity(Error, MemoryError):
    """There is no room: free, release or wait. The message names the tier, its budget and a holder."""


class Busy(Error, BlockingIOError):
    """The bytes are pinned or moving, or the timeout is 0 and the call would wait.

    With the timeout 0, Op.wait(), evict() and close() raise TimedOut, and set_budget() NoCapacity.
    """


class TimedOut(Error, TimeoutError):
    """The timeout expired first."""


class Cancelled(Error):
    """The operation was cancelled."""


class Unsupported(Error, NotImplementedError):
    """This version does not support it."""


class Unavailable(Error, OSError):
    """There is no driver, device, permission or tier for it in this context."""


class DeviceError(Error, OSError):
    """A device refused a request. The bytes are where they were."""


class Discarded(Error, OSError):
    """Bytes of a droppable buffer were dropped: compute them again."""


class Lost(Error, OSError):
    """Bytes are lost."""


class ShutDown(Error, RuntimeError, ValueError):
    """The context is closing, is closed, or belongs to the parent process.

    Also a ValueError, as Python's own objects raise after close().
    """


class Internal(Error, RuntimeError):
    """A defect of tiermem."""


_BY_STATUS = {
    "invalid_argument": InvalidArgument,
    "stale_handle": StaleHandle,
    "no_capacity": NoCapacity,
    "busy": Busy,
    "timed_out": TimedOut,
    "cancelled": Cancelled,
    "unsupported": Unsupported,
    "unavailable": Unavailable,
    "io_error": DeviceError,
    "discarded": Discarded,
    "lost": Lost,
    "shut_down": ShutDown,
}


def make(status, text, native, tier, offset, needed, budget, used, pinned, holder, setting, device):
    """Return the exception of a failed call. The C module raises it."""
    kind = _BY_STATUS.get(status, Internal)
    if kind in (InvalidArgument, DeviceError) and native == errno.ENOENT:
        kind = NotFound  # Also for the files of options, such as stats_file.
    error = kind(text or f"the call ended with the status {status}, and has no message")
    error.status = status
    error.native = native
    error.tier = tier
    error.device = device
    error.offset = offset
    error.needed = needed
    error.budget = budget
    error.used = used
    error.pinned = pinned
    error.holder = holder or None
    error.setting = setting or None
    if native and isinstance(error, OSError):
        error.errno = native
    return error
