"""Signals that end calls that wait: Ctrl-C, and any other signal with a handler that raises."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import tiermem

MIB = 1 << 20


class Interrupted(Exception):
    """The exception of the handler, in the place of KeyboardInterrupt."""


def raise_interrupted(number, frame):
    raise Interrupted


class Signals(unittest.TestCase):
    """The whole budget is pinned, and there is no drive: calls that need room wait."""

    def setUp(self):
        self.context = tiermem.Context("dram=16M; nvme=off", name=self.id())
        self.buffer = self.context.alloc(64 * MIB, label="hog")
        self.views = []
        with contextlib.suppress(tiermem.NoCapacity):
            while True:
                self.views.append(self.buffer.view(2 * MIB * len(self.views), 2 * MIB, "w", timeout=0.3))
        self.before = signal.signal(signal.SIGUSR1, raise_interrupted)

    def tearDown(self):
        signal.signal(signal.SIGUSR1, self.before)
        self.context.close(force=True)

    def calls(self, timeout):
        """Return the calls that wait for room, by name."""
        store = tiermem.Store(self.context, 8 * MIB)

        def wait_for_op():
            op = self.context.acquire_async([(self.buffer, 40 * MIB, 4096)], "w")
            return op.wait(timeout)

        return {
            "view": lambda: self.buffer.view(40 * MIB, 4096, "w", timeout),
            "acquire": lambda: self.context.acquire([(self.buffer, 40 * MIB, 4096)], "w", timeout=timeout),
            "write": lambda: self.buffer.write(bytes(5 * MIB), 40 * MIB, timeout=timeout),
            "read": lambda: self.buffer.read(0, 64 * MIB, timeout=timeout),
            "readinto": lambda: self.buffer.readinto(bytearray(64 * MIB), timeout=timeout),
            "copy": lambda: self.context.copy([(self.buffer, 40 * MIB, b"x" * 4096, "w")], timeout=timeout),
            "set_budget": lambda: self.context.set_budget("dram", 4 * MIB, timeout),
            "put": lambda: store.put([(b"k", b"v" * 5000)], timeout=timeout),
            "wait": wait_for_op,
        }

    def test_a_handler_ends_every_call_that_waits(self):
        for timeout in (None, 30):
            for name, call in self.calls(timeout).items():
                with self.subTest(name, timeout=timeout):
                    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
                    timer.start()
                    begun = time.monotonic()
                    with self.assertRaises(Interrupted):
                        call()
                    timer.join()
                    self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(self.buffer.info()["pinned"], 16 * MIB, "nothing of these calls is left")
        self.assertEqual(self.context.tiers[0]["budget"], 16 * MIB)

    def test_a_timeout_is_that_of_the_whole_call(self):
        for name, call in self.calls(0.35).items():
            with self.subTest(name):
                begun = time.monotonic()
                with self.assertRaises((tiermem.NoCapacity, tiermem.TimedOut)) as caught:
                    call()
                self.assertGreaterEqual(time.monotonic() - begun, 0.34)
                if name != "wait":
                    self.assertEqual(caught.exception.holder, "hog")
                    self.assertIn("hog", str(caught.exception))

    def test_calls_go_on_where_a_slice_has_ended(self):
        for name in ("view", "acquire", "write", "copy", "put", "wait"):
            call = self.calls(30)[name]
            with self.subTest(name):
                timer = threading.Timer(0.5, lambda: (self.views.pop().release(), self.free_one()))
                timer.start()
                result = call()
                timer.join()
                for view in result if isinstance(result, list) else [result]:
                    if isinstance(view, tiermem.View):
                        view.release()
                self.buffer.advise("dont_need", 40 * MIB, 8 * MIB)

    def test_a_handler_waits_for_the_same_operation(self):
        op = self.context.acquire_async([(self.buffer, 40 * MIB, 4096)], "w")
        got = []

        def handler(number, frame):
            self.views.pop().release()
            self.free_one()
            got.append(op.wait(20))

        signal.signal(signal.SIGUSR1, handler)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        self.assertIs(op.wait(30), op.wait())
        timer.join()
        self.assertEqual(got, [op.wait()])
        op.wait()[0].release()

    def free_one(self):
        """Give up the bytes of the view that was released."""
        at = 2 * MIB * len(self.views)
        self.buffer.advise("dont_need", at, 2 * MIB)

    def test_a_handler_that_returns_ends_nothing(self):
        ran = []
        signal.signal(signal.SIGUSR1, lambda *_: ran.append(time.monotonic()))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with self.assertRaises(tiermem.NoCapacity):
            self.buffer.view(40 * MIB, 4096, "w", timeout=0.6)
        ended = time.monotonic()
        self.assertEqual(len(ran), 1)
        self.assertGreater(ended - ran[0], 0.2, "the handler runs during the wait")

    def test_other_threads_wait_as_before(self):
        caught = []

        def wait():
            try:
                self.buffer.view(40 * MIB, 4096, "w", timeout=0.3)
            except tiermem.Error as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        self.assertEqual(caught[0].holder, "hog")


# Loaded before the library: the end of a context takes two seconds.
SLOW_END = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>
int tm_context_destroy(void* context, uint32_t flags, int64_t timeout_ns) {
  void* library = dlopen("libtiermem.so.0", RTLD_LAZY | RTLD_NOLOAD);  /* Not global. */
  int (*real)(void*, uint32_t, int64_t) = dlsym(library, "tm_context_destroy");
  sleep(2);
  return real(context, flags, timeout_ns);
}
"""

CLOSES = """
import signal, threading, os, time
import tiermem
class Interrupted(Exception): pass
def handler(number, frame): raise Interrupted
signal.signal(signal.SIGUSR1, handler)
context = tiermem.Context("dram=8M; nvme=off")
buffer = context.alloc(4096)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
begun = time.monotonic()
try:
    context.close()
except Interrupted:
    print("interrupted", time.monotonic() - begun < 1.5)
try:
    buffer.write(b"x")
except tiermem.Error as error:
    print(type(error).__name__)
context.close()
print("ended", 1.5 < time.monotonic() - begun < 30, context.closed)
"""


class TheEndOfAContext(unittest.TestCase):
    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_close_goes_on_after_a_signal_and_the_next_one_waits_for_it(self):
        with open("/proc/self/maps") as maps:
            if "/libtiermem.so.0" not in maps.read():
                self.skipTest("the library has another name here, as in a wheel")
        with tempfile.TemporaryDirectory() as folder:
            source, library = os.path.join(folder, "slow.c"), os.path.join(folder, "slow.so")
            with open(source, "w") as file:
                file.write(SLOW_END)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
            done = subprocess.run([sys.executable, "-c", CLOSES], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "LD_PRELOAD": library})  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split("\n")[:3], ["interrupted True", "ShutDown", "ended True True"])


class LongCopies(unittest.TestCase):
    """Copies through a small budget take many slices and many pieces."""

    def test_bytes_are_those_that_were_written(self):
        with tempfile.TemporaryDirectory() as folder:
            with tiermem.Context(f"dram=8M; nvme={folder}:256M") as context:
                buffer = context.alloc(64 * MIB + 4097, extent_bytes=65536)
                content = bytes(range(251)) * ((64 * MIB + 4097) // 251 + 1)
                content = content[: buffer.nbytes]
                buffer.write(content)
                self.assertEqual(buffer.read(), content)
                buffer.write(content[:100_001], 3)
                self.assertEqual(buffer.read(0, 70_000), content[:3] + content[: 70_000 - 3])
                del buffer


if __name__ == "__main__":
    unittest.main()
