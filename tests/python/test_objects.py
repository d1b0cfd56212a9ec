"""Contexts, buffers, views and operations of the Python package."""

import asyncio
import contextlib
import ctypes
import gc
import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import tiermem

SPEC = "dram=16M; nvme={}:64M"


class Objects(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.context = tiermem.Context(SPEC.format(self.folder.name), name=self.id())

    def tearDown(self):
        if not self.context.closed:
            self.context.close(force=True)
        self.folder.cleanup()

    def test_bytes_exceed_memory(self):
        buffer = self.context.alloc(40 << 20, label="large")
        for at in range(0, 40 << 20, 1 << 20):
            buffer.write((at >> 20).to_bytes(1, "little") * (1 << 20), at)
        for at in range(0, 40 << 20, 1 << 20):
            with buffer.view(at, 1 << 20) as view:
                self.assertEqual(bytes(view), (at >> 20).to_bytes(1, "little") * (1 << 20))
        self.assertGreater(self.context.stats()["demoted"], 0)

    def test_a_view_is_memory(self):
        buffer = self.context.alloc(1 << 20)
        with buffer.view(100, 50, "w") as view:
            self.assertEqual((len(view), view.nbytes, view.readonly), (50, 50, False))
            view[:] = bytes(range(50))
            view[3] = 200
        with buffer.view(100, 50) as view:
            self.assertTrue(view.readonly)
            self.assertEqual((view[0], view[3], bytes(view[10:13])), (0, 200, b"\n\x0b\x0c"))
            with self.assertRaises(TypeError):
                view[0] = 1
        self.assertTrue(view.released)
        with self.assertRaisesRegex(ValueError, "was released"):
            view[0]
        view.release()

    def test_a_view_stays_while_memory_uses_it(self):
        buffer = self.context.alloc(1 << 20)
        view = buffer.view(0, 4096, "rw")
        memory = memoryview(view)
        with self.assertRaisesRegex(BufferError, "1 memoryviews"):
            view.release()
        with self.assertRaisesRegex(BufferError, "1 views and tensors"):
            buffer.free()
        memory.release()
        view.release()
        buffer.free()
        self.assertTrue(buffer.freed)
        for call in (buffer.view, buffer.read, buffer.info, buffer.why, lambda: len(buffer)):
            with self.assertRaisesRegex(ValueError, "was freed"):
                call()

    def test_a_mapped_buffer_is_memory(self):
        if not self.context.can_map:
            self.skipTest("this machine has no mapped buffers")
        buffer = self.context.alloc(32 << 20, mapped=True)
        memory = memoryview(buffer)
        for at in range(0, 32 << 20, 1 << 20):
            memory[at] = (at >> 20) + 1
        self.assertEqual([memory[at] for at in range(0, 32 << 20, 1 << 20)], list(range(1, 33)))
        self.assertEqual(buffer.read(5 << 20, 1), b"\x06")
        with self.assertRaises(BufferError):
            buffer.free()
        memory.release()
        buffer.free()

    def test_a_buffer_prefers_a_memory(self):
        self.context.close()
        spec = "dram=16M; numa=0:16M; nvme=" + self.folder.name + ":64M"
        try:
            self.context = tiermem.Context(spec)
        except tiermem.Error as refused:
            self.skipTest(str(refused))
        buffer = self.context.alloc(4 << 20, preferred="numa:0", label="far")
        buffer.write(b"x" * (4 << 20))
        self.assertIn("numa 0", buffer.why())
        buffer.advise("preferred", tier="dram")
        self.context.advise([buffer], "preferred", tier="numa:0")
        self.context.advise([buffer], "preferred")
        self.assertEqual(buffer.read(0, 1), b"x")
        with self.assertRaisesRegex(tiermem.Error, "'far' prefers numa 99.*dram, numa 0"):
            self.context.alloc(4096, preferred="numa:99", label="far")
        with self.assertRaisesRegex(ValueError, "only 'preferred' takes a tier"):
            buffer.advise("cold", tier="dram")
        with self.assertRaisesRegex(ValueError, "tier is 'node1'"):
            buffer.advise("preferred", tier="node1")

    def test_a_plain_buffer_has_no_address(self):
        buffer = self.context.alloc(4096)
        self.assertIsNone(buffer.address)
        self.assertFalse(hasattr(buffer, "__array_interface__"))
        with self.assertRaisesRegex(BufferError, "mapped=True"):
            memoryview(buffer)

    def test_ranges_are_checked(self):
        buffer = self.context.alloc(10_000)
        for arguments, message in (
            ((10_001,), "offset is 10001"),
            ((9_999, 2), "2 bytes from offset 9999"),
            ((10_000,), "0 bytes at offset 10000"),
            ((-1,), "offset is -1"),
            ((0, 2**64), "length is 18446744073709551616"),
            ((0, 0), "at least 1 byte"),
            ((0, 1, "x"), "mode is 'x'"),
            ((0, 1, "r", -1), "timeout is -1"),
            ((0, 1, "r", float("nan")), "timeout is nan"),
        ):
            with self.subTest(arguments), self.assertRaisesRegex(ValueError, message):
                buffer.view(*arguments)
        with self.assertRaisesRegex(TypeError, "unexpected argument 'size'"):
            buffer.view(size=1)
        with self.assertRaisesRegex(TypeError, "several values for argument 'offset'"):
            buffer.view(0, offset=0)
        with self.assertRaisesRegex(ValueError, "from offset 9999"):
            buffer.write(b"xx", 9_999)
        with self.assertRaisesRegex(ValueError, "the buffer has 10000 bytes"):
            buffer.read(0, 1 << 40)
        self.assertEqual(buffer.read(10_000), b"")

    def test_several_ranges_at_once(self):
        one, two = self.context.alloc(1 << 20), self.context.alloc(1 << 20)
        views = self.context.acquire([(one, 0, 10, "w"), (two, 5), two], "rw")
        self.assertEqual([view.nbytes for view in views], [10, (1 << 20) - 5, 1 << 20])
        views[1][0] = 77
        self.assertEqual(views[2][5], 77)
        for view in views:
            view.release()
        with self.assertRaisesRegex(ValueError, "at least one"):
            self.context.acquire([])
        with self.assertRaisesRegex(TypeError, "tiermem.Buffer, not 3"):
            self.context.acquire([3])

    def test_without_room_the_error_is_a_memory_error(self):
        big = self.context.alloc(12 << 20, label="the holder")
        other = self.context.alloc(12 << 20, label="other")
        with big.view(mode="w"):
            with self.assertRaises(MemoryError) as caught:
                other.view(mode="w", timeout=0.05)
        error = caught.exception
        self.assertIsInstance(error, tiermem.NoCapacity)
        self.assertEqual((error.status, error.tier, error.holder), ("no_capacity", "dram:0", "the holder"))
        self.assertGreater(error.needed, 0)
        self.assertIn("the holder", str(error))
        with other.view(mode="w", timeout=5):
            pass

    def test_never_waiting_is_busy(self):
        buffer = self.context.alloc(2 << 20)
        buffer.write(b"x" * (2 << 20))
        buffer.evict()
        self.assertEqual(buffer.info()["resident"], 0)
        with self.assertRaises(BlockingIOError):
            buffer.view(timeout=0)
        self.assertEqual(buffer.read(0, 3), b"xxx")

    def test_operations(self):
        buffer = self.context.alloc(4 << 20)
        buffer.write(b"y" * (4 << 20))
        buffer.evict()
        op = buffer.prefetch(0, 2 << 20)
        self.assertIsNone(op.wait(5))
        self.assertIsNone(op.wait())
        self.assertTrue(op.done())
        self.assertGreaterEqual(buffer.info()["resident"], 2 << 20)
        view = buffer.view_async(2 << 20, mode="rw").wait(5)
        self.assertEqual(bytes(view[:2]), b"yy")
        views = self.context.acquire_async([buffer, (buffer, 0, 5)]).wait(5)
        self.assertEqual([each.nbytes for each in views], [4 << 20, 5])
        buffer.prefetch()  # It is not waited for.

    def test_operations_can_be_awaited(self):
        buffer = self.context.alloc(4 << 20)
        buffer.write(b"z" * (4 << 20))
        buffer.evict()

        async def run():
            first, second = await asyncio.gather(
                self.view(buffer, 0), self.view(buffer, 2 << 20)
            )
            return bytes(first[:1]), bytes(second[:1])

        self.assertEqual(asyncio.run(run()), (b"z", b"z"))

    @staticmethod
    async def view(buffer, offset):
        return await buffer.view_async(offset, 2 << 20)

    def test_a_cancelled_operation_leaves_nothing_pinned(self):
        holder = self.context.alloc(12 << 20)
        other = self.context.alloc(12 << 20)
        with holder.view(mode="w"):
            op = other.view_async(mode="w")
            self.assertFalse(op.done())
            with self.assertRaises(TimeoutError):
                op.wait(0.02)
            op.cancel()
            for _ in range(2):
                with self.assertRaisesRegex(tiermem.Cancelled, "cancelled by its owner"):
                    op.wait(5)
            other.view_async(mode="w")  # Dropped while it waits.
        self.assertEqual(other.info()["pinned"], 0)

    def test_an_operation_fails_then_each_wait_raises_its_error(self):
        op = self.context.alloc(64 << 20).view_async(0, 32 << 20)
        texts = []
        for _ in range(2):
            with self.assertRaises(tiermem.NoCapacity) as caught:
                op.wait(5)
            texts.append((str(caught.exception), caught.exception.needed))
        self.assertEqual(texts[0], texts[1])

        async def run():
            op = self.context.alloc(64 << 20).view_async(0, 32 << 20)
            return await asyncio.gather(self.awaited(op), self.awaited(op), return_exceptions=True)

        self.assertEqual([type(each) for each in asyncio.run(run())], [tiermem.NoCapacity] * 2)

    @staticmethod
    async def awaited(op):
        return await op

    def test_threads_that_wait_for_one_operation_get_one_result(self):
        buffer = self.context.alloc(1 << 20)
        buffer.write(b"q" * (1 << 20))
        for _ in range(200):
            buffer.evict()
            op = buffer.view_async()
            results = []
            threads = [threading.Thread(target=lambda: results.append(op.wait())) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len(results), 4)
            self.assertTrue(all(each is op.wait() for each in results))
            op.wait().release()
            self.assertEqual(buffer.info()["pinned"], 0)

    def test_a_thread_waits_then_the_timeout_of_another_one_expires(self):
        holder, other = self.context.alloc(12 << 20), self.context.alloc(12 << 20)
        results = []
        with holder.view(mode="w"):
            op = other.view_async(mode="w")
            thread = threading.Thread(target=lambda: results.append(op.wait()))
            thread.start()
            time.sleep(0.05)
            for timeout in (0, 0.05, 0.25):
                begun = time.monotonic()
                with self.assertRaises(tiermem.TimedOut):
                    op.wait(timeout)
                self.assertLess(time.monotonic() - begun, 5)
            with self.assertRaisesRegex(ValueError, "another thread waits"):
                tiermem.Queue(self.context).add(op)
        self.assertIs(op.wait(), op.wait(5))
        thread.join()
        self.assertIs(results[0], op.wait())

    def test_an_operation_is_waited_for_in_a_child_of_fork(self):
        holder, other = self.context.alloc(12 << 20), self.context.alloc(12 << 20)
        with holder.view(mode="w"):
            op = other.view_async(mode="w")
            thread = threading.Thread(target=op.wait)
            thread.start()
            time.sleep(0.05)
            child = os.fork()
            if child == 0:
                try:
                    op.wait()
                except tiermem.ShutDown:
                    os._exit(0)
                os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        thread.join()

    def test_a_cancelled_await_keeps_nothing_pinned(self):
        buffer = self.context.alloc(4 << 20)
        buffer.write(b"z" * (4 << 20))
        buffer.evict()

        errors = []

        async def view():
            try:
                await buffer.view_async()
            except asyncio.CancelledError as error:
                errors.append(error)

        async def run():
            task = asyncio.create_task(view())
            await asyncio.sleep(0)
            time.sleep(0.05)  # The operation ends, and the event loop does not see it.
            task.cancel()
            await task
            self.assertIsNotNone(errors[0].__traceback__)
            self.assertEqual(buffer.info()["pinned"], 0)

        asyncio.run(run())

    def test_paths_that_are_not_utf8(self):
        folder = os.fsencode(self.folder.name) + b"/\xff"
        os.mkdir(folder)
        path = folder + b"/w\xff.bin"
        with open(path, "wb") as file:
            file.write(bytes(1 << 20))
        for given in (path, os.fsdecode(path)):
            buffer = self.context.adopt_file(given, label=None)
            self.assertIn("\\xff", buffer.info()["label"])
            self.assertIn("\\xff", self.context.stats_by_label()[0]["label"])
            with buffer.view():
                with self.assertRaisesRegex(tiermem.Busy, r"\\xff"):
                    buffer.evict()
                self.assertTrue(self.context.stats())
                self.assertTrue(self.context.receipts()["last"])
            del buffer
        with tiermem.Context(f"dram=16M; nvme={os.fsdecode(folder)}:64M") as context:
            self.assertIn(64 << 20, [tier["budget"] for tier in context.tiers])
        options = folder + b"/options.toml"
        with open(options, "w") as file:
            file.write('[tiers]\ndram = "24M"\nnvme = "off"\n')
        for given in (options, os.fsdecode(options), pathlib.Path(os.fsdecode(options))):
            with tiermem.Context(toml=given) as context:
                self.assertEqual(context.tiers[0]["budget"], 24 << 20)
        with self.assertRaisesRegex(tiermem.NotFound, r"\\xff"):
            tiermem.Context(toml=folder + b"/none")

    def test_adopted_files(self):
        path = os.path.join(self.folder.name, "file")
        with open(path, "wb") as file:
            file.write(bytes(range(256)) * 4096)
        buffer = self.context.adopt_file(path, 256, 1 << 19, label="adopted")
        self.assertEqual(buffer.read(0, 4), b"\0\1\2\3")
        with self.assertRaises(tiermem.InvalidArgument):
            buffer.view(mode="rw")
        own = self.context.adopt_file(path, private=True)
        own.write(b"changed", 1000)
        self.assertEqual(own.read(998, 11), b"\xe6\xe7changed\xef\xf0")
        with open(path, "rb") as file:
            self.assertEqual(file.read(), bytes(range(256)) * 4096)
        with self.assertRaises(OSError) as caught:
            self.context.adopt_file(os.path.join(self.folder.name, "none"))
        self.assertIn("none", str(caught.exception))
        with self.assertRaises(tiermem.InvalidArgument):
            self.context.adopt_file(path, 1 << 40)

    def test_mapped_files(self):
        path = os.path.join(self.folder.name, "mapped")
        content = bytes(range(256)) * 4096
        with open(path, "wb") as file:
            file.write(content)
        try:
            buffer = self.context.adopt_file(path, 300, mapped=True, extent_bytes=65536)
        except tiermem.Unsupported:
            self.skipTest("no userfaultfd here")
        self.assertTrue(buffer.mapped)
        self.assertEqual(buffer.address % 4096, 300)
        self.assertTrue(memoryview(buffer).readonly)
        self.assertEqual(bytes(memoryview(buffer)), content[300:])
        self.assertEqual(self.context.stats()["demoted"], 0)
        own = self.context.adopt_file(path, private=True, mapped=True)
        memoryview(own)[1000:1007] = b"changed"
        own.evict()
        self.assertEqual(bytes(memoryview(own)[998:1009]), b"\xe6\xe7changed\xef\xf0")
        with open(path, "rb") as file:
            self.assertEqual(file.read(), content)

    def test_why_info_stats_tiers(self):
        buffer = self.context.alloc(3 << 20, label="told")
        self.assertEqual(buffer.why(), "never written: zeros")
        info = buffer.info()
        self.assertEqual((info["label"], info["nbytes"]), ("told", 3 << 20))
        tiers = {tier["tier"]: tier for tier in self.context.tiers}
        self.assertEqual(tiers["dram:0"]["budget"], 16 << 20)
        self.assertIn("promoted", self.context.stats())
        self.context.set_budget("dram", 12 << 20)
        self.assertEqual(self.context.tiers[0]["budget"], 12 << 20)
        for wrong in ("tape", "gpu:", "gpu:x", "dram:99999999999", 7):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "accepted are"):
                self.context.set_budget(wrong, 1 << 20)
        self.assertEqual(self.context.tick(), 1)
        self.assertEqual(self.context.tick(step=True), 2)
        with self.assertRaisesRegex(ValueError, "'next_use'"):
            buffer.advise("soon")
        buffer.advise("keep", value=1)

    def test_dont_need_gives_zeros(self):
        buffer = self.context.alloc(2 << 20)
        buffer.write(b"x" * (2 << 20))
        buffer.advise("dont_need")
        self.assertEqual(buffer.read(0, 3), b"\0\0\0")

    def test_a_closed_context(self):
        buffer = self.context.alloc(1 << 20)
        view = buffer.view()
        with self.assertRaises(tiermem.Busy) as caught:
            self.context.close(timeout=1)
        self.assertIn("view", str(caught.exception))
        view.release()
        self.context.close()
        self.context.close()
        self.assertTrue(self.context.closed)
        with self.assertRaisesRegex(ValueError, "closed"):
            self.context.alloc(1)
        with self.assertRaises(tiermem.ShutDown):
            buffer.view()
        with self.assertRaises(tiermem.ShutDown):
            buffer.read()

    def test_buffers_keep_their_context(self):
        buffer = tiermem.Context(SPEC.format(self.folder.name)).alloc(1 << 20)
        gc.collect()
        buffer.write(b"here")
        self.assertEqual(buffer.read(0, 4), b"here")

    def test_an_exception_in_a_block_is_the_one_that_is_seen(self):
        with self.assertRaises(ZeroDivisionError):
            with tiermem.Context(SPEC.format(self.folder.name)) as context:
                with context.alloc(4096).view(mode="rw") as view:
                    memory = memoryview(view)
                    memory[0] = 1 // 0

    def test_threads(self):
        buffer = self.context.alloc(32 << 20)
        errors = []

        def work(number):
            try:
                for turn in range(20):
                    at = (number * 20 + turn) % 32 << 20
                    with buffer.view(at, 1 << 20, "rw") as view:
                        view[number] = turn
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_labels_that_are_no_text_are_refused(self):
        with self.assertRaises(TypeError):
            self.context.alloc(1, label=3)
        with self.assertRaises(ValueError):
            self.context.alloc(1, label="a\0b")
        with self.assertRaises(tiermem.InvalidArgument):
            self.context.alloc(1, extent_bytes=5000)
        with self.assertRaises(ValueError):
            tiermem.Context("dram=4Q")


