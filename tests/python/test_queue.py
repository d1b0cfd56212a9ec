"""Queues of operations, hints by address, and statistics by label of the Python package."""

import asyncio
import ctypes
import gc
import os
import select
import tempfile
import unittest

import tiermem

SPEC = "dram=16M; nvme={}:64M"


class Queues(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.context = tiermem.Context(SPEC.format(self.folder.name), name=self.id())
        self.hog = self.context.alloc(12 << 20, label="hog")
        self.other = self.context.alloc(12 << 20, label="other")

    def tearDown(self):
        if not self.context.closed:
            self.context.close(force=True)
        self.folder.cleanup()

    def ready(self, queue, timeout=0.0):
        return bool(select.select([queue], [], [], timeout)[0])

    def test_an_operation_gives_one_event(self):
        queue = tiermem.Queue(self.context)
        with self.hog.view(mode="w"):
            op = self.other.view_async(mode="w")
            user = object()
            queue.add(op, user)
            self.assertEqual((len(queue), queue.drain(), self.ready(queue)), (1, [], False))
            with self.assertRaisesRegex(ValueError, "in a queue"):
                op.wait()
            with self.assertRaisesRegex(ValueError, "in a queue"):
                queue.add(op)
        self.assertTrue(self.ready(queue, 10))
        self.assertTrue(op.done())
        ((ended, theirs),) = queue.drain()
        self.assertIs(ended, op)
        self.assertIs(theirs, user)
        self.assertEqual((len(queue), self.ready(queue)), (0, False))
        with op.wait() as view:
            self.assertEqual(len(view), 12 << 20)
        with self.assertRaisesRegex(ValueError, "waited for"):
            queue.add(op)
        queue.close()
        for call in (queue.drain, queue.fileno, lambda: queue.add(op)):
            with self.assertRaisesRegex(ValueError, "closed"):
                call()

    def test_a_failure_is_raised_by_wait(self):
        queue = tiermem.Queue(self.context)
        with self.hog.view(mode="w"):
            op = self.other.view_async(mode="w")
            op.cancel()
            while not op.done():
                pass
            queue.add(op)
            self.assertTrue(self.ready(queue))
            self.assertEqual(queue.drain(), [(op, None)])
            for _ in range(2):
                with self.assertRaisesRegex(tiermem.Cancelled, "cancelled") as raised:
                    op.wait()
            self.assertEqual(raised.exception.status, "cancelled")

    def test_a_limit(self):
        queue = tiermem.Queue(self.context)
        ops = [self.context.prefetch([(self.hog, 0, 4096)]) for _ in range(50)]
        for number, op in enumerate(ops):
            while not op.done():
                pass
            queue.add(op, number)
        self.assertEqual([user for _, user in queue.drain(3)], [0, 1, 2])
        self.assertEqual([user for _, user in queue.drain()], list(range(3, 50)))
        with self.assertRaisesRegex(ValueError, "limit is 0"):
            queue.drain(0)

    def test_a_store_reports_through_a_queue(self):
        queue = tiermem.Queue(self.context)
        store = tiermem.Store(self.context, 8 << 20)
        queue.add(store.put_async([("a", b"1" * 5000)]), "put")
        seen = []
        while not seen:
            self.assertTrue(self.ready(queue, 10))
            seen = queue.drain()
        self.assertEqual(seen[0][0].wait(), [5000])
        queue.add(store.put_async([("b", b"1" * (9 << 20))]), "too large")
        self.assertTrue(self.ready(queue, 10))
        ((op, _),) = queue.drain()
        with self.assertRaises(tiermem.NoCapacity):
            op.wait()
        store.close()

    def test_a_queue_that_is_dropped_ends_its_operations(self):
        queue = tiermem.Queue(self.context)
        with self.hog.view(mode="w"):
            op = self.other.view_async(mode="w")
            queue.add(op)
            del queue
            gc.collect()
            with self.assertRaises(tiermem.Cancelled):
                op.wait()

    def test_the_context_ends_first(self):
        queue = tiermem.Queue(self.context)
        view = self.hog.view(mode="w")
        op = self.other.view_async(mode="w")
        queue.add(op)
        self.context.close(force=True)
        self.assertTrue(self.ready(queue))
        with self.assertRaises(tiermem.ShutDown):
            queue.drain()
        queue.close()
        with self.assertRaisesRegex(tiermem.ShutDown, "the context has ended"):
            op.wait()
        del view

    def test_a_drain_runs_code_that_closes_the_queue(self):
        queue = tiermem.Queue(self.context)
        with self.hog.view(mode="w"):
            ops = [self.other.view_async(mode="w") for _ in range(40)]
            for op in ops:
                op.cancel()
            for op in ops:
                while not op.done():
                    pass
                queue.add(op)

            def close(phase, info):
                if 0 < len(queue) < 40:
                    queue.close()

            gc.callbacks.append(close)
            thresholds = gc.get_threshold()
            gc.set_threshold(1)
            try:
                drained = [op for op, _ in queue.drain()]
            finally:
                gc.set_threshold(*thresholds)
                gc.callbacks.remove(close)
        self.assertLessEqual(len(drained), 40)
        for op in ops:
            with self.assertRaises(tiermem.Cancelled):
                op.wait()

    def test_a_child_of_fork(self):
        queue = tiermem.Queue(self.context)
        with self.hog.view(mode="w"):
            queue.add(self.other.view_async(mode="w"))
            child = os.fork()
            if child == 0:
                try:
                    queue.drain()
                except tiermem.ShutDown:
                    queue.close()
                    os._exit(0)
                os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue(self.ready(queue, 10))
        ((op, _),) = queue.drain()
        op.wait().release()

    def test_an_event_loop(self):
        async def main():
            loop = asyncio.get_running_loop()
            queue = tiermem.Queue(self.context)
            futures = []

            def drain():
                for op, future in queue.drain():
                    future.set_result(op.wait())

            loop.add_reader(queue, drain)
            for _ in range(100):
                futures.append(loop.create_future())
                queue.add(self.context.prefetch([(self.hog, 0, 4096)]), futures[-1])
            await asyncio.wait_for(asyncio.gather(*futures), 20)
            loop.remove_reader(queue)
            self.assertEqual(len(queue), 0)

        asyncio.run(main())

    def test_labels(self):
        self.other.write(b"1" * (12 << 20))
        labels = {row["label"]: row for row in self.context.stats_by_label()}
        self.assertEqual(set(labels), {"hog", "other"})
        self.assertEqual(labels["hog"]["zero"], 12 << 20)
        self.assertEqual((labels["other"]["buffers"], labels["other"]["bytes"]), (1, 12 << 20))
        self.assertEqual(len(labels["other"]["tiers"]), len(self.context.tiers))
        self.assertGreaterEqual(sum(labels["other"]["tiers"]), 12 << 20)
        for number in range(40):
            self.context.alloc(4096, label=f"label {number}")
        kept = [self.context.alloc(4096, label=f"label {number}") for number in range(40)]
        self.assertEqual(len(self.context.stats_by_label()), 42)
        del kept

    def test_hints_by_address(self):
        if not self.context.can_map:
            self.skipTest("this machine has no mapped buffers")
        buffer = self.context.alloc(4 << 20, mapped=True)
        memory = memoryview(buffer)
        memory[:] = b"7" * (4 << 20)
        address = buffer.address
        self.context.evict_at(address, 4 << 20)
        self.assertEqual(buffer.info()["resident"], 0)
        self.context.prefetch_at(address, 4 << 20).wait()
        self.assertEqual(buffer.info()["resident"], 4 << 20)
        self.context.advise_at(address + 5, 10, "dont_need")
        self.assertEqual(bytes(memory[4:16]), b"7" + bytes(10) + b"7")
        plain = ctypes.create_string_buffer(10)
        with self.assertRaisesRegex(tiermem.InvalidArgument, "no mapped buffer"):
            self.context.evict_at(ctypes.addressof(plain), 10)
        memory.release()


if __name__ == "__main__":
    unittest.main()
