"""A storage connector of LMCache (multiprocess mode, second level), loaded from its configuration.

    {"type": "native_plugin", "module_path": "tiermem.lmcache", "class_name": "TiermemConnector",
     "adapter_params": {"tiers": "dram=2G; nvme=/nvme:200G", "capacity": "200G"}}

The store is bounded by `capacity`. Every object is checked when it comes back: a damaged object is not
loaded.
"""

import collections
import itertools
import os
import select
import threading

import tiermem

from ._sizes import parse

__all__ = ["TiermemConnector"]


class TiermemConnector:
    """The connector. Its copies run on threads of tiermem; one descriptor tells their ends.

    capacity: bytes of all objects, as a number or as a text such as "200G".
    tiers: as for tiermem.Context; None: the context that all users in the process share.
    """

    def __init__(self, capacity, tiers=None):
        context = tiermem.default() if tiers is None else tiermem.Context(tiers, name="lmcache")
        self._store = tiermem.Store(context, parse(capacity), name="lmcache")
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._numbers = itertools.count(1)
        self._done = collections.deque()
        self._poll = select.epoll()
        self._waiting = {}  # By descriptor: (number, operation, is it a put).
        self._closing = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._closing, select.EPOLLIN)
        self._thread = threading.Thread(target=self._watch, name="tiermem-lmcache", daemon=True)
        self._thread.start()

    def event_fd(self):
        """Return the descriptor that is readable once drain_completions() has something."""
        return self._event

    def submit_batch_set(self, keys, memoryviews):
        """Start to store objects. Return the number of the batch."""
        return self._begin(self._store.put_async, keys, memoryviews, True)

    def submit_batch_get(self, keys, memoryviews):
        """Start to load objects. Return the number of the batch."""
        return self._begin(self._store.get_into_async, keys, memoryviews, False)

    def submit_batch_exists(self, keys):
        """Look for objects. Return the number of the batch."""
        return self._tell(self._store.exists(keys))

    def submit_batch_delete(self, keys):
        """Drop objects. Return the number of the batch."""
        return self._tell(self._store.delete(keys))

    def drain_completions(self):
        """Return (number, ok, error, result for each object) of the batches that have ended."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass
        ended = []
        while self._done:
            ended.append(self._done.popleft())
        return ended

    def close(self):
        """End the connector. Batches in progress end first."""
        os.eventfd_write(self._closing, 1)
        self._thread.join()
        self._store.close()
        self._poll.close()
        os.close(self._closing)
        os.close(self._event)

    def _begin(self, copy, keys, memoryviews, puts):
        number = next(self._numbers)
        objects = [(key, memoryview(each).cast("B")) for key, each in zip(keys, memoryviews, strict=True)]
        operation = copy(objects, errors="miss")
        fd = operation.open_fd()
        self._waiting[fd] = (number, operation, puts)
        self._poll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
        return number

    def _tell(self, result):
        number = next(self._numbers)
        self._add((number, True, "", result))
        return number

    def _add(self, completion):
        self._done.append(completion)
        os.eventfd_write(self._event, 1)

    def _watch(self):
        closing = False
        while not closing or self._waiting:
            for fd, _ in self._poll.poll():
                if fd == self._closing:
                    closing = True
                    self._poll.unregister(fd)
                else:
                    self._end(fd)

    def _end(self, fd):
        number, operation, puts = self._waiting.pop(fd)
        self._poll.unregister(fd)
        os.close(fd)
        try:
            copied = [each is not None for each in operation.wait()]
        except tiermem.Error as error:
            self._add((number, False, str(error), None))
            return
        refused = puts and not all(copied)
        self._add((number, not refused, "the store has no room" if refused else "", copied))