class Processes(unittest.TestCase):
    """The end of processes, and children of fork."""

    def run_python(self, program, **variables):
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(tiermem.__file__)),
                       **variables}
        return subprocess.run([sys.executable, "-c", program], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)

    def assert_runs(self, program, output="", **variables):
        done = self.run_python(program, **variables)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, output, ""))

    def test_all_alive_at_the_end(self):
        self.assert_runs(
            "import tiermem; c = tiermem.Context('dram=8M; nvme=off'); b = c.alloc(1 << 20);"
            "v = b.view(mode='w'); m = memoryview(v)"
        )

    def test_the_default_context_is_shared(self):
        self.assert_runs(
            "import tiermem\n"
            "one, two = tiermem.default(), tiermem.default()\n"
            "b = one.alloc(1000, label='x'); b.write(b'1')\n"
            "print(one.tiers[0]['budget'], two.stats()['buffers'] == 1)\n"
            "try:\n    one.close()\nexcept ValueError as error: print('shared' in str(error))\n",
            f"{24 << 20} True\nTrue\n", TIERMEM_TIERS="dram=24M; nvme=off",
        )

    def test_a_child_of_fork(self):
        self.assert_runs(
            "import os, tiermem\n"
            "c = tiermem.default(); b = c.alloc(1 << 20); v = b.view(mode='w'); v[0] = 9\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    try:\n        b.read()\n        os._exit(1)\n"
            "    except tiermem.ShutDown: pass\n"
            "    v.release(); del b\n"
            "    d = tiermem.default(); e = d.alloc(1 << 20); e.write(b'q'); assert e.read(0, 1) == b'q'\n"
            "    os._exit(0)\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
            "v.release(); print(b.read(0, 1))",
            "b'\\t'\n", TIERMEM_TIERS="dram=24M; nvme=off",
        )

    def test_the_import_is_light(self):
        self.assert_runs(
            "import sys, tiermem\n"
            "print([n for n in ('numpy', 'torch', 'asyncio', 'subprocess') if n in sys.modules])",
            "[]\n",
        )

    def test_the_program_is_found(self):
        done = subprocess.run([sys.executable, "-m", "tiermem", "--version"], text=True,
                              stdout=subprocess.PIPE, timeout=60,
                              env={**os.environ,
                                   "PYTHONPATH": os.path.dirname(os.path.dirname(tiermem.__file__))})
        self.assertEqual(done.returncode, 0)
        self.assertIn(tiermem.__version__, done.stdout)

    def test_help_shows_arguments(self):
        done = self.run_python("import tiermem; help(tiermem.Buffer.view); help(tiermem.Context.alloc)")
        self.assertIn("view(self, /, offset=0, length=None, mode='r', timeout=None)", done.stdout)
        self.assertIn("extent_bytes=0", done.stdout)

    def test_signatures_have_the_object_first(self):
        for kind in (tiermem.Context, tiermem.Buffer, tiermem.View, tiermem.Op, tiermem.Queue, tiermem.Store):
            for name, method in vars(kind).items():
                if name.startswith("_") or not callable(method):
                    continue
                with self.subTest(kind=kind.__name__, method=name):
                    self.assertEqual(next(iter(inspect.signature(method).parameters)), "self")
        self.assertEqual(list(inspect.signature(tiermem.gpu_tag).parameters), ["tag"])

    def test_the_collector_ends_operations_before_it_clears_what_they_use(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assert_runs(GARBAGE, "ok\n", FOLDER=folder)

    def test_topology_says_why_it_fails(self):
        self.assert_runs(
            "import tiermem\n"
            "try:\n    tiermem.topology()\n"
            "except tiermem.InvalidArgument as error: print('1Q' in str(error), error.status)",
            "True invalid_argument\n", TIERMEM_TIERS="dram=1Q",
        )

    def test_an_old_pytorch_is_an_import_error(self):
        self.assert_runs(
            "import sys, types\n"
            "sys.modules['torch'] = types.ModuleType('torch')\n"
            "sys.modules['torch'].__version__ = '1.13.1'\n"
            "try:\n    import tiermem.torch\n"
            "except ImportError as error: print(error)",
            "tiermem.torch needs PyTorch 2.1 or later, and this is 1.13.1\n",
        )

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_types(self):
        package = os.path.dirname(os.path.dirname(tiermem.__file__))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "typed.py")
            with open(path, "w") as file:
                file.write(TYPED)
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--python-version=3.12",
                 "--cache-dir", folder, path],
                text=True, capture_output=True, timeout=300, env={**os.environ, "MYPYPATH": package},
            )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


