"""The ends of objects: of contexts with arrays, of views and buffers that libraries use, and cycles."""

import gc
import os
import sys
import tempfile
import threading
import time
import unittest
import weakref

import tiermem

try:
    import numpy as np

    import tiermem.numpy
except ModuleNotFoundError:
    np = None
try:
    import torch

    import tiermem.torch
except ModuleNotFoundError:
    torch = None

MIB = 1 << 20


class Ends(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.context = tiermem.Context(f"dram=16M; nvme={self.folder.name}:64M", name=self.id())

    def tearDown(self):
        self.context.close(force=True)
        self.folder.cleanup()

    def mapped(self, context=None):
        context = self.context if context is None else context
        if not context.can_map:
            self.skipTest("this machine has no mapped buffers")
        return context.alloc(MIB, mapped=True)

    def exporters(self):
        """Return functions that make an array over an object with the buffer protocol, by name."""
        made = {"memoryview": memoryview, "__array_interface__": lambda o: o.__array_interface__,
                "dlpack": lambda o: o.__dlpack__(max_version=(1, 0))}  # fmt: skip
        if np is not None:
            made["numpy.frombuffer"] = lambda o: np.frombuffer(o, "u1")
            made["numpy.asarray"] = np.asarray
            made["a slice of an array"] = lambda o: np.frombuffer(o, "u1")[5:9].reshape(2, 2)
        if torch is not None:
            made["torch.frombuffer"] = lambda o: torch.frombuffer(o, dtype=torch.uint8)
            made["torch.asarray"] = torch.asarray
            made["torch.as_tensor"] = torch.as_tensor
            made["torch.from_dlpack"] = torch.from_dlpack
        return made

    # ---- Contexts

    def test_close_refuses_while_arrays_use_mapped_buffers(self):
        for name, make in self.exporters().items():
            with self.subTest(name):
                context = tiermem.Context("dram=16M; nvme=off")
                buffer = self.mapped(context)
                array = make(buffer)
                with self.assertRaisesRegex(tiermem.Busy, "1 arrays, tensors or memoryviews.*force=True"):
                    context.close()
                self.assertFalse(context.closed)
                memoryview(buffer)[0] = 7  # The context goes on.
                del array
                context.close()
                self.assertTrue(context.closed)

    def test_close_refuses_while_arrays_use_views(self):
        for name, make in self.exporters().items():
            with self.subTest(name):
                context = tiermem.Context("dram=16M; nvme=off")
                view = context.alloc(MIB).view(0, 4096, "rw")
                array = make(view)
                del view
                with self.assertRaisesRegex(tiermem.Busy, "1 arrays, tensors or memoryviews"):
                    context.close()
                del array
                context.close()

    def test_the_end_of_a_block_refuses_as_close_does(self):
        with self.assertRaisesRegex(tiermem.Busy, "1 arrays"):
            with tiermem.Context("dram=16M; nvme=off") as context:
                memory = memoryview(self.mapped(context))
        memory[0] = 1
        memory.release()
        context.close()

    def test_handlers_of_exceptions_may_touch_what_the_block_made(self):
        try:
            with tiermem.Context("dram=16M; nvme=off") as context:
                buffer = self.mapped(context)
                memory = memoryview(buffer)
                array = np.frombuffer(buffer, "u1") if np is not None else memory
                view = context.alloc(MIB).view(0, 4096, "rw")
                view[:2] = b"ab"
                raise KeyError("of the program")
        except KeyError:
            memory[0] = 5
            self.assertEqual((array[0], bytes(view[:2]), view.nbytes), (5, b"ab", 4096))
            self.assertTrue(context.closed)
            for call in (lambda: context.alloc(1), lambda: memoryview(buffer), buffer.read, buffer.view):
                with self.assertRaises(tiermem.ShutDown):
                    call()
            view.release()
            context.close()
        memory[MIB - 1] = 6

    def test_the_context_ends_with_its_last_array_after_an_exception(self):
        before = threads()
        try:
            with tiermem.Context("dram=16M; nvme=off") as context:
                memory = memoryview(self.mapped(context))
                raise KeyError
        except KeyError:
            pass
        self.assertGreater(threads(), before, "the context's threads are there")
        del context
        gc.collect()
        memory[0] = 1
        del memory
        deadline = time.monotonic() + 10
        while threads() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(threads(), before)

    def test_force_ends_a_context_after_an_exception(self):
        try:
            with tiermem.Context("dram=16M; nvme=off") as context:
                view = context.alloc(MIB).view()
                raise KeyError
        except KeyError:
            context.close()  # It does nothing: the context is closed.
            self.assertEqual(view[0], 0)
            context.close(force=True)
            with self.assertRaisesRegex(tiermem.ShutDown, "has ended"):
                view[0]

    def test_an_ended_context_exports_nothing(self):
        buffer = self.mapped()
        view = self.context.alloc(MIB).view()
        self.context.close(force=True)
        for name, make in self.exporters().items():
            for of in (buffer, view):
                with self.subTest(name, of=of), self.assertRaises((tiermem.ShutDown, RuntimeError, ValueError)):
                    make(of)
        for what in ("address",):
            for of in (buffer, view):
                with self.assertRaises(tiermem.ShutDown):
                    getattr(of, what)
        view.release()

    def test_close_times_out_then_the_context_refuses_calls_and_the_next_close_ends_it(self):
        for force in (False, True):
            with self.subTest(force=force):
                before = threads()
                context = tiermem.Context("dram=16M; nvme=off")
                buffer = self.mapped(context)
                view = context.alloc(MIB).view() if force else None
                with self.assertRaises(tiermem.TimedOut):
                    context.close(force, timeout=0)
                self.assertTrue(context.closed)
                for call in (lambda: memoryview(buffer), lambda: buffer.address, buffer.read, context.stats):
                    with self.assertRaises(tiermem.ShutDown):
                        call()
                if view is not None:
                    with self.assertRaises(tiermem.ShutDown):
                        view[0]
                context.close()
                self.assertTrue(context.closed)
                context.close()
                deadline = time.monotonic() + 10
                while threads() > before and time.monotonic() < deadline:
                    time.sleep(0.01)
                self.assertLessEqual(threads(), before, "the context has ended")

    def test_the_shared_context_hides_no_exception(self):
        with self.assertRaises(ZeroDivisionError):
            with tiermem.default():
                1 // 0

    # ---- Views and buffers

    def test_an_array_keeps_its_view_pinned(self):
        for name, make in self.exporters().items():
            if name in ("memoryview", "numpy.frombuffer", "numpy.asarray", "a slice of an array"):
                continue  # The view refuses to be released: test_objects.py.
            with self.subTest(name):
                buffer = self.context.alloc(MIB)
                with buffer.view(0, 4096, "rw") as view:
                    array = make(view)
                self.assertTrue(view.released)
                self.assertEqual(buffer.info()["pinned"], MIB)  # The whole extent.
                with self.assertRaisesRegex(BufferError, "1 views and tensors"):
                    buffer.free()
                del array
                self.assertEqual(buffer.info()["pinned"], 0)
                buffer.free()

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_tensors_of_released_views_have_their_bytes(self):
        buffer = self.context.alloc(2 * MIB)
        with buffer.view(0, 4096, "rw") as view:
            tensor = torch.frombuffer(view, dtype=torch.uint8)
        tensor.fill_(9)
        with self.assertRaises(tiermem.Busy):
            buffer.evict()
        self.assertEqual(tensor.sum(), 9 * 4096)
        del tensor
        buffer.evict()
        self.assertEqual(buffer.read(0, 2), b"\t\t")

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_a_buffer_is_not_freed_under_a_tensor(self):
        for make in (torch.asarray, lambda b: torch.frombuffer(b, dtype=torch.uint8)):
            buffer = self.mapped()
            tensor = make(buffer)
            with self.assertRaisesRegex(BufferError, "0 memoryviews and 1 views and tensors"):
                buffer.free()
            del buffer
            tensor[5] = 1

    @unittest.skipUnless(np, "NumPy is not installed")
    def test_hints_find_the_buffer_of_an_array(self):
        if not self.context.can_map:
            self.skipTest("this machine has no mapped buffers")
        table = tiermem.numpy.zeros(1000, context=self.context, label="table")
        self.assertEqual(tiermem.numpy.buffer_of(table[3:]).info()["label"], "table")
        memory = memoryview(tiermem.numpy.buffer_of(table))
        self.assertIs(memory.obj.owner, tiermem.numpy.buffer_of(table))
        self.assertEqual(bytes(memoryview(memory.obj)[:8]), bytes(8))

    # ---- Operations

    def resident(self, buffer):
        deadline = time.monotonic() + 20
        while buffer.info()["resident"] != buffer.nbytes and time.monotonic() < deadline:
            time.sleep(0.01)
        return buffer.info()["resident"]

    def check_dropped(self, buffer, prefetch):
        buffer.evict()
        self.assertEqual(buffer.info()["resident"], 0)
        prefetch()
        self.assertEqual(self.resident(buffer), buffer.nbytes)

    def test_a_dropped_prefetch_goes_on(self):
        buffer = self.context.alloc(8 * MIB)
        buffer.write(b"x" * (8 * MIB))
        self.check_dropped(buffer, lambda: buffer.prefetch())
        self.check_dropped(buffer, lambda: buffer.prefetch(0, 8 * MIB, next_use=5))
        self.check_dropped(buffer, lambda: self.context.prefetch([buffer]))

    def test_a_dropped_prefetch_of_addresses_goes_on(self):
        buffer = self.mapped()
        with memoryview(buffer) as memory:
            memory[:] = b"y" * MIB
        self.check_dropped(buffer, lambda: self.context.prefetch_at(buffer.address, MIB))

    def test_many_dropped_prefetches_are_forgotten(self):
        buffer = self.context.alloc(MIB)
        for _ in range(70_000):  # More than the operations that a context has at a time.
            buffer.prefetch(0, 4096)

    def test_a_dropped_acquire_is_cancelled(self):
        buffer = self.context.alloc(MIB)
        buffer.view_async()
        self.context.acquire_async([buffer])
        self.assertEqual(buffer.info()["pinned"], 0)

    def test_a_failed_wait_has_the_error_of_the_operation(self):
        with tiermem.Context("dram=4M; nvme=off") as context:
            buffer = context.alloc(16 * MIB, label="small")
            views = [buffer.view(at * MIB, MIB, "w") for at in range(3)]
            op = context.copy_async([(buffer, 8 * MIB, b"x" * 2 * MIB, "w")], timeout=0.2)
            with self.assertRaises(tiermem.Error) as caught:
                op.wait()
            self.assertIn(caught.exception.status, ("no_capacity", "timed_out"))
            self.assertIn("copy: item 0", str(caught.exception))
            for view in views:
                view.release()
            op = buffer.view_async(0, MIB)
            self.assertEqual(len(op.wait(10)), MIB)
            blocked = [buffer.view(at * MIB, MIB, "w") for at in range(3)]
            op = buffer.view_async(8 * MIB, 2 * MIB, "w")
            with self.assertRaisesRegex(tiermem.TimedOut, "op_wait: operation .* still under way"):
                op.wait(0.01)
            op.cancel()
            with self.assertRaisesRegex(tiermem.Cancelled, "cancelled by its owner"):
                op.wait()
            del blocked, op, views, view, caught

    # ---- Cycles

    def test_the_collector_ends_cycles_through_queues_and_operations(self):
        class Holder:
            pass

        gone = []
        buffer = self.context.alloc(MIB)
        for _ in range(3):
            holder = Holder()
            weakref.finalize(holder, gone.append, 1)
            holder.queue = tiermem.Queue(self.context)
            holder.queue.add(buffer.prefetch(), holder)
            holder.queue.add(buffer.view_async(), holder)
        del holder
        gc.collect()
        self.assertEqual(len(gone), 3)

        class Memory(bytearray):
            pass

        memory = Memory(4096)
        weakref.finalize(memory, gone.append, 1)
        memory.op = self.context.copy_async([(buffer, 0, memory)])
        del memory
        gc.collect()
        self.assertEqual(len(gone), 4)
        self.assertEqual(buffer.info()["pinned"], 0)


class Arguments(unittest.TestCase):
    """Numbers and texts that do not fit, and the exceptions of the table in docs/python/README.md."""

    def setUp(self):
        self.context = tiermem.Context("dram=16M; nvme=off", name=self.id())
        self.buffer = self.context.alloc(MIB)

    def tearDown(self):
        self.context.close(force=True)

    def test_numbers_that_do_not_fit(self):
        buffer, context = self.buffer, self.context
        calls = {
            "why": lambda n: buffer.why(n),
            "prefetch": lambda n: buffer.prefetch(next_use=n),
            "context.prefetch": lambda n: context.prefetch([buffer], next_use=n),
            "advise": lambda n: buffer.advise("next_use", value=n),
            "context.advise": lambda n: context.advise([buffer], "next_use", n),
            "advise_at": lambda n: context.advise_at(0, 0, "next_use", n),
            "prefetch_at": lambda n: context.prefetch_at(n, 1),
            "prefetch_at next_use": lambda n: context.prefetch_at(0, 1, next_use=n),
            "receipts": context.receipts,
            "gpu_pause": lambda n: context.gpu_pause("x", n),
            "alloc": context.alloc,
        }
        for name, call in calls.items():
            for number in (-1, 1 << 64, (1 << 64) + 5, 10**30):
                with self.subTest(name, number=number), self.assertRaisesRegex(ValueError, "must be a"):
                    call(number)
            for number in (None, 1.5, "1"):
                with self.subTest(name, number=number), self.assertRaisesRegex(TypeError, "must be a"):
                    call(number)
        with self.assertRaisesRegex(ValueError, r"last is 4294967296.*2\*\*32 - 1"):
            context.receipts(1 << 32)
        self.assertEqual(context.receipts(0)["last"], [])

    def test_numbers_beyond_all_ranges_are_value_errors(self):
        view = self.buffer.view()
        queue = tiermem.Queue(self.context)
        for call in (
            lambda: self.buffer.view(timeout=10**400),
            lambda: self.context.close(timeout=10**400),
            lambda: queue.drain(1 << 64),
            lambda: queue.drain(-1),
            lambda: tiermem.Tensor(view, "uint8", (1 << 63,)).__dlpack__(max_version=(1, 0)),
            lambda: tiermem.Tensor(view, "uint8", (-1,)).__dlpack__(max_version=(1, 0)),
        ):
            with self.assertRaises(ValueError):
                call()
        self.assertEqual(queue.drain(1 << 63), [])

    def test_a_number_frees_the_buffer_then_the_call_is_refused(self):
        context, memory = self.context, bytearray(10)
        for name, call in {
            "read": lambda b, n: b.read(n),
            "read length": lambda b, n: b.read(0, n),
            "read timeout": lambda b, n: b.read(0, 10, timeout=n),
            "readinto": lambda b, n: b.readinto(memory, n),
            "write": lambda b, n: b.write(b"1", n),
            "view": lambda b, n: b.view(n),
            "view length": lambda b, n: b.view(0, n),
            "view timeout": lambda b, n: b.view(0, 10, "r", n),
            "why": lambda b, n: b.why(n),
            "acquire": lambda b, n: context.acquire([b, (b, n)]),
            "acquire_async": lambda b, n: context.acquire_async([b, (b, 0, n)]),
            "advise": lambda b, n: context.advise([(b, 1), (b, n)], "cold"),
            "evict": lambda b, n: context.evict([(b, n)]),
            "copy": lambda b, n: context.copy([(b, 0, memory), (b, n, memory)]),
        }.items():
            buffer = context.alloc(MIB)
            with self.subTest(name), self.assertRaises(tiermem.StaleHandle):
                call(buffer, Does(buffer.free))

    def test_a_number_closes_the_context_then_the_call_is_refused(self):
        for name, call in {
            "read": lambda c, b, n: b.read(n),
            "view": lambda c, b, n: b.view(n),
            "alloc": lambda c, b, n: c.alloc(n),
            "acquire": lambda c, b, n: c.acquire([(b, n)]),
            "copy": lambda c, b, n: c.copy([(b, n, bytearray(1))]),
            "set_budget": lambda c, b, n: c.set_budget("dram", n),
            "prefetch_at": lambda c, b, n: c.prefetch_at(1, n),
            "store": lambda c, b, n: tiermem.Store(c, n),
            "put": lambda c, b, n: tiermem.Store(c, MIB).put([(b"k", b"v")], timeout=n),
        }.items():
            context = tiermem.Context("dram=16M; nvme=off")
            buffer = context.alloc(MIB)
            with self.subTest(name), self.assertRaises(tiermem.ShutDown):
                call(context, buffer, Does(lambda: context.close(force=True)))

    def test_keys_close_the_store_then_the_call_is_refused(self):
        store = tiermem.Store(self.context, MIB)

        def keys():
            store.close()
            yield b"k"

        with self.assertRaisesRegex(ValueError, "is closed"):
            store.exists(keys())

    def test_close_refuses_while_threads_use_the_context(self):
        view = self.buffer.view(0, 10)
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-5)
        ended = time.monotonic() + 1
        kinds = set()

        def use():
            while time.monotonic() < ended:
                try:
                    self.buffer.read(0, 4)
                except Exception as error:
                    kinds.add(type(error))

        users = [threading.Thread(target=use) for _ in range(3)]
        for each in users:
            each.start()
        while time.monotonic() < ended:
            with self.assertRaises(tiermem.Busy):
                self.context.close()
        for each in users:
            each.join()
        self.assertLessEqual(kinds, {tiermem.ShutDown})
        view.release()

    def test_texts_with_null_characters(self):
        for call in (
            lambda text: tiermem.gpu_tag(text),
            lambda text: self.context.gpu_pause(text),
            lambda text: self.context.gpu_resume(text),
            lambda text: self.context.alloc(1, label=text),
            lambda text: self.context.alloc(1, preferred=text),
            lambda text: self.context.set_budget(text, MIB),
            lambda text: tiermem.Context(text),
            lambda text: tiermem.Context("dram=8M", name=text),
            lambda text: tiermem.Context("dram=8M", toml=text),
            lambda text: tiermem.Store(self.context, MIB, name=text),
            lambda text: self.context.adopt_file(text),
        ):
            with self.assertRaisesRegex(ValueError, "null"):
                call("dram:0\0x")

    def test_messages_name_the_function(self):
        for name in ("alloc", "acquire", "copy", "set_budget", "prefetch", "advise", "adopt_file"):
            with self.subTest(name), self.assertRaisesRegex(TypeError, rf"{name}\(\)"):
                getattr(self.context, name)(wrong=1)
        for name in ("read", "write", "prefetch", "evict", "view_async", "advise"):
            with self.subTest(name), self.assertRaisesRegex(TypeError, rf"{name}\(\)"):
                getattr(self.buffer, name)(wrong=1)

    def test_a_closed_context_is_shut_down(self):
        store = tiermem.Store(self.context, MIB)
        buffer = self.buffer
        context = self.context
        context.close()
        for call in (
            lambda: context.alloc(1), lambda: context.tiers, context.stats, context.receipts,
            context.tick, context.stats_by_label, lambda: context.can_map, context.__enter__,
            lambda: context.prefetch([buffer]), lambda: context.copy([]), context.gpu_pause,
            lambda: tiermem.Queue(context), lambda: tiermem.Store(context, 1),
            buffer.view, buffer.read, buffer.info, buffer.why, buffer.prefetch,
            lambda: buffer.write(b"x"), lambda: buffer.address, lambda: memoryview(buffer),
            lambda: store.put([(b"k", b"v")]), lambda: store.get(b"k"), store.stats,
        ):  # fmt: skip
            with self.assertRaisesRegex(tiermem.ShutDown, "closed"):
                call()
        self.assertTrue(issubclass(tiermem.ShutDown, (RuntimeError,)))
        self.assertTrue(issubclass(tiermem.ShutDown, (ValueError,)))

    def test_a_freed_buffer_is_stale(self):
        buffer = self.buffer
        buffer.free()
        for call in (
            buffer.view, buffer.read, buffer.info, buffer.why, buffer.prefetch, buffer.evict,
            lambda: buffer.write(b"x"), lambda: buffer.nbytes, lambda: buffer.address,
            lambda: len(buffer), lambda: memoryview(buffer), lambda: buffer.__dlpack__(),
            lambda: self.context.acquire([buffer]), lambda: self.context.copy([(buffer, 0, b"", "w")]),
        ):  # fmt: skip
            with self.assertRaisesRegex(tiermem.StaleHandle, "was freed"):
                call()

    def test_files_of_options_that_are_not_found(self):
        missing = os.path.join(tempfile.gettempdir(), "tiermem-no-such-folder", "x")
        for tiers, options in (
            ("dram=8M; nvme=off", {"toml": missing}),
            (f"dram=8M; nvme=off; stats_file={missing}", {}),
            (f"dram=8M; nvme=off; log=error; log_file={missing}", {}),
            (f"dram=8M; nvme={missing}:8M", {}),
        ):
            with self.subTest(tiers, **options), self.assertRaises(tiermem.NotFound) as caught:
                tiermem.Context(tiers, **options)
            self.assertIsInstance(caught.exception, FileNotFoundError)
            self.assertIn("tiermem-no-such-folder", str(caught.exception))


class Does:
    """A number that runs code of the program when a call converts it."""

    def __init__(self, code):
        self.code = code

    def __index__(self):
        self.code()
        return 1

    __float__ = lambda self: float(self.__index__())  # noqa: E731


def threads():
    return len(os.listdir("/proc/self/task"))


if __name__ == "__main__":
    unittest.main()