# A cycle of the program has a queue and an operation, and the queue is older than the operation. The
# memory of the operation is in the cycle, and the collector can clear it.
GARBAGE = """
import ctypes, gc, os, tiermem
gc.disable()
context = tiermem.Context(f"dram=16M; nvme={os.environ['FOLDER']}:128M")
buffer = context.alloc(8 << 20)
buffer.write(b"x" * (8 << 20))
store = tiermem.Store(context, 32 << 20)
class Client: pass
for turn in range(10):
    for start in (
        lambda: buffer.view_async(0, 4096),
        lambda: context.copy_async([(buffer, 0, memoryview(bytearray(8 << 20)))]),
        lambda: context.copy_async([(buffer, 0, ctypes.create_string_buffer(8 << 20))]),
        lambda: store.put_async([(os.urandom(200), bytes(400_000)) for _ in range(8)]),
    ):
        buffer.evict()
        client = Client()
        client.queue = tiermem.Queue(context)
        gc.collect(0)
        client.queue.add(start(), client)
        del client
        gc.collect()
        assert buffer.info()["pinned"] == 0
print("ok")
"""

TYPED = """
import os, pathlib
import tiermem
context = tiermem.Context("dram=1G", toml=pathlib.Path("x"))
buffer = tiermem.default().alloc(1 << 20)
view = buffer.view(None, None)
context.acquire([buffer, (buffer,), (buffer, None, None, "r")])
context.evict(iter([buffer]))
context.prefetch(each for each in [buffer]).wait()
store = tiermem.Store(context, 1 << 20)
store.put((key, b"1") for key in (b"a", "b"))
tiermem.Tensor(view, "bfloat16", (1,)).nbytes
path: str = tiermem.run_path()
tiermem.topology()["tiers"]
"""



class DeviceMemory(unittest.TestCase):
    """Without a GPU; tests/gpu has the fake driver."""

    def test_calls_say_that_there_is_none(self):
        with tiermem.Context("dram=16M; nvme=off") as context:
            with tiermem_set("kv"):
                for call in (context.gpu_pause, context.gpu_resume):
                    with self.assertRaisesRegex(tiermem.Unsupported, "GPU"):
                        call("kv")
            with self.assertRaises(tiermem.Unsupported):
                tiermem._native._cuda_functions(context)
        path, *names = tiermem._native._cuda_functions(None)
        self.assertIn("libtiermem", os.path.basename(path))
        library = ctypes.CDLL(path)
        for name in names:
            self.assertTrue(hasattr(library, name))

    def test_arguments(self):
        with self.assertRaises(TypeError):
            tiermem.gpu_tag(5)
        with self.assertRaises(TypeError):
            tiermem._native._cuda_functions(5)


@contextlib.contextmanager
def tiermem_set(tag):
    tiermem.gpu_tag(tag)
    yield
    tiermem.gpu_tag()


if __name__ == "__main__":
    unittest.main()
